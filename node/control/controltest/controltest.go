// Package controltest checks that a control driver does what package control says, whatever it makes elements of. Each
// driver's tests call Conforms.
package controltest

import (
	"net"
	"os/exec"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// Subject is a driver under test. The test's thread is in the node's network namespace, where nobody else makes
// devices.
type Subject struct {
	// Restart makes the driver, and makes it again as an agent's restart does: it knows nothing of what the one before
	// did.
	Restart func() control.Driver
	// Job is an element with this name that the driver can make, with at least two interfaces. No two elements have
	// anything in common.
	Job func(name string) control.Job
	// Spoil makes of a good job one that cannot be made, without any damage to what is there.
	Spoil func(*control.Job)
}

// Conforms runs the checks one after another, on two elements, which are removed at the end.
func Conforms(t *testing.T, s Subject) {
	c := &check{T: t, s: s, d: s.Restart(), before: devices(t)}
	c.jobs = []control.Job{s.Job("first"), s.Job("second")}
	for _, step := range []struct {
		what string
		run  func()
	}{
		{"offers something, and says why it lacks the rest", c.offers},
		{"makes what is asked for", c.makes},
		{"touches nothing that is right", func() { c.same("applied again") }},
		{"puts right what is altered, and that only", c.mends},
		{"finds again after a restart what it has made", c.restarts},
		{"removes nothing that it was not asked to remove", c.keeps},
		{"is kept from nothing by an element that fails", c.fails},
		{"removes what it is asked to remove, and that only", c.removes},
	} {
		if c.what = step.what; !c.Failed() {
			step.run()
		}
	}
}

type check struct {
	*testing.T
	s      Subject
	d      control.Driver
	jobs   []control.Job
	made   []control.Result // when all was made
	before []string         // the node's devices
	what   string
}

func (c *check) errorf(format string, a ...any) {
	c.Helper()
	c.Errorf("a driver "+c.what+": "+format, a...)
}

// devices are the names of the node's devices.
func devices(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// apply applies and wants results in the jobs' order, without errors.
func (c *check) apply(jobs ...control.Job) []control.Result {
	c.Helper()
	results := c.d.Apply(c.Context(), jobs)
	if len(results) != len(jobs) {
		c.Fatalf("a driver %s: %d results of %d jobs", c.what, len(results), len(jobs))
	}
	for i, r := range results {
		if r.ID != jobs[i].ID || r.Err != nil {
			c.errorf("result %d is that of %s (%v), want %s", i, r.ID, r.Err, jobs[i].ID)
		}
	}
	return results
}

func (c *check) offers() {
	offers := c.d.Offers(c.Context())
	if len(offers) == 0 {
		c.errorf("it offers nothing")
	}
	for _, o := range offers {
		for feature, why := range o.Lacks {
			if why == "" {
				c.errorf("it lacks %s, and does not say why", feature)
			}
		}
	}
}

func (c *check) makes() {
	c.made = c.apply(c.jobs...)
	for i, r := range c.made {
		if len(r.Changed) == 0 || r.Changed[0].Kind != change.ElementCreated {
			c.errorf("%s was made, and told is %+v", r.ID, r.Changed)
		}
		if r.Phase == "" || r.Phase == model.PhaseFailed {
			c.errorf("%s is %q", r.ID, r.Phase)
		}
		interfaces := c.jobs[i].Element.Interfaces
		if len(r.Devices) != len(interfaces) {
			c.Fatalf("a driver %s: %s has %d devices for %d interfaces", c.what, r.ID, len(r.Devices), len(interfaces))
		}
		for k, d := range r.Devices {
			there, err := net.InterfaceByName(d.Name)
			if err != nil || there.Index != d.Index || d.Interface != interfaces[k].Name {
				c.errorf("interface %s of %s is %+v; the node has %+v (%v)", interfaces[k].Name, r.ID, d, there, err)
			}
		}
	}
}

// same wants that nothing is to be done.
func (c *check) same(when string) {
	c.Helper()
	for i, r := range c.apply(c.jobs...) {
		if len(r.Changed) != 0 || !slices.Equal(r.Devices, c.made[i].Devices) {
			c.errorf("%s, %s changed (%+v), and has %+v instead of %+v", when, r.ID, r.Changed,
				r.Devices, c.made[i].Devices)
		}
	}
}

func (c *check) mends() {
	lost := c.made[0].Devices[0]
	if out, err := exec.Command("ip", "link", "del", lost.Name).CombinedOutput(); err != nil {
		c.Fatalf("delete %s: %v\n%s", lost.Name, err, out)
	}
	results := c.apply(c.jobs...)
	restored := func(c change.Change) bool { return c.Kind == change.PortRestored }
	if got := results[0].Changed; !slices.ContainsFunc(got, restored) {
		c.errorf("the device of %s was deleted; told is %+v", results[0].ID, got)
	}
	if d, err := net.InterfaceByName(lost.Name); err != nil || d.Index != results[0].Devices[0].Index {
		c.errorf("the device is %+v (%v), and reported is %+v", d, err, results[0].Devices[0])
	}
	if !slices.Equal(results[0].Devices[1:], c.made[0].Devices[1:]) || len(results[1].Changed) != 0 {
		c.errorf("others were touched: %+v %+v", results[0].Devices, results[1].Changed)
	}
	c.made = results
	c.same("applied once more")
	for _, damage := range [][]string{{"mtu", "1281"}, {"alias", ""}} {
		altered := c.made[1].Devices[0]
		if out, err := exec.Command("ip", append([]string{"link", "set", altered.Name},
			damage...)...).CombinedOutput(); err != nil {
			c.Fatalf("set %v of %s: %v\n%s", damage, altered.Name, err, out)
		}
		if r := c.apply(c.jobs...)[1]; len(r.Changed) == 0 || !slices.Equal(r.Devices, c.made[1].Devices) {
			c.errorf("the %s of %s was altered; told is %+v, and its devices are %+v", damage[0], r.ID,
				r.Changed, r.Devices)
		}
		c.same("after its " + damage[0] + " was put right")
	}
}

func (c *check) restarts() {
	c.d = c.s.Restart()
	c.lists(c.jobs...)
	c.same("after a restart")
}

// lists wants that these exist, and no others.
func (c *check) lists(jobs ...control.Job) {
	c.Helper()
	found, err := c.d.List(c.Context())
	if err != nil {
		c.errorf("list: %v", err)
	}
	has := func(id model.ID) bool {
		return slices.ContainsFunc(found, func(f control.Found) bool { return f.ID == id })
	}
	for _, j := range jobs {
		if !has(j.ID) {
			c.errorf("it does not list %s: %+v", j.ID, found)
		}
	}
	if len(found) != len(jobs) {
		c.errorf("it lists %+v, want %d", found, len(jobs))
	}
}

func (c *check) keeps() {
	c.apply(c.jobs[0])
	c.lists(c.jobs...)
	c.same("applied whole again")
}

func (c *check) fails() {
	spoilt := c.s.Job("spoilt")
	c.s.Spoil(&spoilt)
	third := c.s.Job("third")
	results := c.d.Apply(c.Context(), append([]control.Job{spoilt}, append(slices.Clone(c.jobs), third)...))
	if len(results) != 4 || results[0].Err == nil || results[0].ID != spoilt.ID {
		c.Fatalf("a driver %s: results are %+v", c.what, results)
	}
	for _, r := range results[1:] {
		if r.Err != nil {
			c.errorf("%s fails as well: %v", r.ID, r.Err)
		}
	}
	c.remove(spoilt.ID, third.ID)
	c.lists(c.jobs...)
	c.same("without it")
}

func (c *check) remove(ids ...model.ID) {
	c.Helper()
	if err := c.d.Remove(c.Context(), ids, false); err != nil {
		c.errorf("remove %v: %v", ids, err)
	}
}

func (c *check) removes() {
	c.remove(c.jobs[0].ID)
	c.lists(c.jobs[1])
	if r := c.apply(c.jobs[1])[0]; len(r.Changed) != 0 || !slices.Equal(r.Devices, c.made[1].Devices) {
		c.errorf("the other one changed: %+v", r)
	}
	c.remove(c.jobs[0].ID, c.jobs[1].ID) // one of which is gone already
	c.lists()
	if left := devices(c.T); !slices.Equal(left, c.before) {
		c.errorf("devices are left: %v, before there were %v", left, c.before)
	}
}
