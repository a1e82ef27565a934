package system

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"

	"github.com/polyplane/polyplane/system/sandbox"
)

// within runs f in a network namespace, on a thread of its own.
func within(t testing.TB, namespace string, f func() error) {
	t.Helper()
	if err := sandbox.Within(namespace, f); err != nil {
		t.Fatal(err)
	}
}

// object is what must not change of a device or a port when something else is put right.
type object struct {
	Index    int
	Counters [2]uint64 // packets received and sent
}

// objects are all devices of the instance, in all its namespaces ("n1/r1 h1": those of element r1 of n1; "n1 ppx": of
// the node), and the fabric's counters of every port ("port lab/r1:h1").
func (p *platform) objects() map[string]object {
	p.t.Helper()
	all := map[string]object{}
	nodes, err := filepath.Glob(filepath.Join(p.dirs.Run, "nodes", "*", "node.net"))
	if err != nil || len(nodes) == 0 {
		p.t.Fatalf("nodes: %v, %v", nodes, err)
	}
	devices := func(owner, namespace string) {
		within(p.t, namespace, func() error {
			links, err := linux.Whole(netlink.LinkList)
			for _, l := range links {
				at := l.Attrs()
				all[owner+" "+at.Name] = object{at.Index, [2]uint64{at.Statistics.RxPackets, at.Statistics.TxPackets}}
			}
			return err
		})
	}
	for _, path := range nodes {
		devices(filepath.Base(filepath.Dir(path)), path)
	}
	keys := map[string]string{}
	for _, e := range p.all() {
		id := e.ID
		if keys[id.Network] == "" {
			keys[id.Network] = p.key(id.Network)
		}
		id.Network = keys[id.Network]
		devices(e.ID.String(), p.dirs.Node(e.Node).Namespace(id))
	}
	var links []model.LinkStatus
	if err := json.Unmarshal([]byte(p.run("get", "links", "-o", "json")), &links); err != nil {
		p.t.Fatal(err)
	}
	for _, l := range links {
		for _, port := range l.Ports {
			all["port "+port.ID.String()] = object{port.Index, [2]uint64{port.RxPackets, port.TxPackets}}
		}
	}
	return all
}

// all are the elements of all networks.
func (p *platform) all() []model.ElementView {
	p.t.Helper()
	var views []model.ElementView
	if err := json.Unmarshal([]byte(p.run("get", "elements", "-o", "json")), &views); err != nil {
		p.t.Fatal(err)
	}
	return views
}

// untouched compares with what was: no device went, came, or has another index, and no counter went back. What changed
// may differ, but a port's counters survive even its device.
func (p *platform) untouched(before map[string]object, changed ...string) {
	p.t.Helper()
	after := p.objects()
	for name, was := range before {
		now, there := after[name]
		excused := slices.Contains(changed, name)
		switch {
		case !there:
			p.t.Errorf("%s is gone", name)
		case !excused && now.Index != was.Index:
			p.t.Errorf("%s had index %d and has %d", name, was.Index, now.Index)
		case (!excused || strings.HasPrefix(name, "port ")) &&
			(now.Counters[0] < was.Counters[0] || now.Counters[1] < was.Counters[1]):
			p.t.Errorf("the counters of %s went back: %d, before %d", name, now.Counters, was.Counters)
		}
	}
	for name := range after {
		if _, there := before[name]; !there {
			p.t.Errorf("%s was not there before", name)
		}
	}
}

// allWell waits until every pair of hosts of every network reaches each other.
func (p *platform) allWell(networks ...string) {
	p.t.Helper()
	for _, n := range networks {
		if out, stderr, err := p.try("check", n, "--mesh", "--wait", "3m"); err != nil {
			p.t.Fatalf("check %s: %v\n%s%s", n, err, out, stderr)
		}
	}
}
