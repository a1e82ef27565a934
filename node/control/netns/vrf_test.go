package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestVRFs: interfaces are in the VRFs that are wanted, with routes of their own and nothing else, whatever somebody does
// to that; they come and go while the router is there, and what was made for them goes with them.
func TestVRFs(t *testing.T) {
	if err := vrfDevices(); err != nil {
		t.Skip(err)
	}
	n := newNode(t)
	jobs := lineOf("lab", 4, 3)
	r1 := job(jobs, "r1")
	id := r1.ID
	n.apply(t, jobs)
	n.settled(t, jobs)
	tables := func() string {
		return n.in(t, id, "{ ip rule; ip -6 rule; ip route; ip -6 route | grep -v fe80; } | sort")
	}
	before := tables()
	red := model.VRF{Interfaces: []string{"r0"}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.0")},
		Routes: []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"), Type: model.RouteBlackhole},
			{To: netip.MustParsePrefix("2001:db8::/32"), Interface: "r0"}}}
	set := func(vrfs map[string]model.VRF, of map[string]string) {
		el := &r1.Element
		el.VRFs, el.Interfaces = vrfs, slices.Clone(el.Interfaces)
		for i := range el.Interfaces {
			el.Interfaces[i].VRF = of[el.Interfaces[i].Name]
		}
	}
	state := func() string {
		var all []string
		for _, v := range []string{"red", "blue"} {
			for _, what := range []string{"-o link show master", "-4 route show vrf", "-6 route show vrf"} {
				all = append(all, fmt.Sprintf("ip %s %s 2>/dev/null | sed 's/^/%s: /'", what, v, v))
			}
		}
		return n.in(t, id, strings.Join(append(all, "ip rule; ip -6 rule; ip -o link"), "; "))
	}
	check := func(after string, words, not []string) {
		t.Helper()
		is := ""
		all := func() bool {
			is = strings.Join(strings.Fields(state()), " ")
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(is, w) })
		}
		for range 200 { // the kernel adds routes of IPv6 a while after the addresses
			if all() {
				break
			}
		}
		for _, w := range words {
			if !strings.Contains(is, w) {
				t.Errorf("after %s there is no %q in\n%s", after, w, state())
			}
		}
		for _, w := range not {
			if strings.Contains(is, w) {
				t.Errorf("after %s there is %q in\n%s", after, w, state())
			}
		}
		n.auditAll(t)
		if got := changes(n.apply(t, jobs)); len(got) > 0 {
			t.Errorf("after %s another apply says %q", after, got)
		}
	}
	inRed := []string{"red: default via 10.0.0.0 dev r0", "red: 10.0.0.0/31 dev r0", "red: blackhole 192.0.2.0/24",
		"red: unreachable default", "metric 4278198272", "red: 2001:db8::/32 dev r0", "red: fd00:4::/127 dev r0",
		"1000: from all lookup [l3mdev-table]", "32765: from all lookup local", "r0@"}
	set(map[string]model.VRF{"red": red}, map[string]string{"r0": "red"})
	if got := changes(n.apply(t, jobs)); !slices.Contains(got, "r1: VRF red made") ||
		!slices.Contains(got, "r1: interface r0 put into the VRF red") {
		t.Errorf("apply says %q", got)
	}
	check("a live change", inRed, []string{" 0: from all"})
	if is := n.in(t, id, "ip neigh show dev r0; ip address show dev r0"); strings.Count(is, "PERMANENT")+
		strings.Count(is, "extern_learn")+strings.Count(is, "NOARP") < 2 || !strings.Contains(is, "inet 10.0.0.1/31") {
		t.Logf("neighbours and addresses of r0:\n%s", is)
	}

	for what, command := range map[string]string{
		"it was taken out":        "ip link set r0 nomaster",
		"the VRF was removed":     "ip link del red",
		"its routes were flushed": "ip route flush vrf red proto 112; ip -6 route flush vrf red proto 112",
		"its rules were removed":  "ip rule del pref 1000; ip rule add pref 0 lookup local; ip -6 rule del pref 32765; true",
		"it was taken down":       "ip link set red down",
		"another in its place":    "ip link del red; ip link add red type dummy",
		"another's table":         "ip link del red; ip link add red type vrf table 254",
		"one in nobody's":         "ip link del red; ip link add other type vrf table 1001",
	} {
		n.in(t, id, command)
		n.auditAll(t, id)
		n.apply(t, jobs)
		check(what, inRed, nil)
	}
	n.in(t, id, "ip link del other")

	// What is in no VRF does not know it, and the other way round.
	if is := n.in(t, id, "ip route get 10.0.0.0 2>&1; ip route get vrf red 10.0.2.1 2>&1; true"); !strings.Contains(is,
		"unreachable") {
		t.Errorf("the VRF is not apart:\n%s", is)
	}

	// Two VRFs, of which one takes over the other's interface; after the end of an agent; stopped and started.
	set(map[string]model.VRF{"red": {}, "blue": red}, map[string]string{"r0": "blue", "r2": "red"})
	n.apply(t, jobs)
	inBlue := strings.Split(strings.ReplaceAll(strings.Join(inRed, "\n"), "red:", "blue:"), "\n")
	check("an exchange", append(inBlue, "red: 10.0.2.0/31 dev r2"), []string{"red: 10.0.0.0/31"})
	n.restart(t)
	n.apply(t, jobs)
	check("an agent's end", inBlue, nil)
	r1.Element.Stopped = true
	n.apply(t, jobs)
	if is := n.in(t, id, "ip -o link show blue"); strings.Contains(is, ",UP") {
		t.Errorf("it is up in an element that is stopped:\n%s", is)
	}
	r1.Element.Stopped = false
	n.apply(t, jobs)
	check("start", inBlue, nil)

	// Routes are routing software's, but for those that end the VRFs.
	set(nil, nil)
	n.apply(t, jobs)
	check("the end of VRFs", []string{"0: from all lookup local"}, []string{"l3mdev", "32765:", "blue", "red"})
	after := tables()
	for range 200 {
		if after == before {
			break
		}
		after = tables()
	}
	if after != before {
		t.Errorf("without VRFs there is\n%s\nbefore there was\n%s", after, before)
	}
}
