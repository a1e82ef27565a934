package pipeline

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gaissmai/bart"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/node/fib"
)

// truth is what router 1's tables say at one moment: routes, what each next hop's MAC addresses end with, the groups'
// members.
type truth struct {
	routes  [2]*bart.Table[fib.ID]
	macs    map[fib.ID]byte
	members map[fib.ID][]fib.ID
}

// mayGo tells whether a packet to an address that saw these states, one after the other, may leave with MAC addresses
// that end so, or, with 0, be dropped without a word. It looks its route up first, then a group's member, then that
// one's addresses: each as it is by then, so a slow one may go where it was sent first by the addresses that this next
// hop has now.
func mayGo(states []atomic.Pointer[truth], a netip.Addr, mac byte) bool {
	routed, chosen := map[fib.ID]bool{}, map[fib.ID]bool{}
	for v := range states {
		s := states[v].Load()
		if id, ok := s.routes[b2i(a.Is6())].Lookup(a); ok {
			routed[id] = true
		}
		for id := range routed {
			switch members := s.members[id]; {
			case id == fib.BlackholeID:
				if mac == 0 {
					return true
				}
			case members == nil:
				chosen[id] = true
			default:
				for _, m := range members {
					chosen[m] = true
				}
			}
		}
		for id := range chosen {
			if mac != 0 && s.macs[id] == mac {
				return true
			}
		}
	}
	return false
}

// TestPacketsDuringChurn sends packets through the program while routes, default routes, whole tables, next hops'
// addresses and groups' members change under it, and memory is used again. Each must leave as what it looked up,
// between its beginning and its end, says, or be left to the guest.
func TestPacketsDuringChurn(t *testing.T) {
	l := newRoutersLab(t)
	l.Routers[2].On = ToGuest // what leaves router 1 ends there
	random := rand.New(rand.NewPCG(21, 22))
	var hops []fib.ID
	now := &truth{routes: [2]*bart.Table[fib.ID]{new(bart.Table[fib.ID]), new(bart.Table[fib.ID])},
		macs: map[fib.ID]byte{}, members: map[fib.ID][]fib.ID{}}
	next := byte(0)
	// fresh is a next hop whose both MAC addresses end with a byte that no other has.
	fresh := func() (fib.NextHop, byte) {
		for {
			if next++; next < 40 { // others in the lab have those
				next = 40
			}
			if !slices.ContainsFunc(hops, func(id fib.ID) bool { return now.macs[id] == next }) {
				h := hopTo(11, int(next), 1500)
				h.Source = fib.MAC(macAt(int(next)))
				return h, next
			}
		}
	}
	for range 6 {
		h, mac := fresh()
		id := l.hop(h)
		hops, now.macs[id] = append(hops, id), mac
	}
	group, err := l.slice.AddGroup([]fib.Member{{NextHop: hops[0], Weight: 1}, {NextHop: hops[1], Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	now.members[group] = hops[:2]
	targets := append(slices.Clone(hops), group, fib.BlackholeID)

	var tables [2]*fib.Table
	var known [2][]netip.Prefix
	var addresses []netip.Addr
	for f := range tables {
		tables[f] = l.slice.NewTable(fib.Family(f))
		if err := tables[f].Publish(Table(1, f == 1)); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			b := []byte{10, byte(random.IntN(2)) << 7, []byte{0, 0x80, 0xff}[random.IntN(3)],
				[]byte{0, 0xff}[random.IntN(2)]}
			least := 8
			if f == 1 {
				b = append(append([]byte{0x20, 1, 0xd, 0xb8}, b[1:]...), make([]byte, 9)...)
				b[15] = byte(random.IntN(2))
				least = 32
			}
			a, _ := netip.AddrFromSlice(b)
			known[f] = append(known[f], netip.PrefixFrom(a, least+random.IntN(8*len(b)-least+1)).Masked())
			addresses = append(addresses, a)
		}
		known[f] = append(known[f], netip.PrefixFrom(known[f][0].Addr(), 0).Masked())
	}
	var fill [2][]fib.Change // makes a trie
	for i := range 600 {
		fill[0] = append(fill[0], fib.Change{Prefix: netip.MustParsePrefix(fmt.Sprintf("20.%d.%d.0/24", i>>8, i&255))})
		fill[1] = append(fill[1], fib.Change{Prefix: netip.MustParsePrefix(fmt.Sprintf("2002:%x::/32", i))})
	}

	const rounds = 16000
	states := make([]atomic.Pointer[truth], 8*rounds+8)
	states[0].Store(now)
	var begun, complete, ended atomic.Int64
	var stop atomic.Bool
	var reader sync.WaitGroup
	sent, went := 0, map[byte]int{}
	var frames [][]byte
	for _, a := range addresses {
		if a.Is4() {
			frames = append(frames, ipv4(a.String(), func(ip *layers.IPv4) { ip.SrcIP[3] = byte(len(frames)) }))
		} else {
			frames = append(frames, ipv6(a.String(), func(ip *layers.IPv6) { ip.SrcIP[15] = byte(len(frames)) }))
		}
	}
	reader.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		random := rand.New(rand.NewPCG(23, 24))
		for !stop.Load() {
			i := random.IntN(len(frames))
			from := complete.Load()
			verdict, out, err := l.FromPort.Test(frames[i])
			to := begun.Load()
			ended.Add(1)
			sent++
			mac := out[5]
			switch {
			case err != nil || verdict != redirect && verdict != shot:
				t.Errorf("a packet to %s: verdict %d, %v", addresses[i], verdict, err)
				stop.Store(true)
				return
			case verdict == shot:
				mac = 0
			case mac == byte(10) && string(out) == string(frames[i]):
				went[10]++
				continue // left to the guest, which does the right thing
			case out[11] != mac:
				t.Errorf("a packet to %s left with half of one next hop's addresses and half of another's: %x",
					addresses[i], out[:14])
				stop.Store(true)
				return
			}
			went[mac]++
			if !mayGo(states[from:to+1], addresses[i], mac) {
				t.Errorf("a packet to %s left for %d, which was right in no state from %d to %d",
					addresses[i], mac, from, to)
				stop.Store(true)
			}
		}
	})
	defer reader.Wait()
	defer stop.Store(true)

	// become makes the next state so, by do.
	become := func(s *truth, do func() error) {
		t.Helper()
		v := begun.Load() + 1
		states[v].Store(s)
		begun.Store(v)
		if err := do(); err != nil {
			t.Error(err)
			stop.Store(true)
		}
		complete.Store(v)
		now = s
	}
	changed := func(f int, c fib.Change) *truth {
		s := *now
		if c.NextHop == 0 {
			s.routes[f] = s.routes[f].DeletePersist(c.Prefix)
		} else {
			s.routes[f] = s.routes[f].InsertPersist(c.Prefix, c.NextHop)
		}
		return &s
	}
	for round := 0; round < rounds && !stop.Load(); round++ {
		f := random.IntN(2)
		switch random.IntN(12) {
		case 0: // a neighbour's address
			h, mac := fresh()
			id, s := hops[random.IntN(len(hops))], *now
			s.macs = map[fib.ID]byte{}
			for k, v := range now.macs {
				s.macs[k] = v
			}
			s.macs[id] = mac
			become(&s, func() error { return l.slice.SetNextHop(id, h) })
		case 1: // a group's members
			s := *now
			s.members = map[fib.ID][]fib.ID{group: nil}
			var members []fib.Member
			for _, at := range random.Perm(len(hops))[:1+random.IntN(3)] {
				s.members[group] = append(s.members[group], hops[at])
				members = append(members, fib.Member{NextHop: hops[at], Weight: 1 + random.IntN(3)})
			}
			become(&s, func() error { return l.slice.SetGroup(group, members) })
		case 2: // a whole new table
			fresh, s := l.slice.NewTable(fib.Family(f)), *now
			s.routes[f] = new(bart.Table[fib.ID])
			for _, p := range known[f] {
				if random.IntN(2) == 0 {
					id := targets[random.IntN(len(targets))]
					s.routes[f].Insert(p, id)
					if err := fresh.Insert(p, id); err != nil {
						t.Fatal(err)
					}
				}
			}
			become(&s, func() error { return tables[f].Swap(fresh) })
		case 3: // the other shape
			if random.IntN(8) == 0 {
				id := fib.ID(0)
				if tables[f].Usage().Shape != fib.ShapeTrie {
					id = fib.BlackholeID
				}
				for i := range fill[f] {
					fill[f][i].NextHop = id
				}
				become(now, func() error { _, err := tables[f].Apply(fill[f]); return err })
			}
		default:
			c := fib.Change{Prefix: known[f][random.IntN(len(known[f]))]}
			if random.IntN(4) > 0 {
				c.NextHop = targets[random.IntN(len(targets))]
			}
			become(changed(f, c), func() error { _, err := tables[f].Apply([]fib.Change{c}); return err })
		}
		if round%16 == 0 { // a packet that began before has ended
			mark := l.pool.Mark()
			for was := ended.Load(); ended.Load() < was+2 && !stop.Load(); {
				runtime.Gosched()
			}
			l.pool.Release(mark)
		}
	}
	stop.Store(true)
	reader.Wait()
	t.Logf("%d packets during %d changes, %d left to the guest", sent, complete.Load(), went[10])
	if sent < 1000 || len(went) < 20 || went[10] > sent/2 {
		t.Errorf("%d packets in %d ways, %d to the guest: they say nothing", sent, len(went), went[10])
	}
}
