package software

import (
	"fmt"
	"regexp"
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
	if out, err := r.exec("vtysh", "-c", "configure terminal", "-c", "interface h1", "-c",
		"ip ospf cost 77", "-c", "end",
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
	if out, err := r.exec("vtysh", "-c", "show running-config ospfd"); err != nil ||
		!strings.Contains(out, "ip ospf cost 77") {
		t.Errorf("ospfd came back without what was written: %v\n%s", err, out)
	}
}

// TestRoutesOfAKilledZebraGo leaves a route that nobody announces any more for the next zebra to find.
func TestRoutesOfAKilledZebraGo(t *testing.T) {
	stays, goes := prefix("198.51.100.0/24"), prefix("203.0.113.0/24")
	rs := pair(t, model.SoftwareFRR, model.SoftwareFRR, func(int) model.Routing { return model.Routing{} },
		func(net *model.Resolved) {
			net.Elements[0].Routes = []model.Route{{To: stays, Type: model.RouteBlackhole}}
		})
	r := rs[0]
	r.awaitReady(t)
	r.awaitRoute(t, stays, protoStatic, 1)
	updates := make(chan netlink.RouteUpdate, 1000)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.RouteSubscribeWithOptions(updates, done,
		netlink.RouteSubscribeOptions{Namespace: &r.ns}); err != nil {
		t.Fatal(err)
	}
	// A zebra that lived would have something to say about a route that is not its own; so it is stopped first. The
	// next one, which comes at once, must find the route there.
	if out, err := r.exec("sh", "-c", "kill -STOP $(cat /run/frr/zebra.pid) && "+
		"ip route add 203.0.113.0/24 dev h1 proto bgp && kill -KILL $(cat /run/frr/zebra.pid)"); err != nil {
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

// A BIRD that is killed in its first seconds, and begins anew while its neighbor still holds what it announced,
// announces that neighbor in the end. BIRD itself may forget that, which depends on checksums and on the moment: so
// there are several pairs.
func TestRouterThatBeginsTwiceAnnouncesItsNeighbor(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rs := joined(t, model.SoftwareBIRD, model.SoftwareBIRD, func(int) model.Routing {
				return model.Routing{OSPF: &model.OSPF{}}
			}, nil)
			for _, r := range rs {
				r.change = func(plan *Plan) {
					plan.Files[0].Content = strings.ReplaceAll(plan.Files[0].Content, "retransmit 2;", "retransmit 5;")
				}
			}
			rs[1].configure(t)
			r, forLong := rs[0], rs[0].change
			r.change = func(plan *Plan) {
				forLong(plan)
				plan.Command = []string{"sh", "-c", "while :; do " + strings.Join(plan.Command, " ") + "; done"}
			}
			r.configure(t)
			rs[1].awaitSaid(t, "10.255.0.1 *10.255.0.1", "birdc", "show", "ospf", "lsadb")
			stub := func(cost int) string {
				return fmt.Sprintf("sed -i '/^[[:space:]]*area /a stubnet 10.77.%d.0/24 { cost %d; };' %s; ",
					cost, cost, birdConf)
			}
			if out, err := r.exec("sh", "-c", stub(10+20*i)+"pkill -KILL -x bird; "+
				"until birdc show status >/dev/null 2>&1; do sleep 0.05; done; sleep 0.3; "+stub(9)+superviseProgram.Path+
				" bird reload"); err != nil {
				t.Fatalf("ending BIRD, and having the next one read something new: %v\n%s", err, out)
			}
			r.awaitSaid(t, "router 10.255.0.2 metric", "sh", "-c",
				"birdc show ospf state all | sed -n '/^.router 10.255.0.1/,/^$/p'")
			rs[1].awaitRoute(t, r.el.Loopback[0], protoBIRD, 2)
		})
	}
}

// awaitSaid waits until a command in the element prints what the pattern fits.
func (r *running) awaitSaid(t *testing.T, pattern string, command ...string) {
	t.Helper()
	is := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, _ := r.exec(command...)
		if is.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v never prints %q, but\n%s", r.el.Name, command, pattern, out)
		}
	}
}

// Only a configuration that somebody wrote is checked before anything runs on it: ours is right.
func TestWhatIsChecked(t *testing.T) {
	for software, name := range map[model.Software]string{model.SoftwareFRR: "frr.conf",
		model.SoftwareBIRD: "bird.conf"} {
		for _, config := range []map[string]string{nil, {name: "garbage {{{"}} {
			plan, err := Render("lab", model.ResolvedElement{Name: "r1", Kind: model.Router,
				Software: software, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			if checked := len(plan.Check) > 0; checked != (config != nil) {
				t.Errorf("%s with configuration %q: checked is %v", software, config, checked)
			}
		}
	}
}
