package resolve

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// settable is a network with one object of each kind.
func small() model.Network {
	return model.Network{Name: "lab", Elements: []model.Element{{Name: "r1", Kind: model.Router},
		{Name: "r2", Kind: model.Router, Amounts: model.Amounts{CPU: 1000}}},
		Links: []model.Link{{Name: "r1--r2", Ends: [2]model.End{{Element: "r1", Interface: "r2"},
			{Element: "r2", Interface: "r1"}}}}}
}

func TestLimits(t *testing.T) {
	l := (&model.Element{}).Limits()
	for _, k := range l.Keys() {
		if k.Zero(&l) != (k.Name == "cpu") {
			t.Errorf("by default %s is %s; nothing but the cores is without a bound", k.Name, k.Text(&l))
		}
	}
	if l.Memory != model.DefaultMemory || l.Processes != model.DefaultProcesses || l.Connections != 65536 ||
		l.OpenFiles != 4096 || l.Disk != 256<<20 {
		t.Errorf("by default %+v", l)
	}
	for _, c := range []struct {
		e    model.Element
		want string
	}{
		{model.Element{Amounts: model.Amounts{Processes: 10}},
			"processes 10 is less than the 64 that routing software needs"},
		{model.Element{Amounts: model.Amounts{Processes: 1 << 30}},
			"processes 1073741824 is more processes than Linux has (at most 4194304)"},
		{model.Element{Amounts: model.Amounts{OpenFiles: 10}}, "files 10 is less than the 256"},
		{model.Element{Amounts: model.Amounts{Disk: 1 << 20}},
			"disk 1MiB is less than the 16MiB that a file system needs"},
		{model.Element{Amounts: model.Amounts{Disk: 1 << 50}},
			"disk 1024TiB is more than an element may have (at most 4TiB)"},
	} {
		net := small()
		c.e.Name, c.e.Kind = "r1", model.Router
		net.Elements[0] = c.e
		if _, p := Read(net); len(p) != 1 || !strings.Contains(p[0].Message, c.want) {
			t.Errorf("%+v: %v, want %q", c.e, p, c.want)
		}
	}
}

// TestBoundsOfKeys asks for less than the least and more than the most.
func TestBoundsOfKeys(t *testing.T) {
	for key, c := range map[string]struct {
		set  func(*model.Network)
		want string
	}{
		"memory": {func(n *model.Network) { n.Elements[0].Memory = 1 },
			"memory 1B is less than the 8MiB that a process needs to start"},
		"connections": {func(n *model.Network) { n.Elements[0].Connections = 1 << 23 },
			"connections 8388608 is more tracked connections than Linux has (at most 4194304)"},
		"slice/memory": {func(n *model.Network) { n.Slice.Memory = 1 << 50 },
			"slice: memory 1024TiB is more than any machine has (at most 64TiB)"},
		"slice/punts": {func(n *model.Network) { n.Slice.Punts = 5 },
			"slice: punts 5 is less than the 100 a second that finding neighbours needs"},
		"loss": {func(n *model.Network) { n.Links[0].Loss = 1.5 },
			"loss 1.5 is more than all packets (at most 1)"},
		"jitter": {func(n *model.Network) { n.Links[0].Jitter = -1 },
			"jitter -1ns is less than the 0s that is none"},
	} {
		net := small()
		c.set(&net)
		_, p := Read(net)
		if len(p) != 1 || p[0].Field != key || !strings.Contains(p[0].Message, c.want) {
			t.Errorf("%s: %v, want %s", key, p, c.want)
		}
	}
}
