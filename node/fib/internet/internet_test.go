package internet

import (
	"slices"
	"testing"
)

// TestGenerated: the prefixes are different ones, the same ones each time, and routers forward to all of them.
func TestGenerated(t *testing.T) {
	const n4, n6 = 90_000, 16_000
	v4, v6 := Generate(1, n4, n6)
	if again4, again6 := Generate(1, n4, n6); len(v4) != n4 || len(v6) != n6 || !slices.Equal(v4, again4) ||
		!slices.Equal(v6, again6) {
		t.Errorf("%d and %d prefixes, and others the next time", len(v4), len(v6))
	}
	seen := map[any]bool{}
	for _, p := range slices.Concat(v4, v6) {
		a := p.Addr()
		if seen[p] || p != p.Masked() || !a.IsGlobalUnicast() || a.IsPrivate() {
			t.Fatalf("%s is twice there, or no prefix of the Internet", p)
		}
		seen[p] = true
	}
}
