package fast_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// TestInspect asks what the data path knows, and what it would do, of everything that it can say.
func TestInspect(t *testing.T) {
	l := newLab(t)
	r1 := id("r1")
	if _, err := l.plane.FIB(r1, model.FIBRequest{}); !errors.Is(err, forward.ErrNotForwarded) {
		t.Errorf("the tables of a router that its own stack forwards for: %v", err)
	}
	l.ping() // the neighbours are known then
	l.in("r1", "ip route add blackhole 10.7.0.0/16; ip route add unreachable 10.8.0.0/16; ip route add 10.9.0.0/16 "+
		"via 10.0.1.2 mtu 1400")
	l.prepare("r1")
	l.ping()
	mac := strings.Fields(l.in("r2", "ip -br link show r1"))[2]
	all, err := l.plane.FIB(r1, model.FIBRequest{Family: model.IPv4, Prefix: netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Tables) != 2 || all.Tables[0].Routes == 0 || all.Matching != len(all.Entries) {
		t.Errorf("tables %+v, %d entries of %d", all.Tables, len(all.Entries), all.Matching)
	}
	i := slices.IndexFunc(all.Entries, func(e model.FIBEntry) bool { return e.Prefix.String() == "10.0.2.0/24" })
	if want := (model.FIBWay{Kind: "forward", Interface: "r2", MAC: mac, MTU: 1500}); i < 0 ||
		len(all.Entries[i].Ways) != 1 {
		t.Errorf("entries %+v", all.Entries)
	} else if got := all.Entries[i].Ways[0]; got.Source == "" || got.MAC != want.MAC || got.Interface != want.Interface || got.Kind != want.Kind || got.MTU != want.MTU {
		t.Errorf("the way is %+v, want %+v", got, want)
	}
	if few, err := l.plane.FIB(r1, model.FIBRequest{Limit: 2}); err != nil ||
		len(few.Entries) != 2 || few.Matching < 10 {
		t.Errorf("two entries: %+v, %v", few, err)
	}
	for _, c := range []struct {
		destination string
		q           model.TraceRequest
		verdict     model.Verdict
		reason, out string
	}{
		{"10.0.2.2", model.TraceRequest{}, model.Forwarded, "", "r2"},
		{"2001:db8:2::2", model.TraceRequest{In: "h1"}, model.Forwarded, "", "r2"},
		{"10.0.2.2", model.TraceRequest{In: "r2"}, model.ToGuest, "leaves where it came from", "r2"},
		{"10.0.2.2", model.TraceRequest{TTL: 1}, model.ToGuest, "TTL", "r2"},
		{"10.9.0.1", model.TraceRequest{Bytes: 1400}, model.Forwarded, "", "r2"},
		{"10.9.0.1", model.TraceRequest{Bytes: 1401}, model.ToGuest, "larger than the MTU", "r2"},
		{"10.0.0.1", model.TraceRequest{TTL: 1}, model.ToGuest, "to the router itself", ""},
		{"10.0.0.77", model.TraceRequest{}, model.ToGuest, "next hop not resolved", ""},
		{"10.7.0.1", model.TraceRequest{}, model.Blackhole, "its route says so (blackhole)", ""},
		{"10.8.0.1", model.TraceRequest{}, model.ToGuest, "unreachable or prohibited", ""},
		{"172.16.0.1", model.TraceRequest{}, model.ToGuest, "no route", ""},
		{"224.0.0.5", model.TraceRequest{}, model.ToGuest, "address that is not forwarded", ""},
		{"fe80::1", model.TraceRequest{}, model.ToGuest, "address that is not forwarded", ""},
		{"10.0.2.2", model.TraceRequest{Source: netip.MustParseAddr("127.0.0.1")}, model.ToGuest,
			"address that is not forwarded", ""},
	} {
		c.q.Destination = netip.MustParseAddr(c.destination)
		got, err := l.trace("r1", c.q)
		out := ""
		if got.Way != nil {
			out = got.Way.Interface
		}
		if err != nil || got.Verdict != c.verdict || got.Reason != c.reason || out != c.out {
			t.Errorf("to %s, %+v: %+v by %q, %v", c.destination, c.q, got, out, err)
		}
	}
	if _, err := l.trace("r1", model.TraceRequest{Destination: netip.MustParseAddr("10.0.2.2"),
		Source: netip.MustParseAddr("::1")}); err == nil {
		t.Error("a packet of two families was traced")
	}
	l.in("r1", "sysctl -qw net.ipv4.conf.h1.forwarding=0")
	l.await("the interface's refusal", func() bool {
		got, err := l.trace("r1", model.TraceRequest{Destination: netip.MustParseAddr("10.0.2.2"), In: "h1"})
		return err == nil && got.Reason == "interface does not forward"
	})
	l.in("r1", "sysctl -qw net.ipv4.conf.h1.forwarding=1; ip link add br0 type bridge; ip link set dev h1 master br0")
	from := func(reason string) {
		t.Helper()
		for _, to := range []string{"10.0.2.2", "2001:db8:2::2"} {
			l.await("packets to "+to+" from h1: "+reason, func() bool {
				got, err := l.trace("r1", model.TraceRequest{Destination: netip.MustParseAddr(to), In: "h1"})
				return err == nil && got.Reason == reason
			})
		}
	}
	from("interface does not forward") // what comes in is the bridge's
	l.in("r1", "ip link set dev h1 nomaster")
	from("")
	const filter = "left to the guest by the tables: its packet filter (nftables) has chains that forwarded packets " +
		"pass"
	reason := func(to string) string {
		got, err := l.trace("r1", model.TraceRequest{Destination: netip.MustParseAddr(to)})
		if err != nil {
			t.Error(err)
		}
		return got.Reason
	}
	l.in("r1", "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; add chain inet t "+
		"plain; add table ip6 t; add chain ip6 t f { type filter hook forward priority 0; }'")
	l.await("a filter of forwarded IPv6 packets", func() bool { return reason("2001:db8:2::2") == filter })
	if is := reason("10.0.2.2"); is != "" {
		t.Errorf("with a filter of IPv6 and one of what is for the router itself, an IPv4 packet is: %s", is)
	}
	l.in("r1", "nft 'delete table ip6 t; add chain inet t p { type nat hook postrouting priority 100; }'")
	l.await("network address translation", func() bool {
		return reason("10.0.2.2") == filter &&
			reason("2001:db8:2::2") == filter
	})
	l.in("r1", "nft flush ruleset")
	l.await("no filter", func() bool { return reason("10.0.2.2") == "" && reason("2001:db8:2::2") == "" })
	l.in("r1", "ip rule add from 10.77.0.0/16 lookup 77")
	l.await("policy routing", func() bool {
		got, err := l.trace("r1", model.TraceRequest{Destination: netip.MustParseAddr("10.0.2.2")})
		return err == nil && got.Reason == "left to the guest by the tables: there are policy routing rules"
	})
	all, err = l.plane.FIB(r1, model.FIBRequest{Family: model.IPv4})
	if err != nil || all.Matching != 1 || len(all.Entries) != 1 || all.Entries[0].Prefix.String() != "0.0.0.0/0" ||
		all.Entries[0].Ways[0].Kind != "punt" ||
		all.Punted[model.IPv4] != "there are policy routing rules" || all.Punted[model.IPv6] != "" {
		t.Errorf("tables with policy routing: %+v, %v", all, err)
	}
}
