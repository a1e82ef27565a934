// Package chaos lets a running polyplane do what random users ask for, while random things go wrong with it, and
// compares what is there with what was asked for.
//
// The harness keeps its own account of what is wanted. It chooses operations from that account, so that they are valid.
// Each may meet a fault in its middle: processes are killed, etcd is cut off, the disk is full, clocks are set. An
// operation that fails must have been carried out in whole or not at all. From time to time, and at the end, everything
// is compared: what is stored, what the agents say, what the kernel has, whether hosts reach each other. Networks that
// no operation touches carry numbered packets all the while, and none of these may be lost.
package chaos

import (
	"context"
	rand2 "crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/sandbox"
)

// Config says what a run does. It runs in a sandbox.
type Config struct {
	Binary string // the program under test
	Name   string // the instance's, nobody else's
	Seed   uint64
	// Operations and Duration bound the run: it ends after so many operations, or with the first one that begins after
	// that time. Zero bounds nothing.
	Operations int
	Duration   time.Duration
	Every      int      // how many operations are between two comparisons
	Cluster    bool     // networks are kept in an external etcd of three members
	Faults     []string // only these; all where empty
	// Measure kills each of the platform's processes once, in peace, instead of doing operations.
	Measure bool
	// Sought, if not nil, recognises a difference between the kernel and what is wanted. The run ends once it has been
	// there for soughtFor, so that a test with a planted mistake does not wait for it to go away.
	Sought func(difference string) bool
	Log    io.Writer
}

// Report is what came of a run.
type Report struct {
	Matrix  Matrix
	Times   Times
	Faults  []string
	Packets uint64 // of the numbered flows
}

// enough is the share of operations that must succeed, or the run says little.
const enough = 0.7

// nodes is the fewest on which links cross between nodes and elements can move.
const nodes = 2

// run is a run under way.
type run struct {
	*platform
	Config
	world   *world
	steady  []*network // networks that no operation touches
	flows   []*flow
	drops   sandbox.Drops // when the flows were looked at last
	devices map[string]int
	clock   *wallClock
	cluster *cluster
	matrix  Matrix
	times   Times
	hits    map[string]int // how often faults that seek a victim found one
	began   time.Time
	written int // what `write` wrote last
}

// Run does a run and returns what came of it. The error is the first thing that was not as it must be. In either case
// everything is removed again.
func Run(ctx context.Context, c Config) (Report, error) {
	run := &run{Config: c, world: newWorld(nodes), matrix: Matrix{}, times: Times{},
		hits: map[string]int{}, began: time.Now()}
	run.platform = newPlatform(c.Binary, c.Name, "up", "--nodes", fmt.Sprint(nodes), "-d")
	report := Report{Matrix: run.matrix, Times: run.times}
	var err error
	if run.clock, err = newWallClock(); err != nil {
		run.say("wall clocks are not set: %v", err)
	}
	err = run.all(ctx, &report)
	return report, err
}

func (run *run) say(format string, a ...any) {
	fmt.Fprintf(run.Log, "%6.1f s  %s\n", time.Since(run.began).Seconds(), fmt.Sprintf(format, a...))
}

// diskSize is the size of the disk that the instance's data is on, in MiB.
const diskSize = 640

// all does everything, from the disk to the last comparison. What it makes, it removes in the opposite order.
func (run *run) all(ctx context.Context, report *Report) (err error) {
	unmount, err := mountDisk()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	if run.Config.Cluster {
		dir, derr := os.MkdirTemp("", "polyplane-etcd")
		if derr != nil {
			return derr
		}
		defer os.RemoveAll(dir)
		if run.cluster, err = startCluster(ctx, dir); err != nil {
			return err
		}
		defer run.cluster.close()
		run.up = append(run.up, run.cluster.flags()...)
	}
	before, err := sandbox.Machine(run.Name)
	if err != nil {
		return err
	}
	defer func() {
		// Things must be removed even if the context has ended.
		_, derr := run.run(context.WithoutCancel(ctx), "", "down", "--purge")
		if derr == nil {
			var after sandbox.State
			if after, derr = sandbox.Machine(run.Name); derr == nil {
				if left := before.Differences(after); len(left) > 0 {
					derr = fmt.Errorf("after `down --purge`: %s", strings.Join(left, "; "))
				}
			}
		}
		err = errors.Join(err, derr)
	}()
	if _, err := run.run(ctx, "", run.up...); err != nil {
		return err
	}
	if err := run.settleDown(ctx); err != nil {
		return err
	}
	report.Faults = append(report.Faults, each.Of(run.faults(), func(f fault) string { return f.name })...)
	report.Faults = append([]string{none}, report.Faults...)
	if run.Measure {
		err = run.measure(ctx)
	} else {
		err = run.steps(ctx)
	}
	if err != nil {
		return err
	}
	if err := run.finish(ctx); err != nil {
		return err
	}
	for _, f := range run.flows {
		sent, lost, duplicated, err := f.stop(ctx)
		if err == nil && lost+duplicated > 0 {
			err = fmt.Errorf("of %d packets %d were lost (%s) and %d came twice; %s", sent, lost,
				f.gaps(sent), duplicated, sandbox.ReadDrops().Since(run.drops))
		}
		if err != nil {
			return fmt.Errorf("flow %s: %w", f.name, err)
		}
		report.Packets += sent
	}
	if tried, succeeded := run.matrix.Total(); float64(succeeded) < enough*float64(tried) {
		return fmt.Errorf("of %d operations only %d succeeded: at least %.0f %% must, or a run says little", tried,
			succeeded, enough*100)
	}
	return nil
}

// mountDisk makes a small disk of its own where instances keep their data.
func mountDisk() (unmount func() error, err error) {
	release, err := sandbox.KeepData()
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("chaos", sandbox.Data, "tmpfs", 0, fmt.Sprintf("size=%dm", diskSize)); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a small disk on %s: %w", sandbox.Data, err), release())
	}
	return func() error {
		if err := unix.Unmount(sandbox.Data, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", sandbox.Data, err)
		}
		return release()
	}, nil
}

// settleDown makes the networks that no operation touches, and lets packets flow through them.
func (run *run) settleDown(ctx context.Context) error {
	run.steady = []*network{
		{name: "still", sort: static, elements: []*element{{name: "r1", node: "n1", kind: model.Router},
			{name: "h1", node: "n1", kind: model.Host}, {name: "h2", node: "n2", kind: model.Host}},
			links: []*link{{a: "r1", b: "h1"}, {a: "r1", b: "h2"}}},
		{name: "calm", sort: bird,
			elements: []*element{{name: "r1", node: "n1", kind: model.Router, forwarding: model.ForwardXDP},
				{name: "h1", node: "n1", kind: model.Host}, {name: "h2", node: "n2", kind: model.Host}},
			links: []*link{{a: "r1", b: "h1"}, {a: "r1", b: "h2"}}},
		// These have routers for the ways in which the node's kernel forwards. They have no routing protocol: when the
		// machine has no processor for it for some seconds, it would lose its neighbour, and packets, and that is not
		// what is looked for.
		{name: "even", sort: static,
			elements: []*element{{name: "r1", node: "n1", kind: model.Router, forwarding: model.ForwardRouter},
				{name: "h1", node: "n1", kind: model.Host}, {name: "h2", node: "n2", kind: model.Host}},
			links: []*link{{a: "r1", b: "h1"}, {a: "r1", b: "h2"}}},
		{name: "flat", sort: bird,
			elements: []*element{{name: "r1", node: "n2", kind: model.Router, forwarding: model.ForwardBridge},
				{name: "h1", node: "n1", kind: model.Host}, {name: "h2", node: "n2", kind: model.Host}},
			links: []*link{{a: "r1", b: "h1"}, {a: "r1", b: "h2"}}},
	}
	if _, err := run.run(ctx, apply(run.steady...).input, "apply", "-f", "-"); err != nil {
		return err
	}
	var err error
	if run.devices, err = run.steadyDevices(); err != nil {
		return err
	}
	if err := run.verify(ctx); err != nil {
		return err
	}
	views, err := run.client.Elements(ctx, "")
	if err != nil {
		return err
	}
	address := map[string]netip.Addr{}
	for _, v := range views {
		for _, i := range v.Element.Interfaces {
			for _, p := range i.Addresses {
				address[v.ID.String()] = p.Addr()
			}
		}
	}
	run.drops = sandbox.ReadDrops()
	for _, n := range run.steady {
		for _, ends := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
			name := fmt.Sprintf("%s/%s to %s", n.name, ends[0], ends[1])
			namespace := func(e string) string {
				return run.dirs.Node(n.element(e).node).Namespace(model.ID{Network: n.name, Element: e})
			}
			f, err := startFlow(name, namespace(ends[0]), namespace(ends[1]), address[n.name+"/"+ends[1]])
			if err != nil {
				return err
			}
			run.flows = append(run.flows, f)
		}
	}
	return nil
}

// steps does the operations.
func (run *run) steps(ctx context.Context) error {
	chosen := run.chosen()
	for step := 0; ; step++ {
		if run.Operations > 0 && step >= run.Operations || run.Duration > 0 && time.Since(run.began) > run.Duration {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Each step has random numbers of its own, so that the result of one step does not choose all that follow.
		random := rand.New(rand.NewPCG(run.Seed, uint64(step)))
		o := (&generator{random, run.world}).operation()
		var f *fault
		// Every fault comes once before one comes twice.
		if len(chosen) > 0 && random.IntN(5) > 0 {
			if step%len(chosen) == 0 {
				rand.New(rand.NewPCG(run.Seed, uint64(step)+1<<32)).Shuffle(len(chosen),
					func(i, k int) { chosen[i], chosen[k] = chosen[k], chosen[i] })
			}
			f = &chosen[step%len(chosen)]
		}
		err := run.step(ctx, random, step, o, f)
		if err == nil {
			err = run.lossless(ctx)
		}
		if err != nil {
			return fmt.Errorf("seed %d, operation %d: %w", run.Seed, step, err)
		}
		if run.Every > 0 && (step+1)%run.Every == 0 {
			if err := run.verify(ctx); err != nil {
				return fmt.Errorf("seed %d, after operation %d: %w", run.Seed, step, err)
			}
			run.world.reuse()
			tried, succeeded := run.matrix.Total()
			run.say("all is as it must be; %d of %d operations succeeded", succeeded, tried)
		}
	}
}

// measure kills each of the platform's own processes once, and each kind of member of a cluster.
func (run *run) measure(ctx context.Context) error {
	for i, f := range run.faults() {
		if !strings.HasPrefix(f.name, "etcd") && !slices.Contains([]string{"agent", "manager", "up", "all"}, f.name) {
			continue
		}
		heal, err := f.inject(ctx, rand.New(rand.NewPCG(run.Seed, uint64(i))))
		if err == nil {
			err = heal()
		}
		if err == nil {
			err = run.verify(ctx)
		}
		if err != nil {
			return fmt.Errorf("the fault %q: %w", f.name, err)
		}
	}
	return nil
}

// lossless returns an error if a packet was lost in a network that nobody touches.
func (run *run) lossless(ctx context.Context) error {
	for _, f := range run.flows {
		// The flows are so small that packets need not wait anywhere. But on a busy machine the receiver may get no
		// processor for a while.
		// a packet may arrive before it counts as sent
		if under := int64(f.sent.Load()) - int64(f.arrived.Load()); under > tooLong {
			if err := f.flowing(ctx); err != nil {
				return err
			}
		}
		if lost, which := f.lostSoFar(); lost > 0 {
			return fmt.Errorf("flow %s: %d packets were lost (%s; one is sent every %v); %s", f.name, lost,
				which, flowInterval, sandbox.ReadDrops().Since(run.drops))
		}
	}
	run.drops = sandbox.ReadDrops()
	return nil
}

// tooLong is how many packets of a flow, those of four seconds, are under way only if something holds them up.
const tooLong = int64(4 * time.Second / flowInterval)

// chosen are the faults of this run.
func (run *run) chosen() []fault {
	var some []fault
	for _, f := range run.faults() {
		wanted := len(run.Faults) == 0
		for _, name := range run.Faults {
			wanted = wanted || name == f.name
		}
		if wanted {
			some = append(some, f)
		}
	}
	return some
}

// step does one operation, with a fault where one is given.
func (run *run) step(ctx context.Context, random *rand.Rand, step int, o *operation, f *fault) error {
	name, heal := none, nothing
	hits := maps.Clone(run.hits)
	// How far the operation has come when the fault strikes depends on the machine.
	delay := time.Duration(random.IntN(300)) * time.Millisecond
	var err error
	if f != nil {
		name = f.name
		if f.before {
			if heal, err = f.inject(ctx, random); err != nil {
				return fmt.Errorf("the fault %q: %w", name, err)
			}
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := run.run(ctx, o.input, o.args...)
		done <- err
	}()
	var outcome error
	if f != nil && !f.before {
		select {
		case outcome = <-done:
			done <- outcome
		case <-time.After(delay):
		}
		if heal, err = f.inject(ctx, random); err == nil {
			err = heal()
		}
		heal = nothing
		if err != nil {
			return fmt.Errorf("`%s` during the fault %q: %w", o, name, err)
		}
	}
	if f != nil && f.before {
		// Otherwise an operation that waits for what the fault holds up would wait for ever.
		select {
		case outcome = <-done:
			done <- outcome
		case <-time.After(3 * time.Second):
		}
	}
	if err := heal(); err != nil {
		return fmt.Errorf("the fault %q ends: %w", name, err)
	}
	outcome = <-done
	if f != nil && f.seeks && run.hits[name] == hits[name] {
		name = none // it found no victim
	}
	run.matrix.note(o.kind, name, outcome == nil)
	word := "done"
	if outcome != nil {
		carried, err := run.settle(ctx, o)
		if err != nil {
			return fmt.Errorf("%w (its error was: %v)", err, outcome)
		}
		if word = "not done"; carried {
			word = "done, and said to have failed"
		}
		word += ": " + outcome.Error()
		if !carried {
			run.say("%3d  %-16s %-12s %s", step, o.kind, name, word)
			return nil
		}
	}
	run.world.take(o.next)
	run.say("%3d  %-16s %-12s %s: %s", step, o.kind, name, o, word)
	return nil
}

// finish waits until everything runs, and compares for the last time.
func (run *run) finish(ctx context.Context) error {
	for _, n := range run.world.sorted() {
		n = n.clone()
		for _, e := range n.elements {
			word := ""
			switch {
			case e.stopped:
				word = "start"
			case e.suspended:
				word = "resume"
			}
			if word == "" {
				continue
			}
			e.stopped, e.suspended = false, false
			if _, err := run.run(ctx, "", word, n.name+"/"+e.name); err != nil {
				return err
			}
		}
		run.world.take(map[string]*network{n.name: n})
	}
	if err := run.verify(ctx); err != nil {
		return fmt.Errorf("seed %d, at the end: %w", run.Seed, err)
	}
	run.say("all is as it must be at the end")
	return nil
}

// NewName is a name that no other instance has.
func NewName() string { return "chaos-" + strings.ToLower(rand2.Text()[:6]) }

// Write writes the report for people.
func (r Report) Write(w io.Writer) {
	r.Matrix.Write(w, r.Faults)
	fmt.Fprintln(w)
	r.Times.Write(w)
	fmt.Fprintln(w)
	tried, succeeded := r.Matrix.Total()
	fmt.Fprintf(w, "%d of %d operations succeeded; %d packets of networks that nobody touched, all of which came "+
		"once\n", succeeded, tried, r.Packets)
}
