package software

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// awaitLine waits until the element's processes have printed a line with the words.
func (r *running) awaitLine(t *testing.T, words string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-r.output:
			if !ok {
				t.Fatalf("%s ended without a line with %q", r.el.Name, words)
			}
			if strings.Contains(line, words) {
				return
			}
		case <-timeout:
			t.Fatalf("%s printed no line with %q", r.el.Name, words)
		}
	}
}

// TestKilledDaemonIsStartedAgainWithWhatWasWritten kills ospfd after something was typed into vtysh and written.
func TestKilledDaemonIsStartedAgainWithWhatWasWritten(t *testing.T) {
	rs := pair(t, model.SoftwareFRR, model.SoftwareFRR, func(int) model.Routing {
		return model.Routing{OSPF: &model.OSPF{}}
	}, nil)
	r := rs[0]
	before := r.awaitReady(t)
	r.awaitRoute(t, rs[1].el.Loopback[0], protoOSPF, 2)
	if out, err := r.exec("vtysh", "-c", "configure terminal", "-c", "interface h1", "-c", "ip ospf cost 77", "-c", "end",
		"-c", "write"); err != nil || !strings.Contains(out, "[OK]") {
		t.Fatalf("writing the configuration: %v\n%s", err, out)
	}
	if out, err := r.exec("cat", "/etc/frr/frr.conf"); err != nil || !strings.Contains(out, "ip ospf cost 77") {
		t.Errorf("what was written is not in frr.conf: %v\n%s", err, out)
	}
	if out, err := r.exec("sh", "-c", "kill -KILL $(cat /run/frr/ospfd.pid)"); err != nil {
		t.Fatalf("killing ospfd: %v\n%s", err, out)
	}
	r.awaitLine(t, "ospfd ended")
	after := r.awaitReady(t)
	if was, is := before["ospfd"], after["ospfd"]; is.PID == was.PID || is.Config == was.Config || is.Starts != 2 {
		t.Errorf("ospfd is noted as %+v after %+v: want another process, with what was written", is, was)
	}
	if before["zebra"] != after["zebra"] {
		t.Errorf("zebra is noted as %+v after %+v, and nobody has touched it", after["zebra"], before["zebra"])
	}
	r.awaitRoute(t, rs[1].el.Loopback[0], protoOSPF, 2)
	if out, err := r.exec("vtysh", "-c", "show running-config ospfd"); err != nil || !strings.Contains(out, "ip ospf cost 77") {
		t.Errorf("ospfd came back without what was written: %v\n%s", err, out)
	}
}

// TestRoutesOfAKilledZebraGo leaves a route that nobody announces any more for the next zebra to find.
func TestRoutesOfAKilledZebraGo(t *testing.T) {
	stays, goes := prefix("198.51.100.0/24"), prefix("203.0.113.0/24")
	rs := pair(t, model.SoftwareFRR, model.SoftwareFRR, func(int) model.Routing { return model.Routing{} }, func(net *model.Network) {
		net.Elements[0].Routes = []model.Route{{To: stays, Type: model.RouteBlackhole}}
	})
	r := rs[0]
	r.awaitReady(t)
	r.awaitRoute(t, stays, protoStatic, 1)
	updates := make(chan netlink.RouteUpdate, 1000)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &r.ns}); err != nil {
		t.Fatal(err)
	}
	// Both in one breath: a zebra that lived would have something to say about a route that is not its own.
	if out, err := r.exec("sh", "-c", "kill -KILL $(cat /run/frr/zebra.pid); ip route add 203.0.113.0/24 dev h1 proto bgp"); err != nil {
		t.Fatalf("leaving a route of a killed zebra: %v\n%s", err, out)
	}
	for timeout := time.After(patience); ; {
		select {
		case u, ok := <-updates:
			if !ok {
				t.Fatal("the kernel's notifications ended")
			}
			if u.Type == unix.RTM_DELROUTE && u.Dst != nil && u.Dst.String() == goes.String() {
				r.awaitRoute(t, stays, protoStatic, 1)
				return
			}
		case <-timeout:
			t.Fatalf("the route that the killed zebra left stays:\n%s", r.show("ip route; vtysh -c 'show ip route'"))
		}
	}
}

// Only a configuration that somebody wrote is checked before anything runs on it: ours is right.
func TestWhatIsChecked(t *testing.T) {
	for software, name := range map[model.Software]string{model.SoftwareFRR: "frr.conf", model.SoftwareBIRD: "bird.conf"} {
		for _, config := range []map[string]string{nil, {name: "garbage {{{"}} {
			plan, err := Render("lab", model.Element{Name: "r1", Kind: model.Router, Software: software, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			if checked := len(plan.Check) > 0; checked != (config != nil) {
				t.Errorf("%s with configuration %q: checked is %v", software, config, checked)
			}
		}
	}
}
