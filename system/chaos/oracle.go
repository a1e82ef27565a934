package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// stored tells whether the manager has a network as it is given; nil means that it has none, or one that is being
// deleted.
func (run *run) stored(ctx context.Context, name string, want *network) (bool, string, error) {
	r, err := run.client.Network(ctx, name)
	if client.IsNotFound(err) || err == nil && r.Deleting {
		return want == nil, "none", nil
	}
	if err != nil {
		return false, "", err
	}
	is := printOf(r)
	return want != nil && is == want.print(), is, nil
}

// settle finds out what became of an operation that did not succeed. It must be all of it, or nothing.
func (run *run) settle(ctx context.Context, o *operation) (done bool, err error) {
	var before, after, other []string
	for name, next := range o.next {
		var is string
		var asNext, asBefore bool
		if err := eventually(ctx, "the manager to tell of network "+name, func() (err error) {
			asNext, is, err = run.stored(ctx, name, next)
			return err
		}); err != nil {
			return false, err
		}
		if asBefore, _, err = run.stored(ctx, name, run.world.networks[name]); err != nil {
			return false, err
		}
		switch {
		case asNext && asBefore: // it asked for what is
		case asNext:
			after = append(after, name)
		case asBefore:
			before = append(before, name)
		default:
			other = append(other, name+" is\n"+is)
		}
	}
	switch {
	case len(other) > 0:
		return false, fmt.Errorf("`%s` failed, and what is stored is neither what was nor what was asked for: %s", o,
			strings.Join(other, "\n"))
	case len(before) > 0 && len(after) > 0:
		return false, fmt.Errorf("`%s` failed, and was carried out in part: %v are changed, %v are not", o, after,
			before)
	}
	return len(before) == 0, nil
}

// verify waits until everything is as wanted, and returns what is not in the end.
func (run *run) verify(ctx context.Context) error {
	if err := run.ready(ctx); err != nil {
		return err
	}
	if err := run.sameRecords(ctx); err != nil {
		return err // what is stored is so at once or never
	}
	if err := run.eventually(ctx, patience, "the networks to be as wanted",
		func() error { return run.samePhases(ctx) }); err != nil {
		return run.explained(ctx, err)
	}
	var since time.Time // when the one that is sought was seen first
	if err := run.eventually(ctx, patience, "the kernel to be as wanted", func() error {
		var all []string
		for _, node := range run.world.nodes {
			for _, difference := range lookAtNode(run.dirs.Node(node), append(run.world.sorted(), run.steady...)) {
				all = append(all, node+": "+difference)
			}
		}
		if len(all) == 0 {
			return nil
		}
		err := errors.New(strings.Join(all, "\n  "))
		switch {
		case run.Sought == nil || !slices.ContainsFunc(all, run.Sought):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > soughtFor:
			return certain{err}
		}
		return err
	}); err != nil {
		return run.explained(ctx, err)
	}
	for _, n := range append(run.world.sorted(), run.steady...) {
		if !n.whole() {
			continue
		}
		if _, err := run.run(ctx, "", "check", n.name, "--mesh", "--wait", "3m"); err != nil {
			err = fmt.Errorf("the hosts of network %s do not reach each other: %w\n%s", n.name, err, run.seenIn(ctx, n))
			return run.explained(ctx, err)
		}
	}
	for _, f := range run.flows {
		if err := f.flowing(ctx); err != nil {
			return err
		}
	}
	if err := run.lossless(ctx); err != nil {
		return err
	}
	return run.untouched()
}

// soughtFor is longer than an agent takes to remove what it should not have, unless it was killed. An agent that
// removes it later would look like one that never does.
const soughtFor = 5 * time.Second

// eventually is the package's function of that name, and also tells what takes long.
func (run *run) eventually(ctx context.Context, patience time.Duration, what string, try func() error) error {
	const long = 15 * time.Second
	told := time.Now()
	return eventuallyWithin(ctx, patience, what, func() error {
		err := try()
		if err != nil && time.Since(told) > long {
			told = time.Now()
			run.say("waiting for %s: %v", what, err)
		}
		return err
	})
}

// explained adds what the platform says itself.
func (run *run) explained(ctx context.Context, err error) error {
	events, _ := run.run(context.WithoutCancel(ctx), "", "get", "events") // what cannot be had is no news
	lines := strings.Split(strings.TrimSpace(events), "\n")
	const last = 25
	return fmt.Errorf("%w\nThe last events:\n  %s", err, strings.Join(lines[max(0, len(lines)-last):], "\n  "))
}

// routing is what is asked in each element of a network whose hosts do not reach each other.
const routing = `ip -br address; ip route; ip neigh; ip -s -s link
if birdc show status >/dev/null 2>&1; then
	for what in status protocols "protocols all" route interfaces "ospf neighbors" "ospf interface" "ospf lsadb" "ospf state all"; do birdc show $what; done
elif vtysh -c 'show version' >/dev/null 2>&1; then
	vtysh -c 'show ip ospf neighbor' -c 'show ip ospf interface' -c 'show ip ospf database' -c 'show ip route' -c 'show running-config'
fi`

// seenIn tells what a network's elements are and know now. If something cannot be had, it says so in its place.
func (run *run) seenIn(ctx context.Context, n *network) string {
	ctx = context.WithoutCancel(ctx)
	var all strings.Builder
	look := func(args ...string) {
		out, err := run.run(ctx, "", args...)
		fmt.Fprintf(&all, "--- %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	look("describe", n.name)
	for _, e := range n.elements {
		look("describe", n.name+"/"+e.name)
		look("exec", n.name+"/"+e.name, "--", "sh", "-c", routing)
	}
	return all.String()
}

// sameRecords compares what is stored with what is wanted.
func (run *run) sameRecords(ctx context.Context) error {
	var networks []model.NetworkStatus
	if err := run.eventually(ctx, patience, "deleted networks to be gone", func() (err error) {
		if networks, err = run.client.Networks(ctx); err != nil {
			return err
		}
		if i := slices.IndexFunc(networks, func(n model.NetworkStatus) bool { return n.Deleting }); i >= 0 {
			return fmt.Errorf("network %s is being deleted still", networks[i].Name)
		}
		return nil
	}); err != nil {
		return err
	}
	want := append(run.world.sorted(), run.steady...)
	for _, s := range networks {
		if !slices.ContainsFunc(want, func(n *network) bool { return n.name == s.Name }) {
			return fmt.Errorf("network %s is there, and nobody wants it", s.Name)
		}
	}
	for _, n := range want {
		same, is, err := run.stored(ctx, n.name, n)
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("network %s is lost or changed: stored is\n%s\nwanted is\n%s", n.name, is, n.print())
		}
	}
	return nil
}

// samePhases compares what the nodes say of the elements.
func (run *run) samePhases(ctx context.Context) error {
	views, err := run.client.Elements(ctx, "")
	if err != nil {
		return err
	}
	phases := each.By(views, func(v model.ElementView) model.ID { return v.ID })
	for _, n := range append(run.world.sorted(), run.steady...) {
		for _, e := range n.elements {
			id := model.ID{Network: n.name, Element: e.name}
			want := model.PhaseRunning
			switch {
			case e.stopped:
				want = model.PhaseStopped
			case e.suspended:
				want = model.PhaseSuspended
			}
			if v := phases[id]; v.Phase != want || v.Node != e.node {
				return fmt.Errorf("%s is %s on %q, wanted %s on %s: %s", id, v.Phase, v.Node, want, e.node, v.Message)
			}
		}
	}
	return nil
}

// steadyDevices are the devices of the networks that nobody touches, by namespace and name, with their indices.
func (run *run) steadyDevices() (map[string]int, error) {
	all := map[string]int{}
	for _, n := range run.steady {
		for _, e := range n.elements {
			id := model.ID{Network: n.name, Element: e.name}
			if err := indices(all, id.String(), run.dirs.Node(e.node).Namespace(id)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// untouched tells whether a device of a network that nobody touches was made anew.
func (run *run) untouched() error {
	now, err := run.steadyDevices()
	if err != nil {
		return err
	}
	for name, index := range run.devices {
		if now[name] != index {
			return fmt.Errorf("%s, which nobody touched, had index %d and has %d", name, index, now[name])
		}
	}
	return nil
}
