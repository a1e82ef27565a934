package fib_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
)

// recorder is memory whose chunks can be looked at.
type recorder struct {
	*fib.Heap
	chunks [][]uint32
}

func (r *recorder) Chunk(i int) ([]uint32, error) {
	if i < len(r.chunks) {
		return r.chunks[i], nil
	}
	chunk, err := r.Heap.Chunk(i)
	if err == nil {
		for j := range chunk {
			chunk[j] = 0xdeadbeef // what is not written first must not count
		}
		r.chunks = append(r.chunks, chunk)
	}
	return chunk, err
}

// word is word i behind the start of a unit.
func (r *recorder) word(unit uint32, i int) uint32 {
	at := 16*int(unit) + i
	return r.chunks[at>>16][at&0xffff]
}

// lookup is written after the package's description of the words alone, as the eBPF program is, for little-endian
// machines and tables at rest.
func (r *recorder) lookup(index int, a netip.Addr) (hop fib.ID, length int) {
	table, b := r.Tables()[index], a.AsSlice()
	unit, entry := uint32(table>>28)&0xfffffff, uint32(0)
	if shape := int(table >> 24 & 15); shape == 15 {
		entry = r.word(unit, int(b[0])<<8|int(b[1]))
		for depth := 16; entry&(1<<31) != 0; {
			at := int(b[depth/8])
			if depth < 32 {
				depth += 8
			} else {
				at = at >> (4 - depth%8) & 15
				depth += 4
			}
			entry = r.word(entry&0xfffffff, at)
		}
	} else if shape != 0 {
		n, width := 1<<shape, len(b)/4
		i := 0
		for step := n / 2; step > 0; step /= 2 {
			start := make([]byte, 0, 16)
			for w := range width { // most significant byte first
				word := r.word(unit, width*(i+step)+[]int{1, 0, 3, 2}[w])
				if width == 1 {
					word = r.word(unit, i+step)
				}
				start = append(start, byte(word>>24), byte(word>>16), byte(word>>8), byte(word))
			}
			if slices.Compare(start, b) <= 0 {
				i += step
			}
		}
		entry = r.word(unit, width*n+i)
	}
	if entry == 0 {
		return fib.ID(table & 0xffffff), 0
	}
	return fib.ID(entry & 0xffffff), int(entry>>24) + 1
}

// TestWordsAreAsDescribed pins what the eBPF program knows too.
func TestWordsAreAsDescribed(t *testing.T) {
	mem := &recorder{Heap: fib.NewHeap(2, 16, 3)}
	pool := must[*fib.Pool](t)(fib.New(mem))
	slice := pool.NewSlice("a", fib.Quota{})
	mac := fib.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	hop := must[fib.ID](t)(slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: 0x123456,
		MTU: 1500, Destination: mac}))
	if got, want := mem.NextHops()[28:32], []uint64{0x0001_05dc_123456_08, 0x0001_021122334455, 1 << 48, 0}; hop != 7 ||
		!slices.Equal(got, want) {
		t.Errorf("next hop %d's words are %#x, should be %#x", hop, got, want)
	}
	if got, want := mem.NextHops()[:28:28], []uint64{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0,
		0, 0, 6, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("the built-in next hops' words are %#x", got)
	}

	table := slice.NewTable(fib.IPv4)
	if err := table.Publish(1); err != nil {
		t.Fatal(err)
	}
	routes := func(text ...string) (list []fib.Change) {
		for _, s := range text {
			list = append(list, fib.Change{Prefix: netip.MustParsePrefix(s), NextHop: hop})
		}
		return list
	}
	apply := func(list []fib.Change) {
		t.Helper()
		if _, err := table.Apply(list); err != nil {
			t.Fatal(err)
		}
	}
	apply(routes("0.0.0.0/0"))
	if got := mem.Tables()[1]; got != 2<<56|7 {
		t.Errorf("the word of a table with a default route is %#x", got)
	}
	apply(routes("10.0.0.0/8", "10.1.0.0/16", "10.1.255.0/24", "11.0.0.0/8"))
	if got := mem.Tables()[1]; got != 3<<56|3<<24|7 {
		t.Errorf("the word of a table with six ranges is %#x", got)
	}
	const none, top = 0, 0xffffffff
	want := []uint32{0, 10 << 24, 10<<24 | 1<<16, 10<<24 | 0x1ff00, 10<<24 | 2<<16, 12 << 24, top, top,
		// 10.0.0.0/8 and 11.0.0.0/8 end as one range
		none, 7<<24 | 7, 15<<24 | 7, 23<<24 | 7, 7<<24 | 7, none, none, none}
	if got := mem.chunks[0][:16]; !slices.Equal(got, want) {
		t.Errorf("the block is %#x, should be %#x", got, want)
	}

	group := must[fib.ID](t)(slice.AddGroup([]fib.Member{{NextHop: hop, Weight: 3},
		{NextHop: fib.BlackholeID, Weight: 1}}))
	unit := uint32(mem.NextHops()[4*group] >> 16)
	if got, want := mem.NextHops()[4*group], uint64(unit)<<16|4<<4|15; got != want || unit == 0 {
		t.Errorf("the group's word is %#x, should be %#x", got, want)
	}
	counts := map[uint32]int{}
	for i := range 16 {
		counts[mem.word(unit, i)]++
	}
	if counts[7] != 12 || counts[4] != 4 {
		t.Errorf("the group's buckets: %v", counts)
	}

	apply(filler(fib.IPv4, 600, hop))
	if got := mem.Tables()[1]; got>>56 != 4 || got&0xfffffff != 15<<24|7 {
		t.Errorf("the word of a trie is %#x", got)
	}
}
