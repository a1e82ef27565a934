package fib

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBuddyNeitherLosesNorDoublesUnits takes and gives back runs of all sizes: none overlap, none leave their chunk,
// and in the end all chunks are whole.
func TestBuddyNeitherLosesNorDoublesUnits(t *testing.T) {
	type run struct {
		unit uint32
		n    int
	}
	rapid.Check(t, func(t *rapid.T) {
		var b buddy
		const chunks = 3
		for range chunks {
			b.grow()
		}
		var used [chunks * chunkUnits]bool
		var runs []run
		free := chunks * chunkUnits
		giveBack := func(i int) {
			r := runs[i]
			runs[i] = runs[len(runs)-1]
			runs = runs[:len(runs)-1]
			for u := range r.n {
				used[int(r.unit)+u] = false
			}
			free += r.n
			b.release(r.unit, r.n)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(runs) > 0 && rapid.IntRange(0, 2).Draw(t, "give back") == 0 {
				giveBack(rapid.IntRange(0, len(runs)-1).Draw(t, "which"))
				continue
			}
			n := rapid.OneOf(rapid.IntRange(1, 40), rapid.SampledFrom([]int{1, 16, 64, 160, 2047, 4096})).Draw(t,
				"units")
			unit, ok := b.alloc(n)
			if !ok {
				if n == 1 && free > 0 {
					t.Fatalf("no unit to be had, though %d are free", free)
				}
				continue
			}
			if unit/chunkUnits != (unit+uint32(n)-1)/chunkUnits {
				t.Fatalf("%d units at %d are in two chunks", n, unit)
			}
			for u := range n {
				if used[int(unit)+u] {
					t.Fatalf("unit %d was handed out twice", int(unit)+u)
				}
				used[int(unit)+u] = true
			}
			free -= n
			runs = append(runs, run{unit, n})
		}
		for len(runs) > 0 {
			giveBack(0)
		}
		for range chunks {
			if _, ok := b.alloc(chunkUnits); !ok {
				t.Fatal("a chunk is not whole after everything was given back")
			}
		}
	})
}
