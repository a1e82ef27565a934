package controltest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/controltest"
	"github.com/polyplane/polyplane/node/port"
)

// A driver of a few lines over package port, which passes the checks.

// Taps is a control driver whose elements are taps: whatever opens them, an emulator or a virtual machine, is the
// element.
type Taps struct {
	dirs instance.NodeDirs
	node *linux.Rtnetlink
}

func (d *Taps) Offers(context.Context) model.Offers {
	return model.OfferOf("control: tap", nil, model.Router, model.Host)
}

func (d *Taps) Apply(_ context.Context, jobs []control.Job) []control.Result {
	results := make([]control.Result, len(jobs))
	there, names, err := port.Find(d.node, d.dirs.AliasPrefix(), len(jobs))
	for i, job := range jobs {
		r := &results[i]
		r.ID, r.Phase, r.Err = job.ID, model.PhaseRunning, err
		for k := 0; k < len(job.Element.Interfaces) && r.Err == nil; k++ {
			r.Err = d.port(r, job.Element.Interfaces[k], there, names)
		}
		if r.Err != nil {
			r.Phase = model.PhaseFailed
		} else if len(r.Changed) == len(r.Devices) && len(r.Devices) > 0 {
			r.Changed = []change.Change{change.ElementCreated.Of()}
		}
	}
	return results
}

// port makes one interface's tap, or puts it right.
func (d *Taps) port(r *control.Result, ifc model.PlacedInterface, there port.Ports, names map[string]*port.Link) error {
	id := model.PortID{ID: r.ID, Interface: ifc.Name}
	want := port.Port{Key: id.String(), Name: d.dirs.PortDevice(id), Alias: d.dirs.Alias(id), MTU: ifc.MTU}
	if want.MTU < 68 { // RFC 791: what every IPv4 link carries
		return fmt.Errorf("interface %s: mtu %d: want at least 68", id, ifc.MTU)
	}
	there.Adopt(&want, names)
	l := there[want.Key]
	if l != nil && want.Is(l) {
		r.Devices = append(r.Devices, control.Device{Interface: ifc.Name, Name: l.Name, Index: l.Index})
		return nil
	}
	if l == nil {
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: want.Name}, Mode: netlink.TUNTAP_MODE_TAP}
		if err := netlink.LinkAdd(tap); err != nil {
			return fmt.Errorf("interface %s: make tap %s: %w", id, want.Name, err)
		}
		l = &port.Link{Index: tap.Index, Name: want.Name}
	}
	var b linux.Batch
	want.Restore(&b, l)
	want.Raise(&b)
	silent, err := port.NewSilencer()
	if err != nil {
		return err
	}
	defer silent.Close()
	if err := errors.Join(errors.Join(d.node.Do(&b)...), silent.Silence(want.Name)); err != nil {
		return fmt.Errorf("interface %s: put right tap %s: %w", id, want.Name, err)
	}
	r.Devices = append(r.Devices, control.Device{Interface: ifc.Name, Name: want.Name, Index: l.Index})
	r.Changed = append(r.Changed, change.PortRestored.Of(ifc.Name))
	return nil
}

func (d *Taps) List(context.Context) ([]control.Found, error) {
	there, _, err := port.Find(d.node, d.dirs.AliasPrefix(), 0)
	var all []control.Found
	seen := map[model.ID]bool{}
	for key := range there {
		if id := idOf(key); !seen[id] {
			seen[id] = true
			all = append(all, control.Found{ID: id, Phase: model.PhaseRunning})
		}
	}
	return all, err
}

func (d *Taps) Remove(_ context.Context, ids []model.ID, _ bool) error {
	there, _, err := port.Find(d.node, d.dirs.AliasPrefix(), 0)
	if err != nil {
		return err
	}
	var b linux.Batch
	for key, l := range there {
		for _, id := range ids {
			if idOf(key) == id {
				port.Delete(&b, l)
			}
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return errors.Join(d.node.Do(&b)...)
}

func idOf(key string) model.ID {
	element, _, _ := strings.Cut(key, ":")
	network, name, _ := strings.Cut(element, "/")
	return model.ID{Network: network, Element: name}
}

func TestTapsConform(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread's network namespace ends with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	dirs := instance.NewDirs("controltest").Node("n1")
	controltest.Conforms(t, controltest.Subject{
		Restart: func() control.Driver {
			node, err := linux.DialRtnetlink()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { node.Close() })
			return &Taps{dirs: dirs, node: node}
		},
		Job: func(name string) control.Job {
			return control.Job{ID: model.ID{Network: "lab", Element: name},
				Element: model.NodeElement{PlacedElement: model.PlacedElement{Name: name,
					Kind: model.Host, Interfaces: []model.PlacedInterface{{
						ResolvedInterface: model.ResolvedInterface{Name: "a", MTU: 1500}},
						{ResolvedInterface: model.ResolvedInterface{Name: "b", MTU: 9000}}}}}}
		},
		Spoil: func(j *control.Job) { j.Element.Interfaces[1].MTU = 7 },
	})
}
