// Package forwardtest checks that a forwarding plane does what package forward says, however it forwards. Each plane's
// tests call Conforms.
package forwardtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// Subject is a plane under test. The test's thread is in the node's network namespace.
type Subject struct {
	// Restart makes the plane, and makes it again as an agent's restart does: it knows nothing of what the one before
	// did.
	Restart func() forward.Plane
	// Jobs are two elements that their control driver has made.
	Jobs [2]forward.Job
	// Place gives the jobs their places in the data path, as an agent does in each of its lives; nil if the plane needs
	// none.
	Place func(model.ID) forward.Place
	// Spoil makes of a good job one that cannot be forwarded for; nil if there is none such.
	Spoil func(*forward.Job)
	// Steer does what the agent does with what planes have ready: the fabric brings the packets there. Nil if the plane
	// does not look at the fabric.
	Steer func(map[model.ID]forward.Steering)
	// KeepsNothing is a plane that has nothing to list.
	KeepsNothing bool
	// Forgets is a plane whose restart frees by itself what it kept for elements that it is not asked for any more.
	Forgets bool
}

// Conforms runs the checks one after another, and has all retired at the end.
func Conforms(t *testing.T, s Subject) {
	c := &check{T: t, s: s, p: s.Restart()}
	for _, step := range []struct {
		what string
		run  func()
	}{
		{"offers something, and says why it lacks the rest", c.offers},
		{"has ready what it is asked for", c.prepares},
		{"answers the same again", func() { c.same("prepared again") }},
		{"finds again after a restart what it keeps", c.restarts},
		{"is kept from nothing by an element that fails", c.fails},
		{"retires nobody unasked, and whom it is asked to", c.retires},
	} {
		if c.what = step.what; !c.Failed() {
			step.run()
		}
	}
}

type check struct {
	*testing.T
	s     Subject
	p     forward.Plane
	ready []forward.Prepared // when all was
	what  string
}

func (c *check) errorf(format string, a ...any) {
	c.Helper()
	c.Errorf("a plane "+c.what+": "+format, a...)
}

func (c *check) offers() {
	offers := c.p.Offers(c.Context())
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

// prepare wants results in the jobs' order, without errors, and waits until none waits.
func (c *check) prepare(jobs ...forward.Job) []forward.Prepared {
	c.Helper()
	changed := make(chan struct{}, 1)
	if w, ok := c.p.(forward.Watcher); ok {
		ctx, stop := context.WithCancel(c.Context())
		ended := make(chan struct{})
		defer func() { stop(); <-ended }() // the next call has a watch of its own
		go func() {
			defer close(ended)
			w.Watch(ctx, func() { //nolint:errcheck // it ends with this call
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		}()
	}
	c.place(jobs)
	for {
		results := c.p.Prepare(c.Context(), jobs)
		if len(results) != len(jobs) {
			c.Fatalf("a plane %s: %d results of %d jobs", c.what, len(results), len(jobs))
		}
		waits := false
		for i, r := range results {
			if r.ID != jobs[i].ID || r.Err != nil {
				c.Fatalf("a plane %s: result %d is that of %s (%v), want %s", c.what, i, r.ID, r.Err, jobs[i].ID)
			}
			waits = waits || r.Waits
		}
		if !waits {
			steering := map[model.ID]forward.Steering{}
			for _, r := range results {
				if r.Steering != nil {
					steering[r.ID] = *r.Steering
				}
			}
			c.steer(steering)
			return results
		}
		<-changed
	}
}

func (c *check) place(jobs []forward.Job) {
	if c.s.Place != nil {
		for i := range jobs {
			jobs[i].Place = c.s.Place(jobs[i].ID)
		}
	}
}

func (c *check) steer(to map[model.ID]forward.Steering) {
	if c.s.Steer != nil {
		c.s.Steer(to)
	}
}

// retire lets go of elements as the agent does: their packets go to their own stacks first.
func (c *check) retire(id model.ID) {
	c.Helper()
	c.steer(map[model.ID]forward.Steering{id: {}})
	Retire(c.T, c.p, id)
}

// Retire has a plane let go of elements in as many passes as it needs.
func Retire(t testing.TB, p forward.Plane, ids ...model.ID) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := p.Retire(t.Context(), ids); err != nil {
			t.Errorf("retire %v: %v", ids, err)
			return
		}
		left, err := p.List(t.Context())
		if err != nil {
			t.Errorf("what is left of %v: %v", ids, err)
			return
		}
		if !slices.ContainsFunc(left, func(id model.ID) bool { return slices.Contains(ids, id) }) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("of %v, %v are still listed", ids, left)
			return
		}
	}
}

func (c *check) prepares() {
	c.ready = c.prepare(c.s.Jobs[:]...)
	for i, r := range c.ready {
		if r.Steering == nil {
			c.Fatalf("a plane %s: nobody knows where packets of %s go", c.what, r.ID)
		}
		for name := range r.Steering.Devices {
			if !slices.ContainsFunc(c.s.Jobs[i].Element.Interfaces,
				func(ifc model.PlacedInterface) bool { return ifc.Name == name }) {
				c.errorf("%s has a device for interface %q, which it does not have", r.ID, name)
			}
		}
	}
	c.lists(c.s.Jobs[:]...)
}

// same wants the same answers as when all was prepared first.
func (c *check) same(when string) {
	c.Helper()
	for i, r := range c.prepare(c.s.Jobs[:]...) {
		if r.Steering == nil || !r.Steering.Equal(*c.ready[i].Steering) {
			c.errorf("%s, %s is steered to %+v instead of %+v", when, r.ID, r.Steering, c.ready[i].Steering)
		}
	}
}

// lists wants that something is kept for these, and for nobody else.
func (c *check) lists(jobs ...forward.Job) {
	c.Helper()
	ids, err := c.p.List(c.Context())
	if err != nil {
		c.errorf("list: %v", err)
	}
	if c.s.KeepsNothing {
		jobs = nil
	}
	for _, j := range jobs {
		if !slices.Contains(ids, j.ID) {
			c.errorf("it does not list %s: %v", j.ID, ids)
		}
	}
	if len(ids) != len(jobs) {
		c.errorf("it lists %v, want %d", ids, len(jobs))
	}
}

func (c *check) restarts() {
	c.p = c.s.Restart()
	if !c.s.Forgets {
		c.lists(c.s.Jobs[:]...)
	}
	c.same("after a restart")
}

func (c *check) fails() {
	if c.s.Spoil == nil {
		return
	}
	spoilt := c.s.Jobs[0]
	spoilt.Element.Interfaces = slices.Clone(spoilt.Element.Interfaces)
	c.s.Spoil(&spoilt)
	jobs := []forward.Job{spoilt, c.s.Jobs[1]}
	c.place(jobs)
	results := c.p.Prepare(c.Context(), jobs)
	if len(results) != 2 || results[0].Err == nil || results[0].Steering != nil || results[1].Err != nil {
		c.errorf("results are %+v", results)
	}
	c.same("without it")
}

func (c *check) retires() {
	first, second := c.s.Jobs[0], c.s.Jobs[1]
	c.prepare(first)
	c.lists(c.s.Jobs[:]...) // whom it is not told of may still be steered there
	c.retire(second.ID)
	c.lists(first)
	if r := c.prepare(first)[0]; r.Steering == nil || !r.Steering.Equal(*c.ready[0].Steering) {
		c.errorf("the other one is steered to %+v", r.Steering)
	}
	c.retire(first.ID)
	c.lists()
	c.retire(first.ID) // which is gone already
}
