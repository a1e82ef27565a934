package feed

import (
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestKindsAreTheSame: what the feed converts by its number means the same in both packages, which do not know each
// other. The tables' types are words that the eBPF programs read; the mirror's are told to whoever follows routes.
func TestKindsAreTheSame(t *testing.T) {
	for k := mirror.KindNone; k <= mirror.KindForward; k++ {
		if got, want := fib.Kind(k).String(), k.String(); got != want {
			t.Errorf("kind %d is %s in the tables, and %s in the mirror", k, got, want)
		}
	}
	if next := mirror.KindForward + 1; fib.Kind(next).String() != next.String() {
		t.Errorf("kind %d is %s in the tables, and the mirror has none", next, fib.Kind(next))
	}
	for _, f := range []mirror.Family{mirror.IPv4, mirror.IPv6} {
		if got, want := fib.Family(f).String(), f.String(); got != want {
			t.Errorf("family %d is %s in the tables, and %s in the mirror", f, got, want)
		}
	}
	for id, kind := range map[fib.ID]mirror.Kind{fib.LocalID: mirror.KindLocal, fib.ConnectedID: mirror.KindConnected,
		fib.PuntID: mirror.KindPunt, fib.BlackholeID: mirror.KindBlackhole,
		fib.UnreachableID: mirror.KindUnreachable, fib.ProhibitID: mirror.KindProhibit} {
		if fib.ID(kind) != id {
			t.Errorf("the next hop that is always there for %s is %d in the tables, and %d in the mirror", kind, id, kind)
		}
	}
}
