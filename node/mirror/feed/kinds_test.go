package feed

import (
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestKindsAreTheSame: what the feed converts by its number means the same in both packages, which do not know each
// other.
func TestKindsAreTheSame(t *testing.T) {
	for k := mirror.KindNone; k <= mirror.KindForward; k++ {
		if got, want := fib.Kind(k).String(), k.String(); got != want {
			t.Errorf("kind %d is %s in the tables, and %s in the mirror", k, got, want)
		}
	}
	if next := mirror.KindForward + 1; fib.Kind(next).String() != next.String() {
		t.Errorf("kind %d is %s in the tables, and the mirror has none", next, fib.Kind(next))
	}
}
