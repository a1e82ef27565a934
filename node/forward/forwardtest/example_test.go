package forwardtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
)

// A plane of a few lines, which passes the checks.

// Opener is a forwarding plane that hands all packets of an element to taps, one an interface: whoever opens them
// forwards.
type Opener struct{}

func (p *Opener) Offers(context.Context) model.Offers {
	return model.OfferOf("forwarding: opener", nil, model.Router)
}

func (p *Opener) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	results := make([]forward.Prepared, len(jobs))
	for i, job := range jobs {
		devices, err := p.taps(job)
		if err == nil {
			err = job.Place.Join(devices)
		}
		if results[i] = (forward.Prepared{ID: job.ID, Err: err}); err == nil {
			results[i].Steering = &forward.Steering{Devices: devices}
		}
	}
	return results
}

// alias says whose a tap is: the element, and the interface.
const alias = "opener "

// taps finds the element's taps, makes those that are missing, and returns their indices by interface.
func (p *Opener) taps(job forward.Job) (map[string]int, error) {
	there, err := tapsOf(job.ID)
	if err != nil {
		return nil, err
	}
	devices := map[string]int{}
	for i, port := range job.Devices {
		if port.Index == 0 {
			return nil, fmt.Errorf("interface %s of %s has no port", port.Interface, job.ID)
		}
		if index, ok := there[port.Interface]; ok {
			devices[port.Interface] = index
			continue
		}
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("opener%d.%d", port.Index, i)},
			Mode: netlink.TUNTAP_MODE_TAP}
		err := netlink.LinkAdd(tap)
		if err == nil {
			err = netlink.LinkSetAlias(tap, alias+job.ID.String()+" "+port.Interface)
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s of %s: make tap %s: %w", port.Interface, job.ID, tap.Name, err)
		}
		devices[port.Interface] = tap.Index
	}
	return devices, nil
}

func tapsOf(id model.ID) (map[string]int, error) {
	links, err := linux.Whole(netlink.LinkList)
	found := map[string]int{}
	for _, l := range links {
		if ifc, ok := strings.CutPrefix(l.Attrs().Alias, alias+id.String()+" "); ok {
			found[ifc] = l.Attrs().Index
		}
	}
	return found, err
}

func (p *Opener) List(context.Context) (ids []model.ID, err error) {
	links, err := linux.Whole(netlink.LinkList)
	seen := map[model.ID]bool{}
	for _, l := range links {
		if rest, ok := strings.CutPrefix(l.Attrs().Alias, alias); ok {
			element, _, _ := strings.Cut(rest, " ")
			network, name, _ := strings.Cut(element, "/")
			if id := (model.ID{Network: network, Element: name}); !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids, err
}

func (p *Opener) Retire(_ context.Context, ids []model.ID) error {
	var failed []error
	for _, id := range ids {
		there, err := tapsOf(id)
		failed = append(failed, err)
		for _, index := range there {
			failed = append(failed, netlink.LinkDel(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: index}}))
		}
	}
	return errors.Join(failed...)
}

type nowhere struct{ forward.Place }

func (nowhere) Join(map[string]int) error { return nil }

func TestOpenerConforms(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread's network namespace ends with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	job := func(name string, index int) forward.Job {
		interfaces := []model.PlacedInterface{{
			ResolvedInterface: model.ResolvedInterface{Name: "a"}}, {
			ResolvedInterface: model.ResolvedInterface{Name: "b"}}}
		return forward.Job{ID: model.ID{Network: "lab", Element: name},
			Element: model.NodeElement{PlacedElement: model.PlacedElement{Name: name, Kind: model.Router,
				Interfaces: interfaces}},
			Devices: []control.Device{{Interface: "a", Index: index}, {Interface: "b", Index: index + 1}}}
	}
	forwardtest.Conforms(t, forwardtest.Subject{
		Restart: func() forward.Plane { return &Opener{} },
		Place:   func(model.ID) forward.Place { return nowhere{} },
		Jobs:    [2]forward.Job{job("first", 11), job("second", 21)},
		Spoil:   func(j *forward.Job) { j.Devices = []control.Device{{Interface: "a"}} },
	})
}
