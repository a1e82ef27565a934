package fast_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

const forwardOther model.Forwarding = "other"

// otherPlane is another plane that steers. It has no tables: a kernel in a namespace of its own, with the router's
// addresses, gets all of the router's packets by devices, as a virtual switch would.
type otherPlane struct {
	*lab
	has     map[model.ID]map[string]int
	retired []model.ID
}

func (*otherPlane) Offers(context.Context) model.Offers { return nil }

func (p *otherPlane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	all := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		all[i].ID = jobs[i].ID
		if p.has[jobs[i].ID] == nil {
			if all[i].Err = p.make(&jobs[i]); all[i].Err != nil {
				continue
			}
		}
		all[i].Steering = &forward.Steering{Devices: p.has[jobs[i].ID]}
	}
	return all
}

func (p *otherPlane) make(j *forward.Job) error {
	path := p.dirs.Companion(j.ID, forwardOther)
	if _, err := linux.MountNamespace(path); err != nil {
		return err
	}
	inside := "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
	outside := "set -e"
	for _, ifc := range j.Element.Interfaces {
		outside += fmt.Sprintf("; ip link add %[1]s type veth peer name %[2]s address %[3]s netns %[4]s",
			device(j.ID, ifc.Name), ifc.Name, ifc.MAC, path)
		for _, a := range ifc.Addresses {
			inside += fmt.Sprintf("; ip addr add %s dev %s%s", a, ifc.Name,
				map[bool]string{true: " nodad"}[a.Addr().Is6()])
		}
		inside += "; ip link set up " + ifc.Name
	}
	if out, err := exec.Command("sh", "-c", outside).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	ends := map[string]int{}
	for _, ifc := range j.Element.Interfaces {
		d, err := net.InterfaceByName(device(j.ID, ifc.Name))
		if err != nil {
			return err
		}
		ends[ifc.Name] = d.Index
	}
	if err := p.fabric.Place(j.ID).Join(ends); err != nil {
		return err
	}
	for _, ifc := range j.Element.Interfaces {
		if out, err := exec.Command("ip", "link", "set", "up", device(j.ID, ifc.Name)).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if out, err := exec.Command("nsenter", "--net="+path, "sh", "-c", inside+"; "+
		p.routesOf(j.ID.Element)).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	p.has[j.ID] = ends
	return nil
}

func device(id model.ID, ifc string) string { return "other-" + id.Element + "-" + ifc }

func (p *otherPlane) List(context.Context) (ids []model.ID, err error) {
	for id := range p.has {
		ids = append(ids, id)
	}
	return ids, nil
}

func (p *otherPlane) Retire(_ context.Context, ids []model.ID) error {
	p.retired = append(p.retired, ids...)
	time.Sleep(100 * time.Millisecond) // for what was handed to it just now
	for _, id := range ids {
		for ifc := range p.has[id] {
			exec.Command("ip", "link", "del", device(id, ifc)).Run() //nolint:errcheck // it went with its peer
		}
		delete(p.has, id)
	}
	return nil
}

// TestTwoPlanesSteer: what another plane has steered stays so, pass for pass, while this package's planes do what they
// do; and an element changes between them, both ways, without loss.
func TestTwoPlanesSteer(t *testing.T) {
	l := newLab(t)
	other := &otherPlane{lab: l, has: map[model.ID]map[string]int{}}
	planes := l.planes()
	planes[forwardOther] = other
	l.ping()
	end := l.flood("10.0.2.2")
	r2 := forward.Steering{Owner: forwardOther}
	for _, way := range []model.Forwarding{model.ForwardXDP, model.ForwardRouter, model.ForwardXDP, model.ForwardBridge,
		model.ForwardGuest} {
		for range 2 {
			l.pass(planes, map[string]model.Forwarding{"r1": way, "r2": forwardOther})
			if by := l.fabric.Steered()[id("r1")].Owner; by != way && way != model.ForwardGuest {
				t.Errorf("r1 is steered by %s, not %s", by, way)
			}
		}
		r2.Devices = other.has[id("r2")]
		if s := l.fabric.Steered()[id("r2")]; !s.Equal(r2) || len(s.Devices) != 2 || len(other.retired) > 0 {
			t.Fatalf("%s: r2 is steered %+v, not %+v; retired %v", way, s, r2, other.retired)
		}
		for name, plane := range planes {
			if ids, err := plane.List(ctx); name != forwardOther && (err != nil || len(ids) > 1 || len(ids) == 1 &&
				ids[0] != id("r1")) {
				t.Fatalf("%s: %s lists %v: %v", way, name, ids, err)
			}
		}
		before, guest := l.forwarded("r2"), l.byGuest("r2")
		l.ping()
		// Whoever asks the router is answered from there, too, and by nobody else.
		l.in("h2", "ping -c5 -i0.002 -W10 10.0.2.1; ping -c5 -i0.002 -W10 2001:db8:2::1; ip neigh change 10.0.2.1 "+
			"dev r2 nud probe")
		l.await("r2 to answer ARP",
			func() bool { return strings.Contains(l.in("h2", "ip neigh show 10.0.2.1"), "REACHABLE") })
		if n := l.forwarded("r2"); n.Packets-before.Packets < 90 ||
			n.Packets-before.Packets != n.Companion-before.Companion || len(n.Punted) > 0 || l.byGuest("r2") != guest {
			t.Errorf("%s: of 90 packets and more r2's other plane got %d, its own stack %d: %+v", way,
				n.Companion-before.Companion, l.byGuest("r2")-guest, n)
		}
	}
	for _, way := range []model.Forwarding{forwardOther, model.ForwardXDP, forwardOther, model.ForwardRouter,
		forwardOther, model.ForwardGuest} {
		l.pass(planes, map[string]model.Forwarding{"r1": way, "r2": forwardOther})
		if by := l.fabric.Steered()[id("r1")].Owner; by != way && way != model.ForwardGuest {
			t.Errorf("r1 is steered by %s, not %s", by, way)
		}
		l.ping()
	}
	if sent, received := end(); sent != received || sent < 500 {
		t.Errorf("of %d packets %d came back", sent, received)
	}
	// An agent that dies leaves it as it is, and the next one learns of it.
	l.end()
	l.ping()
	l.open()
	if s := l.fabric.Steered()[id("r2")]; s.Tables != 0 || len(s.Devices) != 2 {
		t.Errorf("after a restart r2 is steered %+v", s)
	}
	l.apply()
	before := l.forwarded("r2").Companion
	l.ping()
	if n := l.forwarded("r2").Companion - before; n < 80 {
		t.Errorf("after a restart r2's other plane got %d packets of 80", n)
	}
	if !strings.Contains(l.inCompanion("r2", forwardOther, "ip -o link"), "h2@") {
		t.Error("the other plane's devices are gone")
	}
	l.steering[id("r2")] = forward.Steering{}
	l.apply()
	l.ping()
	if s, known := l.fabric.Steered()[id("r2")]; known {
		t.Errorf("r2 is steered %+v after it was given to its own stack", s)
	}
	for r := range other.has {
		if err := other.Retire(ctx, []model.ID{r}); err != nil {
			t.Error(err)
		}
	}
}
