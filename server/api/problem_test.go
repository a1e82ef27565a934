package api

import "testing"

func TestEachKindHasAStatusOfItsOwn(t *testing.T) {
	seen := map[int]Kind{}
	for k := KindInvalid; k <= kindStrange; k++ {
		status := statuses[k]
		if other, twice := seen[status]; twice || status < 400 || status > 599 || k.String() == "" {
			t.Errorf("kind %d has status %d (%s), and %d has it, too: %v", k, status, k, other, twice)
		}
		seen[status] = k
	}
}
