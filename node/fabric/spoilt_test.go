package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// spoiltLab is two nodes: a link between them that a slice's queue bounds, and one on the first. The first's ports say
// by their devices' aliases whose they are, as those of elements do; a port that left has made their slots not follow
// their order.
func spoiltLab(t *testing.T) (n *node, flows func() []*flow) {
	t.Helper()
	n1, _, a, b := twoNodes(t, 9000)
	c, d := newElement(t, "c"), newElement(t, "d")
	n1.plug(c, "eth0", "10.0.1.1/24")
	n1.apply()
	n1.plug(d, "eth0", "10.0.1.2/24")
	n1.local("c:eth0", "d:eth0")
	n1.state.Slices = map[string]model.Bandwidth{"net": 1e9}
	n1.state.Packets = map[string]int{"net": 1e6}
	n1.state.Ports[0], n1.state.Ports[2] = n1.state.Ports[2], n1.state.Ports[0]
	n1.apply()
	for _, p := range n1.state.Ports {
		n1.must("ip", "link", "set", n1.dirs.PortDevice(p.ID), "alias", n1.dirs.Alias(p.ID))
	}
	return n1, func() []*flow { return []*flow{startFlow(t, a, b, "10.0.0.2"), startFlow(t, d, c, "10.0.1.1")} }
}

// tables is all that the agent has written, but for what the programs keep there themselves.
func (n *node) tables() string {
	n.t.Helper()
	p := n.fabric.pipe
	devices, err := pipeline.All[uint32, uint32](p.Devices)
	if err != nil {
		n.t.Fatal(err)
	}
	tunnels, err := pipeline.All[uint32, pipeline.TunnelEnd](p.Tunnels)
	if err != nil {
		n.t.Fatal(err)
	}
	identities, err := pipeline.All[pipeline.IdentityKey, pipeline.Identity](p.Identities)
	if err != nil {
		n.t.Fatal(err)
	}
	text := fmt.Sprintln(devices, tunnels)
	for _, e := range slices.SortedFunc(maps.Values(identities),
		func(a, b pipeline.Identity) int { return int(a.Slot) - int(b.Slot) }) {
		text += fmt.Sprintln(e.Slot, pipeline.NameOf(&e))
	}
	for slot := range p.Ports {
		if e := p.Ports[slot]; e != (pipeline.Port{}) && slot > 0 {
			text += fmt.Sprintf("%d %+v shaper %d meter %d\n", slot, e, p.Shapers[slot], p.Metered[slot])
		}
	}
	for i := range p.Peers {
		if a := pipeline.AddressOf(&p.Peers[i]); a.IsValid() {
			text += fmt.Sprintln("peer", i, a)
		}
	}
	return text
}

// sense is what the tables say, whatever the numbers of slots and peers.
func (n *node) sense() string {
	n.t.Helper()
	s, err := n.fabric.Observe(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	text := fmt.Sprintln(s.Peers)
	for _, p := range s.Ports {
		slot := n.fabric.slots[p.ID]
		e := &n.fabric.pipe.Ports[slot]
		text += fmt.Sprintln(p.ID, p.Index, p.MAC, p.Local, e.Flags, e.Snap, e.Loss, n.fabric.pipe.Shapers[slot],
			n.fabric.pipe.Metered[slot] != 0)
		if p.Tunnel != nil {
			text += fmt.Sprintln(*p.Tunnel)
		}
	}
	return text
}

// TestNewLayoutGoesOn puts tables of a new layout in the place of old ones under traffic: no slot becomes another
// port's, for frames that wait in a slice's queue say slots, nothing is lost, and the counters go on.
func TestNewLayoutGoesOn(t *testing.T) {
	n, flows := spoiltLab(t)
	running := flows()
	for _, f := range running {
		f.wait(100)
	}
	slots, before, counts := maps.Clone(n.fabric.slots), n.tables(), n.counters()
	if err := n.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(n.dirs.BPF(), pipeline.Layout), filepath.Join(n.dirs.BPF(), "v0")); err != nil {
		t.Fatal(err)
	}
	n.open()
	n.apply()
	if !maps.Equal(slots, n.fabric.slots) {
		t.Errorf("slots were %v, are %v", slots, n.fabric.slots)
	}
	if now := n.tables(); now != before {
		t.Errorf("the tables were\n%s\nand are\n%s", before, now)
	}
	for id, c := range n.counters() {
		if was := counts[id]; c.RxPackets < was.RxPackets || c.TxPackets < was.TxPackets || c.RxBytes < was.RxBytes {
			t.Errorf("%s counted %+v, now %+v", id, was, c)
		}
	}
	for _, f := range running {
		f.wait(50)
		if lost := f.lost(); len(lost) != 0 {
			t.Errorf("lost %v", lost)
		}
	}
}

// TestLostPins takes each pinned object away, or puts another in its place, while there is no agent: the next one makes
// it anew, and frames flow all the while as they did. Each third of the objects is lost in another way, on nodes of its
// own.
func TestLostPins(t *testing.T) {
	t.Parallel()
	for k, lose := range []func(t *testing.T, path string){
		func(*testing.T, string) {},
		func(t *testing.T, path string) {
			other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
			if err == nil {
				err = other.Pin(path)
				defer other.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run([]string{"gone", "another map", "a directory"}[k], func(t *testing.T) {
			t.Parallel()
			loseEveryThird(t, k, lose)
		})
	}
}

// loseEveryThird has every third pinned object lost, from the kth on.
func loseEveryThird(t *testing.T, k int, lose func(t *testing.T, path string)) {
	n, flows := spoiltLab(t)
	before, running := n.tables(), flows()
	dir := filepath.Join(n.dirs.BPF(), pipeline.Layout)
	pins, err := os.ReadDir(dir)
	if err != nil || len(pins) < 20 {
		t.Fatalf("pins: %v, %v", pins, err)
	}
	for i := k; i < len(pins); i += 3 {
		if err := n.fabric.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, pins[i].Name())
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		lose(t, path)
		n.open()
		n.apply()
		if now := n.tables(); now != before {
			t.Errorf("without the pin of %s the tables are\n%s\nand were\n%s", pins[i].Name(), now, before)
		}
		for _, f := range running {
			f.wait(5)
		}
	}
	for _, f := range running {
		if lost := f.lost(); len(lost) != 0 {
			t.Errorf("lost %v", lost)
		}
	}
}

// TestSpoiltTables turns bits in what is pinned while there is no agent: the next one finds it, whatever it is, and
// everything is as it was.
func TestSpoiltTables(t *testing.T) {
	t.Parallel()
	n, flows := spoiltLab(t)
	before := n.sense()
	for i := range 2 {
		n.fabric.pipe.Peers[20+i] = pipeline.NewPeer(netip.IPv4Unspecified())
	}
	if n.apply(); n.sense() != before {
		t.Errorf("two peers of one address that nobody named stay:\n%s", n.sense())
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 9))
	for range 60 {
		p := n.fabric.pipe
		words := func(first unsafe.Pointer, bytes uintptr) {
			memory := unsafe.Slice((*byte)(first), bytes)
			for range 1 + random.IntN(20) {
				// Most of what is pinned is empty: half of the damage is at its beginning.
				memory[random.IntN(min(len(memory), 400+random.IntN(2)*len(memory)))] ^= 1 << random.IntN(8)
			}
		}
		words(unsafe.Pointer(&p.Ports[0]), unsafe.Sizeof(p.Ports[0])*uintptr(len(p.Ports)))
		words(unsafe.Pointer(&p.Peers[0]), unsafe.Sizeof(p.Peers[0])*uintptr(len(p.Peers)))
		words(unsafe.Pointer(&p.Shapers[0]), unsafe.Sizeof(p.Shapers[0])*uintptr(len(p.Shapers)))
		words(unsafe.Pointer(&p.Queues[0]), unsafe.Sizeof(p.Queues[0])*uintptr(len(p.Queues)))
		words(unsafe.Pointer(&p.PuntMeters[0]), unsafe.Sizeof(p.PuntMeters[0])*uintptr(len(p.PuntMeters)))
		words(unsafe.Pointer(&p.Metered[0]), unsafe.Sizeof(p.Metered[0])*uintptr(len(p.Metered)))
		words(unsafe.Pointer(&p.Meters[0]), unsafe.Sizeof(p.Meters[0])*uintptr(len(p.Meters)))
		words(unsafe.Pointer(&p.Routers[0]), unsafe.Sizeof(p.Routers[0])*uintptr(len(p.Routers)))
		spoil(t, random, p.Devices, func(v *uint32) { *v ^= 1 << random.IntN(32) })
		spoil(t, random, p.Tunnels, func(v *pipeline.TunnelEnd) {
			v.Slot ^= 1 << random.IntN(32)
			v.Peer ^= 1 << random.IntN(32)
		})
		identities, err := pipeline.All[pipeline.IdentityKey, pipeline.Identity](p.Identities)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range identities {
			switch random.IntN(6) {
			case 0:
				v.Slot ^= 1 << random.IntN(16)
			case 1:
				v.Name[random.IntN(len(v.Name))] ^= 1 << random.IntN(8)
			case 2:
				v.Length ^= 1 << random.IntN(32)
			case 3:
				k.Hash[random.IntN(16)] ^= 1 << random.IntN(8)
			}
			n.check(p.Identities.Put(k, v), "damage an identity")
		}
		n.restart()
		n.check(n.fabric.Cut(nil, nil), "tell who is in quarantine: nobody") // as an agent does at each pass
		n.apply()
		if now := n.sense(); now != before {
			t.Fatalf("the tables say\n%s\nand said\n%s", now, before)
		}
		if again := n.apply(); len(again) != 0 {
			t.Fatalf("the second Apply changed %q", again)
		}
	}
	for _, f := range flows() {
		f.wait(100)
		if lost := f.lost(); len(lost) != 0 {
			t.Errorf("after all was put right: lost %v", lost)
		}
	}
}

// spoil damages some keys and some values of a table.
func spoil[V any](t *testing.T, random *rand.Rand, m *ebpf.Map, turn func(*V)) {
	t.Helper()
	all, err := pipeline.All[uint32, V](m)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range all {
		if random.IntN(3) == 0 {
			err = errors.Join(err, m.Put(k^1<<random.IntN(32), v))
		}
		if random.IntN(3) == 0 {
			turn(&v)
			err = errors.Join(err, m.Put(k, v))
		}
	}
	if err != nil {
		t.Fatalf("damage the table %v: %v", m, err)
	}
}
