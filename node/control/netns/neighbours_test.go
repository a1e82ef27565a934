package netns

import (
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// neighbour is what `ip` tells of an element's neighbour: its MAC address, and whether it stays in a full table.
func (n *testNode) neighbour(t testing.TB, id model.ID, address string) (mac string, stays bool) {
	t.Helper()
	f := strings.Fields(n.in(t, id, "ip neighbour show nud all to "+address))
	if i := slices.Index(f, "lladdr"); i >= 0 && i+1 < len(f) {
		mac = f[i+1]
	}
	return mac, slices.Contains(f, "extern_learn")
}

func TestNeighboursAreEntered(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 3, 3)
	n.apply(t, jobs)
	id := job(jobs, "r1").ID
	const to4, to6, mac = "10.0.2.1", "fd00:3:0:1::1", "02:00:03:00:01:01"
	want := func(after, mac4 string) {
		t.Helper()
		for address, mac := range map[string]string{to4: mac4, to6: mac} {
			if got, stays := n.neighbour(t, id, address); got != mac || !stays {
				t.Errorf("after %s the neighbour %s has MAC address %q, stays: %t; want %s", after,
					address, got, stays, mac)
			}
		}
	}
	want("apply", mac)
	n.settled(t, jobs)
	n.auditAll(t)
	entered := []string{"r1: neighbours of r2 entered"}
	for _, c := range []struct {
		what, command, mac string
		events             []string
	}{
		{"a flush", "ip neighbour flush all", mac, []string{"r1: neighbours of r0 entered", entered[0]}},
		{"an entry as ARP makes them", "ip neighbour del " + to4 + " dev r2; ip neighbour add " + to4 +
			" dev r2 lladdr 02:00:00:00:00:99 nud reachable", "02:00:00:00:00:99", entered},
		{"one that was given up", "ip neighbour del " + to4 + " dev r2; ip neighbour add " + to4 +
			" dev r2 nud none; " +
			"ip neighbour change " + to4 + " dev r2 nud failed", mac, entered},
		{"going down and up", "ip link set r2 down; ip link set r2 up", mac, entered},
		{"being down", "ip link set r2 down", mac, []string{"r1: device r2 taken up"}},
		{"another MAC address", "ip link set r2 address 02:00:00:00:00:77", mac, []string{"r1: MAC address of r2 set"}},
	} {
		n.in(t, id, c.command)
		n.auditAll(t, id)
		if got := changes(n.apply(t, jobs)); !slices.Equal(got, c.events) {
			t.Errorf("after %s apply said %q, want %q", c.what, got, c.events)
		}
		want(c.what, c.mac)
		n.auditAll(t)
	}

	// Nobody makes permanent entries but for a reason.
	n.in(t, id, "ip neighbour replace "+to4+" dev r2 lladdr 02:00:00:00:00:55 nud permanent")
	n.auditAll(t)
	n.in(t, id, "ip neighbour del "+to4+" dev r2")
	n.auditAll(t, id)
	n.apply(t, jobs)

	// A port that loses its carrier keeps them.
	port := n.dirs.PortDevice(model.PortID{ID: id, Interface: "r2"})
	sh(t, "ip link set "+port+" up; ip link set "+port+" down")
	n.auditAll(t)

	// Another MAC address in the model; ARP's word against the model's; another address, also behind a restart's back.
	peer := &job(jobs, "r1").Element.Interfaces[1].Far.Peers[0]
	peers := func(mac string, drop int) {
		p := *peer
		p.MAC, p.Addresses = mac, p.Addresses[:len(p.Addresses)-drop]
		e := &job(jobs, "r1").Element
		e.Interfaces = slices.Clone(e.Interfaces)
		far := *e.Interfaces[1].Far
		far.Peers = []model.LinkPeer{p}
		e.Interfaces[1].Far = &far
		peer = &far.Peers[0]
	}
	peers("02:00:03:00:01:02", 0)
	n.apply(t, jobs)
	if got, _ := n.neighbour(t, id, to4); got != "02:00:03:00:01:02" {
		t.Errorf("the neighbour's MAC address changed, and the entry says %s", got)
	}
	n.in(t, id, "ip neighbour replace "+to4+" dev r2 lladdr 02:00:00:00:00:99 nud reachable extern_learn")
	peers("02:00:03:00:01:03", 0)
	n.apply(t, jobs)
	if got, _ := n.neighbour(t, id, to4); got != "02:00:00:00:00:99" {
		t.Errorf("what ARP learnt was replaced by %s", got)
	}
	n.in(t, id, "ip neighbour replace 10.0.2.0 dev r2 lladdr 02:00:00:00:00:98 nud reachable")
	n.restart(t)
	peers("02:00:03:00:01:03", 1)
	if got, want := changes(n.apply(t, jobs)), []string{"r1: neighbour " + to6 + " removed"}; !slices.Equal(got, want) {
		t.Errorf("an address of the neighbour is gone, and apply said %q", got)
	}
	if got, _ := n.neighbour(t, id, "10.0.2.0"); got != "02:00:00:00:00:98" {
		t.Errorf("an entry that somebody made is %q", got)
	}
}

// A neighbour that takes another MAC address, or whose address another takes, is found again by ARP and neighbour
// discovery as if nobody had entered it.
func TestNeighboursMove(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 3, 2)
	n.apply(t, jobs)
	a, b := jobs[0].ID, jobs[1].ID
	sh(t, "ip link add joined type bridge mcast_snooping 0 && ip link set joined up")
	for _, p := range []model.PortID{{ID: a, Interface: "r1"}, {ID: b, Interface: "r0"}} {
		sh(t, "ip link set "+n.dirs.PortDevice(p)+" master joined up")
	}
	const to4, to6 = "10.0.0.1", "fd00:3::1"
	// The kernel's own patience, in thousandths of a second instead of seconds.
	for _, family := range []string{"ipv4", "ipv6"} {
		n.in(t, a, strings.ReplaceAll("sysctl -qw @.base_reachable_time_ms=100 @.delay_first_probe_time=0 "+
			"@.retrans_time_ms=50", "@", "net."+family+".neigh.r1"))
	}
	n.settled(t, jobs)
	n.in(t, a, "ping -c1 -W5 "+to4+" && ping -c1 -W5 "+to6)
	n.in(t, b, "ip link set r0 address 02:00:00:00:00:42")
	for _, to := range []string{to4, to6} {
		n.in(t, a, "ping -c100 -i0.1 "+to+" | grep -m1 -q ttl=")
		if mac, stays := n.neighbour(t, a, to); mac != "02:00:00:00:00:42" || !stays {
			t.Errorf("the neighbour %s has moved, and the entry says %s, stays: %t", to, mac, stays)
		}
	}
	n.auditAll(t, b) // its own MAC address is not the wanted one; a's entries are right as they are
}
