package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// TestPurgeFollowsFromRegistration: a driver that is registered is cleared away: on each node, or on those that are
// named; for all nodes together only if none is named; and what fails of one keeps nobody else from it.
func TestPurgeFollowsFromRegistration(t *testing.T) {
	was := registered
	t.Cleanup(func() { registered = was })
	var done []string
	removes := func(what string) registration {
		note := func(where string) error {
			done = append(done, what+" "+where)
			return fmt.Errorf("%s %s failed", what, where)
		}
		return registration{node: func(d instance.NodeDirs) error { return note(d.Node) },
			all:  func(instance.Dirs) error { return note("all") },
			last: func(instance.Dirs) error { return note("last") }}
	}
	registered = []registration{removes("hypervisor"), {}, removes("switch")}
	dirs := instance.Dirs{Name: "test", Run: t.TempDir()}
	for _, node := range []string{"n1", "n2"} {
		if err := os.MkdirAll(filepath.Join(dirs.Run, "nodes", node), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what string
		run  func() error
		want []string
	}{
		{"all", func() error { return Purge(dirs) }, []string{"hypervisor all", "switch all", "hypervisor n1",
			"switch n1", "hypervisor n2", "switch n2"}},
		{"one node", func() error { return Purge(dirs, "n2") }, []string{"hypervisor n2", "switch n2"}},
		{"the rest", func() error { return PurgeRest(dirs) }, []string{"hypervisor last", "switch last"}},
		{"nothing there", func() error { return Purge(instance.Dirs{Run: filepath.Join(dirs.Run, "none")}) },
			[]string{"hypervisor all", "switch all"}},
	} {
		done = nil
		err := c.run()
		if !slices.Equal(done, c.want) {
			t.Errorf("%s: done %q, want %q", c.what, done, c.want)
		}
		for _, what := range c.want {
			if err == nil || !strings.Contains(err.Error(), what+" failed") {
				t.Errorf("%s: of %q the error %v tells nothing", c.what, what, err)
			}
		}
	}
	registered = []registration{{make: func(*site) error { return errors.New("no /dev/kvm") }}}
	if _, err := NewDrivers(dirs.Node("n1"), netip.Addr{}, ""); err == nil || err.Error() != "no /dev/kvm" {
		t.Errorf("a driver that cannot be made gave %v", err)
	}
}

// TestSwitchesAreBounded: the agent trims drivers and planes that can do it, and that of switches can, where a kernel
// does not bound by itself what a bridge learns.
func TestSwitchesAreBounded(t *testing.T) {
	s := &site{Drivers: Drivers{Planes: map[PlaneOf]forward.Plane{}}}
	if err := s.switches(); err != nil {
		t.Fatal(err)
	}
	plane := s.Planes[s.planeOf(&model.NodeElement{PlacedElement: model.PlacedElement{Kind: model.Switch,
		Forwarding: model.ForwardBridge}})]
	if _, ok := plane.(control.Trimmer); !ok {
		t.Errorf("%T cannot be asked to bound what switches learn", plane)
	}
}
