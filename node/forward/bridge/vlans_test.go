package bridge_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/bridge"
)

// TestVLANs joins hosts and a router with a switch that has VLANs. The links are the node's own bridges, in the fabric's
// place. Frames stay in their VLANs whatever is said, altered, or changed while the switch works.
func TestVLANs(t *testing.T) {
	for _, probe := range []func() error{linux.ProbeBridgeVLANs, linux.ProbeVLANs} {
		if err := probe(); err != nil {
			t.Skip(err)
		}
	}
	ctx := context.Background()
	names := []string{"s", "a", "b", "c", "r"}
	ids := make([]model.ID, len(names))
	for i, name := range names {
		ids[i] = id(name)
	}
	dirs, driver := newNode(t, ids)
	prefix := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	jobs := make([]control.Job, len(names))
	for i, name := range names {
		e := model.PlacedElement{Name: name, Kind: model.Host}
		switch i {
		case 0:
			e.Kind = model.Switch
			for _, far := range names[1:] {
				e.Interfaces = append(e.Interfaces, model.PlacedInterface{ResolvedInterface: model.ResolvedInterface{Name: far}})
			}
		case 4:
			e.Kind = model.Router
			e.Interfaces = []model.PlacedInterface{{ResolvedInterface: model.ResolvedInterface{Name: "s", Tagged: "10,20"},
				VLANs: []model.ResolvedInterface{
					{Name: "s.10", VLAN: 10, On: "s", Addresses: prefix("10.0.10.9/24")},
					{Name: "s.20", VLAN: 20, On: "s", Addresses: prefix("10.0.20.9/24")}}}}
		default:
			vlan := map[string]int{"a": 10, "b": 10, "c": 20}[name]
			e.Interfaces = []model.PlacedInterface{{ResolvedInterface: model.ResolvedInterface{Name: "s", Untagged: vlan,
				Addresses: prefix(fmt.Sprintf("10.0.%d.%d/24", vlan, i))}}}
			e.Gateways = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.%d.9", vlan))}
		}
		jobs[i] = control.Job{ID: ids[i], Index: 1, Element: model.NodeElement{PlacedElement: e}}
	}
	ports := jobs[0].Element.Interfaces
	ports[0].Untagged, ports[1].Untagged, ports[2].Untagged, ports[3].Tagged = 10, 10, 20, "10,20"
	apply := func() (devices []control.Device) {
		t.Helper()
		for _, r := range driver.Apply(ctx, jobs) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			devices = append(devices, r.Devices...)
		}
		return devices
	}
	devices := apply()
	for i := range names[1:] {
		sh(t, fmt.Sprintf("ip link add link%[1]d type bridge mcast_snooping 0 && ip link set link%[1]d up && "+
			"ip link set %[2]s master link%[1]d && ip link set %[3]s master link%[1]d", i, devices[i].Name, devices[4+i].Name))
	}
	ping := func(from int, to string, args ...string) error {
		var out bytes.Buffer
		status, err := driver.Exec(ctx, ids[from], control.Command{Args: append([]string{"ping", "-c1", "-W10", to}, args...)},
			control.Stdio{Out: &out})
		if err == nil && status != 0 {
			err = fmt.Errorf("status %d: %s", status, out.String())
		}
		return err
	}
	plane := bridge.New(dirs, driver.Enter)
	if lacks := plane.Offers(ctx).Lacks(); len(lacks) > 0 {
		t.Fatal(lacks)
	}
	prepare := func() {
		t.Helper()
		if r := plane.Prepare(ctx, []forward.Job{{ID: ids[0], Element: jobs[0].Element}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	inside := func(i int) string { return "nsenter --net=" + dirs.Namespace(ids[i]) + " " }
	table := func() string { return sh(t, inside(0)+"bridge -compressvlans vlan show") }
	right := func(when string) {
		t.Helper()
		for _, c := range []struct {
			from int
			to   string
		}{{1, "10.0.10.2"}, {1, "10.0.10.9"}, {3, "10.0.20.9"}, {1, "10.0.20.3"}} {
			if err := ping(c.from, c.to); err != nil {
				t.Errorf("%s: %s does not reach %s: %v\n%s", when, names[c.from], c.to, err, table())
			}
		}
		// Nobody of another VLAN is heard, though the address is on the same link.
		sh(t, inside(3)+"ip address add 10.0.10.77/24 dev s")
		if err := ping(1, "10.0.10.77", "-W1"); err == nil {
			t.Errorf("%s: a reaches c, which is in another VLAN, straight\n%s", when, table())
		}
		sh(t, inside(3)+"ip address del 10.0.10.77/24 dev s")
	}
	prepare()
	right("at first")
	if out := table(); strings.Contains(out, " 1 ") || strings.Count(out, "PVID Egress Untagged") != 3 {
		t.Errorf("the ports' VLANs are\n%s", out)
	}
	// The largest packets pass with their tags.
	if err := ping(1, "10.0.20.3", "-M", "do", "-s", "1472"); err != nil {
		t.Errorf("a packet of 1,500 bytes: %v", err)
	}

	// What somebody altered is put right, and the bridge stays the one that it is.
	first, _, _ := strings.Cut(sh(t, inside(0)+"ip link show pp-bridge"), ":")
	for _, spoil := range []string{"bridge vlan del dev r vid 20", "bridge vlan add dev c vid 10 pvid untagged",
		"bridge vlan add dev a vid 20-30", "ip link set pp-bridge type bridge vlan_filtering 0",
		"ip link set pp-bridge type bridge vlan_filtering 0 && nsenter --net=" + dirs.Namespace(ids[0]) +
			" ip link set pp-bridge type bridge vlan_default_pvid 7 && nsenter --net=" + dirs.Namespace(ids[0]) +
			" ip link set pp-bridge type bridge vlan_filtering 1"} {
		before := table()
		sh(t, inside(0)+spoil)
		plane = bridge.New(dirs, driver.Enter)
		prepare()
		right("after " + spoil)
		if now := table(); now != before {
			t.Errorf("after %s the ports' VLANs are\n%s\nand were\n%s", spoil, now, before)
		}
	}
	if now, _, _ := strings.Cut(sh(t, inside(0)+"ip link show pp-bridge"), ":"); now != first {
		t.Error("the bridge was made anew")
	}

	// A device of a VLAN that somebody removed, or that has another VLAN, comes back, and one that is wanted no longer goes.
	for _, spoil := range []string{"ip link del s.20",
		"ip link del s.20 && " + inside(4) + "ip link add link s name s.20 type vlan id 21", "ip link set s.20 down"} {
		sh(t, inside(4)+spoil)
		found := false
		for tries := 0; !found && tries < 100; tries++ { // a look takes a few elements
			differ, err := driver.Audit(ctx)
			if err != nil {
				t.Fatal(err)
			}
			found = slices.Contains(differ, ids[4])
		}
		if !found {
			t.Errorf("after %s nothing is found to be wrong", spoil)
		}
		apply()
		right("after " + spoil)
	}
	all := jobs[4].Element.Interfaces[0].VLANs
	with := func(vlans []model.ResolvedInterface) { // the driver has what it was given before
		e := &jobs[4].Element
		e.Interfaces = slices.Clone(e.Interfaces)
		e.Interfaces[0].VLANs = vlans
		apply()
	}
	with(all[:1])
	if out := sh(t, inside(4)+"ip -br link"); strings.Contains(out, "s.20") || !strings.Contains(out, "s.10") {
		t.Errorf("with one VLAN less the router has\n%s", out)
	}
	sh(t, inside(4)+"ip link add link s name mine type vlan id 99")
	with(all)
	if out := sh(t, inside(4)+"ip -br link"); !strings.Contains(out, "mine") {
		t.Errorf("a VLAN that somebody made is gone:\n%s", out)
	}
	right("with both again")

	// A port moves to another VLAN and back; without VLANs all are on one segment.
	join := func(change func(ports []model.PlacedInterface)) {
		jobs[0].Element.Interfaces = slices.Clone(jobs[0].Element.Interfaces)
		change(jobs[0].Element.Interfaces)
		prepare()
	}
	join(func(ports []model.PlacedInterface) { ports[2].Untagged = 10 })
	sh(t, inside(3)+"ip address add 10.0.10.77/24 dev s")
	if err := ping(1, "10.0.10.77"); err != nil {
		t.Errorf("in the VLAN of a, c is not reached: %v\n%s", err, table())
	}
	sh(t, inside(3)+"ip address del 10.0.10.77/24 dev s")
	join(func(ports []model.PlacedInterface) { ports[2].Untagged = 20 })
	right("moved back")
	join(func(ports []model.PlacedInterface) {
		for i := range ports {
			ports[i].Untagged, ports[i].Tagged = 0, ""
		}
	})
	sh(t, inside(3)+"ip address add 10.0.10.77/24 dev s")
	if err := ping(1, "10.0.10.77"); err != nil {
		t.Errorf("without VLANs c is not reached: %v\n%s", err, table())
	}
}
