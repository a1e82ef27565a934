package mirror

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// kernelTable is a table as the kernel changes, notifies and dumps it: pieces of a dump are queued some time after they
// are made, and a notification that an IPv4 route is deleted may come before that is done.
type kernelTable struct {
	dump   Dump
	routes map[string][]rt // by prefix, in order
	queue  []queued
	slow   func() // the deletion that has been notified

	dumping bool
	after   string // the last prefix that was dumped
	piece   *queued
}

// queued is one datagram: a notification, or some of a dump.
type queued struct {
	notified []byte
	dumped   [][]byte
	done     bool
}

func (k *kernelTable) notify(r rt, kind, flags uint16) {
	k.queue = append(k.queue, queued{notified: r.message(kind, flags)})
}

// finish ends the change that is under way, as who takes the kernel's lock waits for it.
func (k *kernelTable) finish() {
	if k.slow != nil {
		k.slow()
		k.slow = nil
	}
}

// change makes a change as the kernel does, or refuses it.
func (k *kernelTable) change(prefix string, metric uint32, n int, verb uint16, late bool) {
	k.finish()
	if k.dump.Family == unix.AF_INET6 {
		k.change6(prefix, metric, n, verb)
		return
	}
	r := rt{prefix: prefix, metric: metric, via: fmt.Sprintf("10.0.0.%d", n), index: 2}
	list := slices.Clone(k.routes[prefix])
	same := func(o rt) bool { return o.metric == metric && o.via == r.via }
	from := slices.IndexFunc(list, func(o rt) bool { return o.metric >= metric })
	if from < 0 {
		from = len(list)
	}
	to := from
	for to < len(list) && list[to].metric == metric {
		to++
	}
	have := slices.IndexFunc(list, same)
	switch {
	case verb == 0: // delete
		if have < 0 {
			return
		}
		k.notify(r, unix.RTM_DELROUTE, 0)
		k.slow = func() { k.routes[prefix] = slices.Delete(list, have, have+1) }
		if !late {
			k.finish()
		}
		return
	case verb == excl && from < to, verb != replace && have >= 0, have > from:
		return
	case verb == replace && from < to:
		list[from] = r
	case verb == appends:
		list = slices.Insert(list, to, r)
	default:
		list = slices.Insert(list, from, r)
	}
	k.routes[prefix] = list
	k.notify(r, unix.RTM_NEWROUTE, verb)
}

// change6 is change for IPv6, where the routes of one metric are one with several hops.
func (k *kernelTable) change6(prefix string, metric uint32, n int, verb uint16) {
	list := slices.Clone(k.routes[prefix])
	at := slices.IndexFunc(list, func(o rt) bool { return o.metric >= metric })
	if at < 0 {
		at = len(list)
	}
	there := at < len(list) && list[at].metric == metric
	hop := fmt.Sprintf("2 fe80::%d 1", n)
	r := rt{prefix: prefix, metric: metric, hops: []string{hop}}
	switch {
	case verb == 0:
		if !there || !slices.Contains(list[at].hops, hop) {
			return
		}
		if left := slices.DeleteFunc(slices.Clone(list[at].hops),
			func(h string) bool { return h == hop }); len(left) > 0 {
			list[at].hops = left
		} else {
			list = slices.Delete(list, at, at+1)
		}
		k.routes[prefix] = list
		k.notify(r, unix.RTM_DELROUTE, 0)
		return
	case !there:
		list = slices.Insert(list, at, r)
	case verb == replace:
		list[at] = r
	case verb == excl || slices.Contains(list[at].hops, hop):
		return
	default:
		r.hops = append(slices.Clone(list[at].hops), hop)
		list[at] = r
	}
	k.routes[prefix] = list
	k.notify(r, unix.RTM_NEWROUTE, verb)
}

// walk makes the next piece of the dump.
func (k *kernelTable) walk(most int) {
	if !k.dumping || k.piece != nil {
		return
	}
	k.piece = &queued{}
	for _, p := range slices.Sorted(maps.Keys(k.routes)) {
		if p <= k.after || len(k.routes[p]) == 0 {
			continue
		}
		if most--; most < 0 {
			return
		}
		k.after = p
		for _, r := range k.routes[p] {
			k.piece.dumped = append(k.piece.dumped, r.message(unix.RTM_NEWROUTE, unix.NLM_F_MULTI))
		}
	}
	k.dumping, k.piece.done = false, true
}

func (k *kernelTable) send() {
	if k.piece != nil {
		k.queue = append(k.queue, *k.piece)
		k.piece = nil
	}
}

// says is what becomes of a prefix.
func (k *kernelTable) says(prefix string) string {
	list := k.routes[prefix]
	switch {
	case len(list) == 0:
		return "none"
	case list[0].via != "":
		return fmt.Sprintf("2:%s?", list[0].via)
	}
	var hops []string
	for _, h := range list[0].hops {
		var gateway string
		fmt.Sscanf(h, "2 %s", &gateway)
		hops = append(hops, fmt.Sprintf("2:%s?", gateway))
	}
	if len(hops) == 1 {
		return hops[0]
	}
	slices.Sort(hops)
	text := ""
	for _, h := range hops {
		text += " " + h + "*1"
	}
	return text[1:]
}

// looker makes looks at the table as a Mirror does.
type looker struct {
	*world
	k        *kernelTable
	looking  bool
	attempt  int
	doubtful bool
}

// begin begins a look and comes as far as to the table.
func (l *looker) begin() {
	if l.looking {
		return
	}
	l.looking, l.attempt, l.doubtful = true, 0, false
	l.view.WantsLook()
	l.k.finish() // the dump of links takes the kernel's lock
	for _, d := range Dumps {
		if d == l.k.dump {
			break
		}
		l.whole(d)
	}
	l.ask()
}

func (l *looker) ask() {
	l.view.Begin(l.k.dump, l.attempt)
	l.k.dumping, l.k.after = true, ""
}

// read takes in what comes next.
func (l *looker) read() {
	if len(l.k.queue) == 0 {
		return
	}
	q := l.k.queue[0]
	l.k.queue = l.k.queue[1:]
	if q.notified != nil {
		l.view.Notify(q.notified)
		return
	}
	l.view.Dumped(join(q.dumped...))
	if !q.done {
		return
	}
	last := l.attempt == attempts-1
	if clean := l.view.End(last); !clean && !last {
		l.attempt++
		l.ask()
		return
	} else if !clean {
		l.doubtful = true
	}
	for _, d := range Dumps[slices.Index(Dumps, l.k.dump)+1:] {
		l.whole(d)
	}
	l.looking = false
}

// rest ends the look, without changes meanwhile.
func (l *looker) rest() {
	l.k.finish()
	for l.looking || len(l.k.queue) > 0 {
		l.k.walk(3)
		l.k.send()
		l.read()
	}
}

// TestDumpsAmongNotifications mixes changes of a table with looks at it, in any order that the kernel may put them:
// what is known in the end is what the kernel has, after another look only where one was wanted.
func TestDumpsAmongNotifications(t *testing.T) {
	for _, c := range []struct {
		name     string
		dump     Dump
		prefixes []string
	}{
		{"IPv4", Dump{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_MAIN},
			[]string{"20.0.0.0/8", "20.1.0.0/16", "20.1.0.0/24", "30.0.0.0/8"}},
		{"IPv6", Dump{unix.RTM_GETROUTE, unix.AF_INET6, unix.RT_TABLE_MAIN},
			[]string{"2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:3::/48"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				k := &kernelTable{dump: c.dump, routes: map[string][]rt{}}
				l := &looker{world: newWorld(t), k: k}
				prefix, verb := rapid.SampledFrom(c.prefixes),
					rapid.SampledFrom([]uint16{0, 0, 0, excl, create, appends, replace})
				for range rapid.IntRange(0, 60).Draw(r, "steps") {
					switch rapid.IntRange(0, 7).Draw(r, "step") {
					case 0:
						l.begin()
					case 1, 2:
						k.change(prefix.Draw(r, "prefix"), uint32(rapid.IntRange(1, 2).Draw(r, "metric")),
							rapid.IntRange(2, 4).Draw(r, "gateway"), verb.Draw(r, "verb"), rapid.Bool().Draw(r, "late"))
					case 3:
						k.walk(rapid.IntRange(1, 3).Draw(r, "most"))
					case 4:
						k.send()
					default:
						l.read()
					}
				}
				l.rest()
				for looks := 0; l.view.WantsLook() || l.doubtful; looks++ {
					if looks == 2 {
						r.Fatal("looks are wanted without end")
					}
					l.begin()
					l.rest()
				}
				for _, p := range c.prefixes {
					if got, want := l.says(p), k.says(p); got != want {
						r.Errorf("%s: %q, should be %q", p, got, want)
					}
				}
			})
		})
	}
}

// TestDumpsOlderThanNotifications tells of other objects than routes what is so no more.
func TestDumpsOlderThanNotifications(t *testing.T) {
	w := newWorld(t)
	as := func(kind uint16, message []byte) []byte {
		binary.NativeEndian.PutUint16(message[4:], kind)
		return message
	}
	address := func(kind uint16) []byte {
		fixed := make([]byte, unix.SizeofIfAddrmsg)
		fixed[0], fixed[1] = unix.AF_INET, 24
		binary.NativeEndian.PutUint32(fixed[4:], 2)
		return message(kind, 0, fixed, attr(unix.IFA_LOCAL, []byte{10, 0, 0, 1}))
	}
	// during makes a dump in which a notification comes before what is told.
	during := func(d Dump, notification, told []byte) {
		t.Helper()
		w.view.Begin(d, 0)
		w.view.Notify(notification)
		w.view.Dumped(told)
		w.view.End(true)
	}
	neighbours, links := Dump{unix.RTM_GETNEIGH, unix.AF_INET, 0}, Dumps[0]
	objects, addresses := Dump{unix.RTM_GETNEXTHOP, unix.AF_UNSPEC, 0}, Dump{unix.RTM_GETADDR, unix.AF_INET, 0}
	const p, through = "192.0.2.0/24", "198.51.100.0/24"
	w.add(excl, rt{prefix: p, via: "10.0.0.9", index: 2})
	during(neighbours, neigh("10.0.0.9", 2, unix.NUD_FAILED), neigh("10.0.0.9", 2, unix.NUD_REACHABLE))
	w.expect(p, "2:10.0.0.9?")
	during(neighbours, neigh("10.0.0.9", 2, unix.NUD_REACHABLE), neigh("10.0.0.9", 2, unix.NUD_FAILED))
	w.expect(p, "2:10.0.0.9")
	during(neighbours, as(unix.RTM_DELNEIGH, neigh("10.0.0.9", 2, unix.NUD_REACHABLE)),
		neigh("10.0.0.9", 2, unix.NUD_REACHABLE))
	w.expect(p, "2:10.0.0.9?")
	during(neighbours, neigh("10.0.0.8", 2, unix.NUD_REACHABLE), neigh("10.0.0.9", 2, unix.NUD_REACHABLE)) // of another
	w.expect(p, "2:10.0.0.9")

	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.2", 2)))
	w.add(excl, rt{prefix: through, object: 1})
	during(objects, objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.3", 2)),
		objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.2", 2)))
	w.expect(through, "2:10.0.0.3?")
	during(objects, objectOf(unix.RTM_DELNEXTHOP, 1), objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.3", 2)))
	if len(w.view.objects) > 0 {
		t.Errorf("a next-hop object is back: %v", w.view.objects)
	}

	w.view.Notify(address(unix.RTM_NEWADDR))
	during(addresses, address(unix.RTM_DELADDR), address(unix.RTM_NEWADDR))
	if len(w.view.addresses) > 0 {
		t.Errorf("an address is back: %v", w.view.addresses)
	}

	w.add(excl, rt{prefix: p, via: "10.0.1.2", index: 3, metric: 1})
	w.view.Begin(links, 0)
	w.view.Notify(linkAs(3, unix.IFF_UP)) // no carrier
	w.view.Dumped(linkUp(3))
	w.view.Notify(as(unix.RTM_DELLINK, linkUp(4)))
	w.view.Dumped(linkUp(4))
	w.view.Dumped(linkUp(2))
	if !w.view.End(false) {
		t.Error("the dump of links ends in doubt")
	}
	if w.view.links[3].carrier || w.view.links[4] != nil && w.view.links[4].exists || !w.view.links[2].exists {
		t.Error("of links, what a dump tells counts for more than newer notifications")
	}

	w.view.Begin(Dump{unix.RTM_GETNETCONF, unix.AF_INET, 0}, 0)
	w.view.Notify(message(unix.RTM_NEWNETCONF, 0, []byte{unix.AF_INET, 0, 0, 0}, attr32(netconfIndex, 2),
		attr32(netconfForward, 1)))
	if w.view.End(false) {
		t.Error("a dump of settings of which some changed meanwhile is not repeated")
	}
}
