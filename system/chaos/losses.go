package chaos

import (
	"fmt"
	"strings"
)

// gaps tells which of the numbers below end never came.
func (f *flow) gaps(end uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for k := uint64(0); k < end; {
		first := k
		for ; k < end && !f.has(k); k++ {
		}
		if k > first {
			list = append(list, fmt.Sprintf("%d packets from %d on", k-first, first))
		}
		k++
	}
	return strings.Join(list[:min(len(list), 10)], ", ")
}

// has tells whether a number came; f.mu is held.
func (f *flow) has(k uint64) bool { return uint64(len(f.seen)) > k/64 && f.seen[k/64]&(1<<(k%64)) != 0 }
