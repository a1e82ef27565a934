package manager

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// finders are nodes whose agents tell what they found.
type finders struct {
	*testing.T
	*fixture
}

func newFinders(t *testing.T, nodes int) *finders {
	f := &finders{t, start(t, t.TempDir(), substrateOf(nodes))}
	for i := range nodes {
		_, end, err := f.Watch(fmt.Sprintf("n%d", i+1), true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
	}
	return f
}

// wire is a device, up, on which nodes are heard as "node/port".
func wire(device string, heard ...string) model.Wire {
	w := model.Wire{Device: device, Up: true}
	for _, h := range heard {
		node, port, _ := strings.Cut(h, "/")
		w.Nodes = append(w.Nodes, model.HeardNode{Node: node, Port: port})
	}
	return w
}

// tell has a node tell what it found.
func (f *finders) tell(node string, settled bool, wires ...model.Wire) {
	f.Helper()
	if _, err := f.Discover(model.Discovery{Node: node, Key: bytes.Repeat([]byte{node[1]}, 32), Settled: settled,
		Wires: wires}); err != nil {
		f.Fatal(err)
	}
}

// found is what is known of the link between two nodes, or to a switch; "" when that is nothing.
func (f *finders) found(a, b string) model.FoundState {
	f.Helper()
	d, err := f.Dump("", api.Parts{Nodes: true})
	if err != nil {
		f.Fatal(err)
	}
	for _, l := range d.Substrate {
		if l.A == a && l.B == b && l.Found != nil {
			return l.Found.State
		}
	}
	return ""
}

// told are the events of discovery so far, as "object reason".
func (f *finders) told() (all []string) {
	events, _ := f.Events(0)
	for _, e := range events {
		if slices.Contains([]string{"LinkFound", "LinkLost", "CapacityChanged", "ReportRefused"}, e.Reason) {
			all = append(all, e.Object+" "+e.Reason)
		}
	}
	return all
}

func (f *finders) expect(what string, is model.FoundState, want model.FoundState, told ...string) {
	f.Helper()
	if is != want {
		f.Errorf("%s: it is %q, and not %q", what, is, want)
	}
	if got := f.told(); !slices.Equal(got, told) {
		f.Errorf("%s: told was %q, and not %q", what, got, told)
	}
}

func TestLinksCountWhenBothEndsFindThem(t *testing.T) {
	f := newFinders(t, 2)
	f.tell("n1", false)
	f.tell("n1", false, wire("a", "n2/b"))
	f.expect("one end", f.found("n1", "n2"), "")
	f.tell("n2", false, wire("c", "n1/a"))
	f.expect("another device than the one that was heard", f.found("n1", "n2"), model.FoundOne)
	f.tell("n2", false, wire("b", "n1/a"))
	const both, gone = "n1 -- n2 LinkFound", "n1 -- n2 LinkLost"
	f.expect("both", f.found("n1", "n2"), model.FoundBoth, both)
	f.tell("n1", false, wire("a"))
	f.expect("an agent that has just started has not heard everybody", f.found("n1", "n2"), model.FoundBoth, both)
	f.tell("n1", true, wire("a", "n2/b"))
	f.tell("n2", true, wire("b", "n1/a"))
	f.tell("n1", true, wire("a"))
	f.expect("lost", f.found("n1", "n2"), model.FoundOne, both, gone)
	f.tell("n2", true, wire("b"))
	f.expect("by both", f.found("n1", "n2"), model.FoundLost, both, gone)
	f.tell("n1", true, wire("a", "n2/b"))
	f.tell("n2", true, wire("b", "n1/a"))
	f.expect("again", f.found("n1", "n2"), model.FoundBoth, both, gone, both)
	f.tell("n1", false, model.Wire{Device: "a"}) // its agent has started, and its device has no carrier
	f.expect("cut", f.found("n1", "n2"), model.FoundOne, both, gone, both, gone)
}

// TestARestartOfTheManagerIsNoNews: nodes that have been listening for long tell of what was found long ago.
func TestARestartOfTheManagerIsNoNews(t *testing.T) {
	f := newFinders(t, 2)
	f.tell("n1", true, wire("a", "n2/b"))
	f.tell("n2", true, wire("b", "n1/a"))
	f.expect("found", f.found("n1", "n2"), model.FoundBoth)
}

// TestNodesTellOfThemselvesOnly has a node tell what it must not, and more than there can be.
func TestNodesTellOfThemselvesOnly(t *testing.T) {
	f := newFinders(t, 3)
	f.tell("n1", true, wire("a"))
	f.tell("n2", true, wire("b"))
	f.tell("n3", true, wire("c", "n1/a", "n2/b")) // neither hears it
	f.expect("it says so alone", f.found("n2", "n3"), model.FoundOne)
	f.expect("it says so alone", f.found("n1", "n3"), "") // which is not stated
	f.expect("of others", f.found("n1", "n2"), model.FoundNone)
	long := strings.Repeat("x", 5000)
	d := model.Discovery{Node: "n3", Key: []byte("short"), Off: long, Processor: long, Unknown: make([]string, 5000)}
	for i := range 5000 {
		d.Interfaces = append(d.Interfaces, model.NodeInterface{Name: long, Kind: long, MAC: long, Master: long, MTU: -1})
		w := wire(fmt.Sprintf("d%d", i), "n1/a", "n9/x", "n2/"+long)
		w.Problem = long
		for range 100 {
			w.Switches = append(w.Switches, model.HeardSwitch{Chassis: long, Port: long, Name: long})
		}
		d.Wires = append(d.Wires, w, wire(long, "n1/a"))
	}
	a, err := f.Discover(d)
	if err != nil || len(a.Keys) != 0 {
		t.Fatal(err, a)
	}
	is := f.nodes["n3"].found
	size, switches := 0, 0
	for _, w := range is.Wires {
		size += len(w.Device) + len(w.Problem)
		switches += len(w.Switches) + len(w.Nodes)
		for _, s := range w.Switches {
			size += len(s.Chassis) + len(s.Name) + len(s.Port)
		}
	}
	for _, o := range is.Interfaces {
		size += len(o.Name) + len(o.Kind) + len(o.MAC) + len(o.Master)
	}
	if size > 4<<20 || switches > maxToldHeard+model.MaxHeardSwitches || len(is.Processor) > 2*maxToldWord || is.Key != nil ||
		len(is.Interfaces) > model.MaxToldInterfaces || len(is.Wires) > model.MaxWires {
		t.Errorf("%d bytes are kept, and %d that were heard", size, switches)
	}
	if got := f.told(); !slices.Equal(got, []string{"n3 ReportRefused"}) {
		t.Errorf("told was %q", got)
	}
	if _, err := f.Discover(model.Discovery{Node: "n9"}); err == nil {
		t.Error("a node that there is not tells what it found")
	}
}

func TestKeysAreTold(t *testing.T) {
	f := newFinders(t, 2)
	f.tell("n1", false)
	a, err := f.Discover(model.Discovery{Node: "n2", Unknown: []string{"n1", "n2", "n9"}})
	if err != nil || len(a.Keys) != 1 || !bytes.Equal(a.Keys["n1"], bytes.Repeat([]byte{'1'}, 32)) {
		t.Errorf("the keys are %v, %v", a, err)
	}
}

func TestChangedCapacitiesAreTold(t *testing.T) {
	f := newFinders(t, 2)
	stated := f.Substrate()
	at := func(speed model.Bandwidth) model.Wire {
		w := wire("a", "n2/b")
		w.Speed = speed
		return w
	}
	b := wire("b", "n1/a")
	b.Speed = 25e9
	f.tell("n1", true, at(10e9))
	f.tell("n2", true, b)
	f.tell("n1", true, at(1e9))
	f.tell("n1", true, at(0)) // not known for a moment
	f.tell("n1", true, at(1e9))
	f.tell("n1", true, at(10e9))
	if got := f.told(); !slices.Equal(got, []string{"n1 -- n2 CapacityChanged", "n1 -- n2 CapacityChanged"}) {
		t.Errorf("told was %q", got)
	}
	d, err := f.Dump("", api.Parts{Nodes: true})
	if err != nil || d.Substrate[0].Found.Speed != 10e9 {
		t.Errorf("found is %+v, %v", d.Substrate[0].Found, err)
	}
	if is := f.Substrate(); !slices.Equal(is.Links, stated.Links) {
		t.Errorf("what is stated was %+v, and is %+v", stated.Links, is.Links)
	}
}

// TestSwitchesThatSeveralHearAreVertices: one node's word for a switch is not enough.
func TestSwitchesThatSeveralHearAreVertices(t *testing.T) {
	f := newFinders(t, 3)
	hears := func(device, chassis, port string) model.Wire {
		w := wire(device)
		w.Switches = []model.HeardSwitch{{Chassis: chassis, Port: port, Name: "core1"}}
		return w
	}
	f.tell("n1", true, hears("a", "00:1b:21:01:02:03", "Gi1"))
	f.tell("n3", true, hears("c", "00:1b:21:ff:ff:ff", "Gi1")) // of the same name
	f.expect("one hears it", f.found("n1", "core1"), "")
	f.tell("n2", true, hears("b", "00:1b:21:01:02:03", "Gi2"))
	f.expect("two hear it", f.found("n1", "core1"), model.FoundSwitch)
	f.expect("two hear it", f.found("n2", "core1"), model.FoundSwitch)
	f.expect("a third hears another one", f.found("n3", "core1"), "")
	f.tell("n2", true, wire("b"))
	f.expect("one hears it still", f.found("n1", "core1"), "")
}

// TestWhatIsHeardTwiceCountsOnce has two nodes say the same again and again.
func TestWhatIsHeardTwiceCountsOnce(t *testing.T) {
	f := newFinders(t, 2)
	a, b := wire("a", "n2/b", "n2/b", "n2/b"), wire("b", "n1/a", "n1/a")
	a.Speed, b.Speed = 10e9, 10e9
	f.tell("n1", true, a)
	f.tell("n2", true, b)
	f.expect("both", f.found("n1", "n2"), model.FoundBoth)
	if is := f.nodes["n1"].found.Wires[0].Nodes; len(is) != 1 || f.Manager.known.found[[2]string{"n1", "n2"}].speed != 10e9 {
		t.Errorf("kept is %v", is)
	}
}
