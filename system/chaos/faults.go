package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"

	"github.com/polyplane/polyplane/system/sandbox"
)

// fault is something that goes wrong while an operation is under way.
type fault struct {
	name string
	// before says that the fault begins before the operation; otherwise it strikes in the middle. seeks says that it
	// may find no victim.
	before, seeks bool
	// inject starts the fault and returns a function that ends it, and that waits until the platform is as able as
	// before.
	inject func(ctx context.Context, r *rand.Rand) (heal func() error, err error)
}

// none is the fault of an operation that nothing disturbs.
const none = "none"

// faults are those that this run has, in the order that they are shown in.
func (run *run) faults() []fault {
	kill := func(name string, victims func(r *rand.Rand, running map[string]int) []string) fault {
		return fault{name: name, inject: func(ctx context.Context, r *rand.Rand) (func() error, error) {
			return run.killOwn(ctx, name, victims(r, run.processes()))
		}}
	}
	all := []fault{
		kill("agent", func(r *rand.Rand, running map[string]int) []string {
			agents := names(running, "agent")
			return agents[r.IntN(len(agents)):][:1]
		}),
		kill("agents", func(_ *rand.Rand, running map[string]int) []string { return names(running, "agent") }),
		kill("manager", func(*rand.Rand, map[string]int) []string { return []string{"manager"} }),
		kill("up", func(*rand.Rand, map[string]int) []string { return []string{"up"} }),
		kill("all", func(_ *rand.Rand, running map[string]int) []string { return names(running, "") }),
		{name: "runc", before: true, seeks: true, inject: run.killRunc},
		{name: "daemon", seeks: true, inject: run.killDaemon},
		{name: "init", seeks: true, inject: run.killInit},
		{name: "port", seeks: true, inject: run.deletePort},
		{name: "disk full", before: true, inject: run.fillDisk},
		{name: "monotonic clock", inject: run.otherClock},
	}
	if run.clock != nil {
		all = append(all, fault{name: "wall clock", inject: run.setClocks})
	}
	if run.cluster != nil {
		return append(all, fault{name: "etcd member", inject: run.killMember},
			fault{name: "etcd leader", inject: run.killLeader}, fault{name: "etcd cut off", inject: run.cutCluster})
	}
	return append(all, fault{name: "etcd hangs", inject: run.holdManager})
}

// names are those of running processes that begin so, in order.
func names(running map[string]int, prefix string) []string {
	var all []string
	for name := range running {
		if strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func nothing() error { return nil }

// killOwn kills some of the platform's own processes. If `up` is one of them, killOwn starts it again, as systemd
// would.
func (run *run) killOwn(ctx context.Context, name string, victims []string) (func() error, error) {
	running := run.processes()
	var pids []int
	for _, v := range victims {
		if running[v] == 0 {
			return nil, fmt.Errorf("%s does not run: %v", v, running)
		}
		pids = append(pids, running[v])
	}
	began := time.Now()
	if err := kill(pids...); err != nil {
		return nil, err
	}
	return func() error {
		if err := run.comeBack(ctx, nil, victims, running); err != nil {
			return err
		}
		run.times.note(name, time.Since(began))
		return nil
	}, nil
}

// comeBack waits until killed processes are there again and the platform is ready; `up` is started below a program
// where one is given.
func (run *run) comeBack(ctx context.Context, above, victims []string, before map[string]int) error {
	if slices.Contains(victims, "up") {
		if err := eventually(ctx, "what `up` started to end with it", func() error {
			if running := run.processes(); len(running) > 0 {
				return fmt.Errorf("%v run", running)
			}
			return nil
		}); err != nil {
			return err
		}
		if _, err := run.runBelow(ctx, above, "", "up", "-d"); err != nil {
			return fmt.Errorf("start it again: %w", err)
		}
	}
	if err := eventually(ctx, "what was killed to run again", func() error {
		running := run.processes()
		for _, v := range victims {
			if running[v] == 0 || running[v] == before[v] {
				return fmt.Errorf("%s does not", v)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := run.ready(ctx); err != nil {
		return err
	}
	// A node may still be called ready because nobody has noticed yet that its agent was gone. So the agents' own
	// answers count.
	return eventually(ctx, "the agents to answer", func() error {
		r, err := run.client.Check(ctx, run.steady[0].name, model.CheckRequest{Mesh: true})
		if err == nil && !r.OK {
			err = fmt.Errorf("hosts of %s do not reach each other: %+v", run.steady[0].name, r.Probes)
		}
		return err
	})
}

// killRunc kills the first runc that shows up while the operation is under way.
func (run *run) killRunc(context.Context, *rand.Rand) (func() error, error) {
	end, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- 0
				return
			case <-time.After(time.Millisecond):
			}
			for _, pid := range commands("runc") {
				if unix.Kill(pid, unix.SIGKILL) == nil {
					ended <- pid
					return
				}
			}
		}
	}()
	return func() error {
		close(end)
		if <-ended != 0 {
			run.hits["runc"]++
		}
		return nil
	}, nil
}

// commands are the processes of a command's name. All are in this run's own process namespace.
func commands(name string) []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is right
	for _, path := range paths {
		if b, _ := os.ReadFile(path); strings.TrimSpace(string(b)) == name {
			var pid int
			fmt.Sscanf(path, "/proc/%d/comm", &pid) //nolint:errcheck // the pattern says so
			found = append(found, pid)
		}
	}
	return found
}

// routers returns the elements with processes that operations may change.
func (run *run) routers() (all []model.ID, nodes []string) {
	for _, n := range run.world.sorted() {
		for _, e := range n.of(model.Router) {
			if n.processes() && !e.stopped && !e.suspended {
				all = append(all, model.ID{Network: n.name, Element: e.name})
				nodes = append(nodes, e.node)
			}
		}
	}
	return all, nodes
}

// killDaemon kills one of the processes of a router.
func (run *run) killDaemon(_ context.Context, r *rand.Rand) (func() error, error) {
	return run.killInside(r, "daemon", func(pids []int) int { return pids[r.IntN(len(pids))] })
}

// killInit kills the first process of a router's container, and with it all others.
func (run *run) killInit(_ context.Context, r *rand.Rand) (func() error, error) {
	return run.killInside(r, "init", slices.Min[[]int])
}

func (run *run) killInside(r *rand.Rand, name string, choose func([]int) int) (func() error, error) {
	ids, nodes := run.routers()
	if len(ids) == 0 {
		return nothing, nil
	}
	i := r.IntN(len(ids))
	pids, err := processesIn(run.dirs.Node(nodes[i]).Namespace(ids[i]), "")
	if err != nil || len(pids) == 0 {
		return nothing, nil // it is just being made, moved or removed
	}
	if unix.Kill(choose(pids), unix.SIGKILL) == nil {
		run.hits[name]++
	}
	return nothing, nil
}

// deletePort deletes the device of one port.
func (run *run) deletePort(_ context.Context, r *rand.Rand) (func() error, error) {
	n, ok := one(&generator{r, run.world}, run.world.sorted())
	if !ok {
		return nothing, nil
	}
	e, _ := one(&generator{r, run.world}, n.of(model.Router, model.Switch))
	interfaces := n.interfaces(e)
	port := model.PortID{ID: model.ID{Network: n.name, Element: e.name}, Interface: interfaces[r.IntN(len(interfaces))]}
	d := run.dirs.Node(e.node)
	err := sandbox.Within(d.NodeNamespace(), func() error {
		link, err := netlink.LinkByName(d.PortDevice(port))
		if err != nil {
			return nil // the operation has just taken it away
		}
		if netlink.LinkDel(link) == nil {
			run.hits["port"]++
		}
		return nil
	})
	return nothing, err
}

// holdManager stops the manager, and the etcd in it, for a while, as if its disk did not answer.
func (run *run) holdManager(_ context.Context, r *rand.Rand) (func() error, error) {
	pid := run.processes()["manager"]
	if pid == 0 {
		return nil, errors.New("the manager does not run")
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(500+r.IntN(2000)) * time.Millisecond)
	return nothing, unix.Kill(pid, unix.SIGCONT)
}

// fillDisk fills the disk that the instance's data is on, to the last byte, until the operation has ended.
func (run *run) fillDisk(context.Context, *rand.Rand) (func() error, error) {
	path := filepath.Join(sandbox.Data, "ballast")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); ; {
		_, err := f.Write(piece)
		switch {
		case err == nil:
		case errors.Is(err, unix.ENOSPC) && len(piece) > 4096:
			piece = piece[:len(piece)/2]
		case errors.Is(err, unix.ENOSPC):
			return func() error { return os.Remove(path) }, nil
		default:
			os.Remove(path) //nolint:errcheck // the first error counts
			return nil, err
		}
	}
}

// otherClock kills everything and starts it in a time namespace (time_namespaces(7)) with another monotonic clock. The
// clock that counts from boot stays: by it runc tells whether a process is the one that it started.
func (run *run) otherClock(ctx context.Context, r *rand.Rand) (func() error, error) {
	running := run.processes()
	victims := names(running, "")
	pids := each.Of(victims, func(v string) int { return running[v] })
	if err := kill(pids...); err != nil {
		return nil, err
	}
	at := fmt.Sprint(r.IntN(40*86400) + 1)
	return func() error {
		return run.comeBack(ctx, []string{"unshare", "--time", "--monotonic", at, "--"}, victims, running)
	}, nil
}

// setClocks makes each of the platform's processes read a wall clock of its own, up to ten days off in either
// direction.
func (run *run) setClocks(_ context.Context, r *rand.Rand) (func() error, error) {
	running := run.processes()
	for _, name := range names(running, "") {
		ahead := time.Duration(r.IntN(20*86400)-10*86400) * time.Second
		err := run.clock.set(running[name], ahead)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
			continue // it has ended, or only begins
		}
		if err != nil {
			return nil, fmt.Errorf("the clock of %s: %w", name, err)
		}
	}
	return nothing, nil
}
