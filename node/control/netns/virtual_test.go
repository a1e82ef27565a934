package netns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestVirtualRouters: the device of a virtual router is made without a carrier, put right without touching the carrier
// that vrrpd gave it, and gone when it is not wanted any more.
func TestVirtualRouters(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 4, 3)
	r1 := job(jobs, "r1")
	v := model.VirtualRouter{ID: 10, Address: netip.MustParseAddr("10.4.0.254"), Priority: 100,
		Interval: model.UsualVRRPInterval, Device: "vrrp10-r0"}
	r1.Element.Interfaces[0].VRRP = []model.VirtualRouter{v}
	id, parent := r1.ID, r1.Element.Interfaces[0].Name
	n.apply(t, jobs)
	n.settled(t, jobs)
	device := func() string {
		return n.in(t, id, "ip -o -d address show dev vrrp10-r0; ip -o -d link show dev vrrp10-r0")
	}
	check := func(after string, words ...string) {
		t.Helper()
		// The carrier of the interface below may have come after the device's was taken.
		for is := device(); strings.Contains(is, "protodown on") && strings.Contains(is, "LOWER_UP"); is = device() {
			n.auditAll(t, id)
			n.apply(t, jobs)
		}
		is := device()
		for _, w := range append([]string{"00:00:5e:00:01:0a", "vrrp10-r0@" + parent, "macvlan mode bridge",
			"inet 10.4.0.254/32", "addrgenmode none", ",UP"}, words...) {
			if !strings.Contains(is, w) {
				t.Errorf("after %s there is no %q in\n%s", after, w, is)
			}
		}
		n.auditAll(t)
	}
	check("apply", "protodown on", "NO-CARRIER")
	for _, c := range []struct {
		what, command string
		words         []string
		events        []string
	}{
		{"its address was taken", "ip address flush dev vrrp10-r0", nil, []string{"r1: address 10.4.0.254/32 added to vrrp10-r0"}},
		{"it was taken away", "ip link del vrrp10-r0", []string{"protodown on"}, []string{"r1: device vrrp10-r0 made"}},
		{"its MAC address was changed", "ip link set vrrp10-r0 address 02:00:00:00:00:01", []string{"protodown on"},
			[]string{"r1: device vrrp10-r0 removed", "r1: device vrrp10-r0 made"}},
		{"somebody left it unfinished", "ip link set vrrp10-r0 protodown off; ip link set vrrp10-r0 alias ''",
			[]string{"protodown on"}, nil},
	} {
		n.in(t, id, c.command)
		n.auditAll(t, id)
		if got := changes(n.apply(t, jobs)); !slices.Equal(got, c.events) {
			t.Errorf("after %s apply said %q, want %q", c.what, got, c.events)
		}
		check(c.what, c.words...)
	}

	// What vrrpd does is its own business.
	n.in(t, id, "ip link set vrrp10-r0 protodown off")
	n.auditAll(t)
	n.apply(t, jobs)
	if is := device(); strings.Contains(is, "protodown on") || !strings.Contains(is, "LOWER_UP") {
		t.Errorf("the carrier that it was given is gone:\n%s", is)
	}
	n.in(t, id, "ip link set vrrp10-r0 protodown on; ip link set vrrp10-r0 down; "+
		"ip link set vrrp10-r0 up") // which gives it a carrier
	if is := device(); !strings.Contains(is, "LOWER_UP") {
		t.Logf("this kernel keeps it without a carrier:\n%s", is)
	} else {
		n.auditAll(t, id)
	}
	n.apply(t, jobs)
	check("its carrier came by itself", "protodown on", "NO-CARRIER")
	n.in(t, id, "ip link set vrrp10-r0 protodown off")
	n.restart(t)
	n.apply(t, jobs)
	if is := device(); strings.Contains(is, "protodown on") {
		t.Errorf("after an agent's end the carrier is gone:\n%s", is)
	}

	r1.Element.Stopped = true
	n.apply(t, jobs)
	if is := device(); strings.Contains(is, ",UP") {
		t.Errorf("it is up in an element that is stopped:\n%s", is)
	}
	r1.Element.Stopped = false
	n.apply(t, jobs)
	n.settled(t, jobs)
	check("start")
	r1.Element.Interfaces = slices.Clone(r1.Element.Interfaces)
	r1.Element.Interfaces[0].VRRP = nil
	n.apply(t, jobs)
	if is := n.in(t, id, "ip -o link"); strings.Contains(is, "vrrp") {
		t.Errorf("it stays:\n%s", is)
	}
	n.auditAll(t)
}
