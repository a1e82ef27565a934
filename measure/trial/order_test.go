package trial

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/source"
)

// TestOrderThatCannotBeTold says so where a stream's flows cannot be told apart, instead of a wrong figure.
func TestOrderThatCannotBeTold(t *testing.T) {
	addresses := source.Destinations(netip.MustParseAddr("10.0.0.1"), 4096)
	stream := source.Stream{Headers: frame.Headers{Kind: frame.IPv4}, Destinations: addresses, SourcePorts: 16}
	flows, why := orders([]source.Stream{stream, {Headers: frame.Headers{Kind: frame.Raw}}})
	if why != "" || len(flows) != 2 || flows[0].Count() != 1<<16 || flows[1] != (frame.Flows{}) {
		t.Errorf("%v, %q", flows, why)
	}
	more := stream
	more.SourcePorts = 17
	if flows, why = orders([]source.Stream{more}); flows != nil || !strings.Contains(why, "69632 flows are more") {
		t.Errorf("%v, %q", flows, why)
	}
	stream.Destinations = []netip.Addr{addresses[0], addresses[2]}
	if flows, why = orders([]source.Stream{stream}); flows != nil || !strings.Contains(why, "stream 0 are not in a row") ||
		!strings.Contains(why, "all flows together") {
		t.Errorf("%v, %q", flows, why)
	}
}
