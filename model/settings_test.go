package model

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func settable() Network {
	return Network{Name: "lab", Elements: []Element{{Name: "r1", Kind: Router},
		{Name: "r2", Kind: Router, Amounts: Amounts{CPU: 1000}}},
		Links: []Link{{Name: "r1--r2", Ends: [2]End{{"r1", "r2"}, {"r2", "r1"}}}}}
}

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		object, values string
		want           func(*Network)
		marks          Settings
	}{
		{"", "bandwidth=1Gbit cpu=2 memory=1GiB mode=strict owner=alice",
			func(n *Network) {
				n.Slice = Slice{CPU: 2000, Memory: 1 << 30, Bandwidth: 1e9, Mode: "strict"}
				n.Owner = "alice"
			}, Settings{Network: []string{"bandwidth", "cpu", "memory", "mode", "owner"}}},
		{"r1", "cpu=0.5 memory=256MiB processes=100 open-files=2000 disk=1GiB forwarding=guest hook=tc",
			func(n *Network) {
				e := &n.Elements[0]
				e.CPU, e.Memory, e.Processes, e.OpenFiles, e.Disk, e.Forwarding, e.Hook = 500, 256<<20, 100, 2000, 1<<30,
					ForwardGuest, HookTC
			}, Settings{Elements: map[string][]string{"r1": {"cpu", "disk", "forwarding", "hook",
				"memory", "open-files", "processes"}}}},
		{"r1--r2", "bandwidth=100Mbit delay=10ms jitter=1ms loss=1% mtu=9000",
			func(n *Network) {
				l := &n.Links[0]
				l.Bandwidth, l.Delay, l.Jitter, l.Loss, l.MTU = 1e8, 10e6, 1e6, 0.01, 9000
			}, Settings{Links: map[string][]string{"r1--r2": {"bandwidth", "delay", "jitter", "loss", "mtu"}}}},
		{"r2", "cpu=", func(n *Network) { n.Elements[1].CPU = 0 }, Settings{}},
		{"r1--r2", "loss=0", func(*Network) {}, Settings{Links: map[string][]string{"r1--r2": {"loss"}}}},
	} {
		before, want := settable(), settable()
		c.want(&want)
		got, marks, errs := Assign(before, Settings{}, c.object, values(c.values))
		if len(errs) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: %v\n got %+v\nwant %+v", c.object, c.values, errs, got, want)
		}
		if len(marks.Elements)+len(marks.Links)+len(marks.Network) == 0 {
			marks = Settings{}
		}
		if !reflect.DeepEqual(marks, c.marks) {
			t.Errorf("%s %s: marks %+v, want %+v", c.object, c.values, marks, c.marks)
		}
		if !reflect.DeepEqual(before, settable()) {
			t.Errorf("%s %s: the network given was changed", c.object, c.values)
		}
	}
}

func values(text string) (all []Assignment) {
	for _, w := range strings.Fields(text) {
		key, value, _ := strings.Cut(w, "=")
		all = append(all, Assignment{key, value})
	}
	return all
}

func TestAssignRefuses(t *testing.T) {
	for _, c := range []struct{ object, values, want string }{
		{"r1", "cpus=1", `an element has no key "cpus" that can be set; there are cpu=0.5, memory=`},
		{"r1", "bandwidth=1Gbit", `an element has no key "bandwidth"`},
		{"", "loss=1%", `a network has no key "loss" that can be set; there are cpu=4`},
		{"r1--r2", "cpu=1", `a link has no key "cpu"`},
		{"r1", "cpu=x", `cpu: "x" is no number of CPU cores`},
		{"r1", "memory=1", `memory: "1" is no size: it has no unit`},
		{"r1", "processes=-1", `processes: "-1" is no whole number`},
		{"r1", "cpu=0", "cpu: 0 is no limit at all; write cpu= for the default"},
		{"r1", "cpu=1 cpu=2", "cpu is set twice"},
		{"r3", "cpu=1", "network lab has neither an element nor a link called r3"},
		{"r1", "cpu=1 memory=x", `memory: "x"`},
	} {
		_, _, errs := Assign(settable(), Settings{}, c.object, values(c.values))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.object, c.values, errs, c.want)
		}
	}
}

// What was set stays where a document does not name it, and goes to the document where it does.
func TestInherit(t *testing.T) {
	old, marks, errs := Assign(settable(), Settings{}, "r1", values("cpu=0.5 memory=256MiB"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	old, marks, _ = Assign(old, marks, "r1--r2", values("loss=1% bandwidth=1Mbit"))
	old, marks, _ = Assign(old, marks, "", values("bandwidth=1Gbit"))
	doc := settable()
	doc.Elements[0].CPU = 2000
	doc.Elements[1].CPU = 0 // it was the document's, which no longer says it
	doc.Links[0].Bandwidth = 5e6
	given := doc.Elements[0]
	got, left := Inherit(doc, old, marks)
	if e := got.Elements[0]; e.CPU != 2000 || e.Memory != 256<<20 || got.Elements[1].CPU != 0 {
		t.Errorf("elements are %+v", got.Elements)
	}
	if l := got.Links[0]; l.Bandwidth != 5e6 || l.Loss != 0.01 || got.Slice.Bandwidth != 1e9 {
		t.Errorf("link %+v, slice %+v", l, got.Slice)
	}
	want := Settings{Network: []string{"bandwidth"}, Elements: map[string][]string{"r1": {"memory"}},
		Links: map[string][]string{"r1--r2": {"loss"}}}
	if !reflect.DeepEqual(left, want) {
		t.Errorf("marks %+v, want %+v", left, want)
	}
	if !reflect.DeepEqual(doc.Elements[0], given) {
		t.Error("the document given was changed")
	}
	// A zero that the document states is what it says.
	doc.Elements[0].CPU, doc.Links[0].Loss = 0, 0
	doc.Zeros = Settings{Elements: map[string][]string{"r1": {"memory"}},
		Links: map[string][]string{"r1--r2": {"loss"}}}
	got, left = Inherit(doc, old, marks)
	if e, l := got.Elements[0], got.Links[0]; e.CPU != 500 || e.Memory != 0 || l.Loss != 0 ||
		!reflect.DeepEqual(left.Elements, map[string][]string{"r1": {"cpu"}}) || left.Links != nil ||
		!reflect.DeepEqual(got.Zeros, Settings{}) {
		t.Errorf("with zeros stated: %+v, %+v, marks %+v", e, l, left)
	}
	doc.Zeros = Settings{}
	// What has gone is not remembered.
	doc.Elements, doc.Links = doc.Elements[1:], nil
	if got, left = Inherit(doc, old, marks); len(left.Elements)+len(left.Links) != 0 || len(got.Elements) != 1 {
		t.Errorf("%+v, marks %+v", got, left)
	}
	// Nor is what belongs to an element of another kind: a host cannot forward as a router was told to.
	old, marks, errs = Assign(settable(), Settings{}, "r1", values("forwarding=xdp cpu=1"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, left = Inherit(Network{Elements: []Element{{Name: "r1", Kind: Host}}}, old,
		marks); got.Elements[0].Forwarding != "" ||
		got.Elements[0].CPU != 0 || len(left.Elements) != 0 {
		t.Errorf("a host has what was set on a router: %+v, marks %+v", got, left)
	}
}

func TestQuotaRefuses(t *testing.T) {
	q, errs := Quota{}.Assign(values("networks=2 elements=10 cpu=2 memory=1GiB disk=10GiB"))
	if len(errs) > 0 || q != (Quota{Networks: 2, Elements: 10, CPU: 2000, Memory: 1 << 30, Disk: 10 << 30}) {
		t.Fatalf("%+v, %v", q, errs)
	}
	net := settable()
	net.Elements[0].Software, net.Elements[1].Software = SoftwareFRR, SoftwareStatic
	d, unbound := DemandOf(net)
	if d != (Quota{Networks: 1, Elements: 2, CPU: 1000, Memory: DefaultMemory, Disk: 256 << 20, Stored: net.Size()}) ||
		len(unbound) != 1 || unbound[0] != "r1" {
		t.Errorf("demand %+v, without cpu %v", d, unbound)
	}
	for _, c := range []struct {
		demand, was, besides Quota
		want                 []string
	}{
		{Quota{Networks: 1, Elements: 10, CPU: 2000, Memory: 1 << 30, Disk: 10 << 30}, Quota{},
			Quota{Networks: 1}, nil},
		{Quota{Networks: 1, Elements: 5}, Quota{}, Quota{Networks: 2, Elements: 6}, []string{
			"alice's quota of networks is 2: it asks for 1, other networks have 2, which is 1 too much",
			"alice's quota of elements is 10: it asks for 5, other networks have 6, which is 1 too much"}},
		{Quota{Networks: 1, CPU: 2500, Memory: 2 << 30}, Quota{}, Quota{},
			[]string{"alice's quota of cores is 2: it asks for 2.5, which is 0.5 too much",
				"memory is 1GiB: it asks for 2GiB, which is 1GiB too much"}},
		{Quota{Networks: 1, Elements: 11}, Quota{Networks: 1, Elements: 12}, Quota{}, nil}, // it was more before
	} {
		got := q.Refuses("alice", c.demand, c.was, c.besides, nil)
		if len(got) != len(c.want) {
			t.Errorf("%+v: %v, want %v", c.demand, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i].Error(), c.want[i]) {
				t.Errorf("%+v: %v, want %v", c.demand, got, c.want)
			}
		}
	}
	if got := q.Refuses("alice", d, Quota{}, Quota{}, unbound); len(got) != 1 ||
		!strings.Contains(got[0].Error(), "without cpu: r1 would not be limited") {
		t.Errorf("without cpu: %v", got)
	}
}

// TestWordsAreOffered: of a key whose values are words, `set` offers these, and of others none.
func TestWordsAreOffered(t *testing.T) {
	for _, c := range []struct {
		of   func(string) []string
		key  string
		want []string
	}{
		{WordsOfElement, "hook", []string{"auto", "tc", "xdp"}},
		{WordsOfElement, "forwarding", []string{"guest", "router", "bridge", "openflow", "xdp"}},
		{WordsOfElement, "attack", []string{"tell", "quarantine", "stop", "delete"}},
		{WordsOfNetwork, "attack", []string{"tell", "quarantine", "stop", "delete"}},
		{WordsOfNetwork, "hook", nil},
		{WordsOfNetwork, "owner", nil},
		{WordsOfElement, "cpu", nil},
	} {
		if got := c.of(c.key); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.key, got, c.want)
		}
	}
}

// A document of an earlier version has marks by names that keys had then. What was set stays so, and can be given back.
func TestRenamedKeysStaySet(t *testing.T) {
	old := settable()
	old.Elements[0].OpenFiles = 2000
	marks := Settings{Elements: map[string][]string{"r1": {"cpu", "files"}}}
	doc, left := Inherit(settable(), old, marks)
	if doc.Elements[0].OpenFiles != 2000 || !slices.Contains(left.Elements["r1"], "open-files") {
		t.Errorf("an apply makes %d of what was set, with the marks %v", doc.Elements[0].OpenFiles, left)
	}
	net, left, errs := Assign(old, marks, "r1", values("open-files="))
	if len(errs) > 0 || net.Elements[0].OpenFiles != 0 || !slices.Equal(left.Elements["r1"], []string{"cpu"}) {
		t.Errorf("given back, it is %d, with the marks %v: %v", net.Elements[0].OpenFiles, left, errs)
	}
	_, _, errs = Assign(old, marks, "r1", values("files=3000"))
	if len(errs) != 1 || errs[0].Error() != "files is called open-files by now; write open-files=" {
		t.Errorf("its earlier name is answered by %v", errs)
	}
	data, err := json.Marshal(old.Elements[0])
	if err != nil || !strings.Contains(string(data), `"files":2000`) {
		t.Errorf("documents have it as %s: those that are stored, and nodes of earlier versions, know another name (%v)",
			data, err)
	}
}
