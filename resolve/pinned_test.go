package resolve

import (
	"reflect"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestPinnedKeepsWhatWasChosen has networks that have changed since they were made: a new network of the document that
// is saved has the addresses that the old one has now.
func TestPinnedKeepsWhatWasChosen(t *testing.T) {
	for name, c := range map[string]struct {
		was, is []string
		edit    func(n *model.Network)
		pinned  bool
	}{
		"nothing has changed": {[]string{"r1", "r2", "r1-r2"}, []string{"r1", "r2", "r1-r2"}, nil, false},
		"a link has gone": {[]string{"r1", "r2", "r3", "r1-r2", "r2-r3", "r3-r1"}, []string{"r1", "r2", "r3", "r2-r3",
			"r3-r1"}, nil, true},
		"a link before others": {[]string{"r1", "r2", "r1-r2"}, []string{"r1", "r2", "h1", "h1-r1", "r1-r2"}, nil,
			true},
		"a switch": {[]string{"r1", "r2", "s1", "h1", "r1-r2", "h1-s1", "r1-s1"}, []string{"r1", "r2", "h2", "s1", "h1",
			"h2-s1", "h1-s1", "r1-s1"}, nil, true},
		"a router before others": {[]string{"r1", "r2", "r1-r2"}, []string{"r0", "r1", "r2", "r0-r1", "r1-r2"},
			func(n *model.Network) {
				for i := range n.Elements {
					n.Elements[i].Software, n.Elements[i].Routing.OSPF = model.SoftwareFRR, &model.OSPF{}
				}
			}, true},
	} {
		was, is := build(c.was...), build(c.is...)
		if c.edit != nil {
			c.edit(&was)
			c.edit(&is)
		}
		_, as := resolve(t, was, model.Assigned{})
		document, problems := Read(is)
		if len(problems) > 0 {
			t.Fatal(name, problems)
		}
		now, as, err := document.Resolve(as, NewNumbers(as))
		if err != nil {
			t.Fatal(name, err)
		}
		net, differ, err := Pinned(model.Record{Network: document.Network(), Assigned: as})
		if err != nil || len(differ) > 0 {
			t.Errorf("%s: %v would have other addresses; %v", name, differ, err)
			continue
		}
		if pinned := !reflect.DeepEqual(net, document.Network()); pinned != c.pinned {
			t.Errorf("%s: addresses are written down: %v, want %v", name, pinned, c.pinned)
		}
		if _, problems := Read(net); len(problems) > 0 {
			t.Errorf("%s: the document is refused: %v", name, problems)
		}
		again, _ := resolve(t, net, model.Assigned{})
		if got, want := addresses(again), addresses(now); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: made anew, the network has\n%v\ninstead of\n%v", name, got, want)
		}
		for i := range now.Elements {
			if a, b := now.Elements[i], again.Elements[i]; a.RouterID != b.RouterID ||
				!slices.Equal(a.Loopback, b.Loopback) || !slices.Equal(a.Gateways, b.Gateways) {
				t.Errorf("%s: %s: router ID %s, loopback %v, gateways %v; was %s, %v, %v", name, a.Name, b.RouterID,
					b.Loopback, b.Gateways, a.RouterID, a.Loopback, a.Gateways)
			}
		}
	}
}
