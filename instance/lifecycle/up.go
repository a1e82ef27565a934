package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
)

// Manager is what `up` needs of the manager; client.Client is one.
type Manager interface {
	Ping(ctx context.Context) (model.Pong, error)
	Nodes(ctx context.Context) ([]model.NodeStatus, error)
	Networks(ctx context.Context) ([]model.NetworkStatus, error)
}

// Up is one call of `polyplane up`.
type Up struct {
	Dirs    instance.Dirs
	Options Options
	Manager Manager
	Out     io.Writer // what users see
	Version string
	// Join is set by `polyplane join`. Reach makes what a machine that joins, or has joined, needs of a manager
	// elsewhere.
	Join  *Join
	Reach Reach
	// Examine tells what is wrong with the store. Without it the manager's own words are shown.
	Examine func(ctx context.Context) error
	// Drivers removes what drivers have in the kernel, of nodes that the substrate no longer has.
	Drivers Purge

	// up says that everything has answered. Before that, a daemon's end is told only with the reason why the start has
	// failed.
	up atomic.Bool
	// within is readyWithin if not 0.
	within time.Duration
}

// Run starts the instance and keeps it running in the foreground until the context ends. Then its processes end. What
// they made – networks, nodes – stays and goes on forwarding, until the next `up` takes it over or `down` removes it.
// If ready is not nil, it is called once everything answers.
func (u *Up) Run(ctx context.Context, ready func()) error {
	if os.Geteuid() != 0 {
		return errors.New("polyplane makes namespaces and devices: run it as root")
	}
	if err := CheckName(u.Dirs.Name); err != nil {
		return err
	}
	l, err := acquire(u.Dirs, "up")
	if err != nil {
		return err
	}
	defer l.release()
	s, err := u.settle(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var daemons sync.WaitGroup
	stop := func() {
		cancel()
		daemons.Wait()
	}
	defer stop()
	sup, err := u.start(ctx, s, &daemons)
	if err != nil {
		return err
	}
	var nodes []model.NodeStatus
	if s.Joined != nil {
		nodes, err = u.awaitAgent(ctx, sup, s)
	} else {
		nodes, err = u.await(ctx, sup, s)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // ^C
		}
		return err
	}
	u.up.Store(true)
	announce(u.Out, u.Dirs, s, nodes)
	if s.Joined == nil {
		networks, err := u.Manager.Networks(ctx)
		if err != nil {
			u.say("Whether the records of all networks can be read is not known: %v", err)
		}
		tellDamaged(u.Out, networks)
	}
	if ready != nil {
		ready()
	}
	if err := notify(); err != nil {
		return err
	}
	// From here on this process only waits.
	debug.FreeOSMemory()
	<-ctx.Done()
	stop()
	if len(nodes) > 0 && ready == nil {
		u.say("The platform's processes have ended. Networks stay as they are and go on forwarding:")
		u.say("  %-28s takes them over again", instance.Command(u.Dirs.Name, "up"))
		u.say("  %-28s removes everything, and keeps what is needed to come back",
			instance.Command(u.Dirs.Name, "down"))
	}
	return nil
}

func (u *Up) say(format string, a ...any) { fmt.Fprintf(u.Out, format+"\n", a...) }

// settle makes the machine ready: directories, the nodes' namespaces and links, limits. It checks everything before it
// touches the first thing.
func (u *Up) settle(ctx context.Context) (settings, error) {
	d := u.Dirs
	if err := checkPreemption(); err != nil {
		return settings{}, err
	}
	m, err := substrate.ThisMachine()
	if err != nil {
		return settings{}, err
	}
	old, remembered, whole, err := u.remembered()
	if err != nil {
		return settings{}, err
	}
	if !remembered {
		if err := checkAway(d); err != nil {
			return settings{}, err
		}
	}
	var s settings
	switch {
	case u.Join != nil:
		s, err = u.join(ctx, old, remembered, m)
	case old.Joined != nil:
		s, err = u.stillJoined(old, m)
	default:
		if s, err = decide(u.Options, old, remembered, m); err != nil {
			err = &OptionError{err}
		}
	}
	if err != nil {
		return s, err
	}
	if remembered && u.Join == nil {
		if err := checkChange(d, old, s); err != nil {
			return s, err
		}
	}
	if !remembered || !whole {
		if err := checkLost(d, s); err != nil {
			return s, err
		}
	}
	if s.URLs == "" {
		if err := checkSpace(d); err != nil {
			return s, err
		}
	}
	if err := forgetLastBoot(d); err != nil {
		return s, err
	}
	for _, dir := range []string{d.Run, d.Data, d.Logs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return s, fmt.Errorf("polyplane '%s': %w", d.Name, err)
		}
	}
	if err := noteBoot(d); err != nil {
		return s, err
	}
	raiseFileLimit()
	limits, err := newHostLimits(d.Run)
	if err == nil {
		err = limits.raise()
	}
	if err != nil {
		return s, err
	}
	if len(old.Listen) > 0 {
		if err := u.keepAuthority(); err != nil {
			return s, err
		}
	}
	if err := u.removeOtherNodes(s); err != nil {
		return s, err
	}
	if s.simulated() {
		if _, err := substrate.Simulate(d, s.Substrate); err != nil {
			return s, fmt.Errorf("make the simulated substrate: %w", err)
		}
	} else if err := leaveAlone("/"); err != nil {
		return s, err
	}
	if err := s.write(d); err != nil {
		return s, err
	}
	if err := noteMount(d); err != nil { // on another disk, which may be full
		u.say("%v", err)
	}
	return s, nil
}

// removeOtherNodes removes the namespaces of nodes that the substrate no longer has.
func (u *Up) removeOtherNodes(s settings) error {
	d := u.Dirs
	keep := each.SetOf(s.Substrate.Nodes, func(n model.SubstrateNode) string { return n.Name })
	entries, err := os.ReadDir(filepath.Join(d.Run, "nodes"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep[e.Name()] {
			continue
		}
		n := d.Node(e.Name())
		if err := errors.Join(u.Drivers(d, e.Name()), sweepRun(n.Run)); err != nil {
			return fmt.Errorf("remove node %s: %w", e.Name(), err)
		}
		if err := linux.RemoveTree(n.Data); err != nil {
			return fmt.Errorf("remove node %s: %w", e.Name(), err)
		}
	}
	return nil
}

// start starts the manager and the agents under supervision.
func (u *Up) start(ctx context.Context, s settings, daemons *sync.WaitGroup) (*supervisor, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	spawner, err := newSpawner()
	if err != nil {
		return nil, err
	}
	sup := &supervisor{spawner: spawner, executable: executable, deaths: map[string]int{}}
	own, err := openLog(filepath.Join(u.Dirs.Logs(), "up.log"))
	if err != nil {
		return nil, err
	}
	sup.say = func(format string, a ...any) {
		line := fmt.Sprintf(format, a...)
		note(own, "%s", line)
		if ctx.Err() == nil && u.up.Load() {
			u.say("%s: see %s", line, u.Dirs.Logs())
		}
	}
	note(own, "up: version %s, process %d, %s", u.Version, os.Getpid(), s.describe())
	if err := preferSelf(); err != nil {
		note(own, "%v", err)
	}
	file, err := writeSubstrate(u.Dirs, s)
	if err != nil {
		return nil, err
	}
	manager := daemon{name: "manager", args: []string{"manager", "--instance", u.Dirs.Name, "--substrate-state", file}}
	manager.args = append(manager.args, s.args()...)
	manager.watch = watchManager(u.Manager)
	manager.args = append(manager.args, s.reachArgs()...)
	if s.simulated() {
		daemons.Go(func() { u.tend(ctx, s, own) })
	}
	all := []daemon{manager}
	var outpost []string
	if s.Joined != nil {
		if outpost, err = u.writeOutpost(s.Joined); err != nil {
			return nil, err
		}
		all = nil
	}
	for _, n := range s.Substrate.Nodes {
		a := daemon{name: "agent-" + n.Name,
			args:  append([]string{"agent", "--instance", u.Dirs.Name, "--node", n.Name}, outpost...),
			watch: watchAgent(u.Dirs.Node(n.Name).AgentSocket())}
		// One node that no others can join has nobody to tunnel to.
		if n.Address.IsValid() && (len(s.Substrate.Nodes) > 1 || len(s.Listen) > 0 || s.Joined != nil) {
			a.args = append(a.args, "--address", n.Address.String())
		}
		if s.Silent {
			a.args = append(a.args, "--lldp", "off")
		}
		if n.Simulated {
			a.namespace = u.Dirs.Node(n.Name).NodeNamespace()
			// A simulated node has no uplink of its own: its internet edges use this machine's.
			a.args = append(a.args, "--machine", fmt.Sprintf("/proc/%d/ns/net", os.Getpid()))
		}
		all = append(all, a)
	}
	go spawner.heart(ctx)
	for _, d := range all {
		if d.log, err = openLog(filepath.Join(u.Dirs.Logs(), d.name+".log")); err != nil {
			return nil, err
		}
		daemons.Go(func() {
			defer d.log.Close()
			sup.keep(ctx, d)
		})
	}
	return sup, nil
}

// note writes a line to a log.
func note(w io.Writer, format string, a ...any) {
	fmt.Fprintf(w, "%s %s\n", time.Now().Format(time.RFC3339), fmt.Sprintf(format, a...))
}

// writeSubstrate writes the substrate where the manager reads it.
func writeSubstrate(d instance.Dirs, s settings) (string, error) {
	path := filepath.Join(d.Run, "substrate.json")
	b, err := json.Marshal(s.Substrate)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b, 0o600)
}

// ReadSubstrate reads what writeSubstrate wrote.
func ReadSubstrate(path string) (model.Substrate, error) {
	var s model.Substrate
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the substrate: %w", err)
	}
	return s, nil
}

// await returns once the manager answers and all agents of this machine are registered.
func (u *Up) await(ctx context.Context, sup *supervisor, s settings) ([]model.NodeStatus, error) {
	patience, ctx, cancel := u.patience(ctx)
	defer cancel()
	examined := 0 // the manager's deaths until the store was looked into
	for {
		// A manager that hangs must not keep systemd from being told.
		once, enough := context.WithTimeout(ctx, patience.step/2)
		nodes, err := u.Manager.Nodes(once)
		enough()
		waiting := ""
		// up or not, they are not ours to start
		nodes = slices.DeleteFunc(nodes, func(n model.NodeStatus) bool { return n.Joined })
		if err == nil {
			for _, n := range nodes {
				// Until a node has taken this store's word, it says what it was told before.
				taken := n.Revision > 0 || len(n.Held) > 0
				if (!n.Ready || !taken) && waiting == "" {
					waiting = "agent-" + n.Name
				}
			}
			if waiting == "" && len(nodes) > 0 {
				return nodes, nil
			}
		} else {
			waiting = "manager"
		}
		if waiting == "manager" && sup.died(waiting) > examined && u.Examine != nil && s.URLs == "" {
			examined = sup.died(waiting)
			if err := u.examine(ctx); err != nil {
				return nil, err
			}
		}
		// A daemon that ends again and again will not be ready, however long one waits.
		const hopeless = 4
		if sup.died(waiting) >= hopeless {
			return nil, u.explain(waiting, fmt.Sprintf("has ended %d times", sup.died(waiting)))
		}
		patience.goesOn(waiting)
		select {
		case <-ctx.Done():
			return nil, patience.over(ctx, waiting)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// explain says what keeps the platform from getting ready, with the end of the log in question.
func (u *Up) explain(daemon, what string) error {
	path := filepath.Join(u.Dirs.Logs(), daemon+".log")
	return fmt.Errorf("polyplane '%s': %s %s. The end of %s:\n%s", u.Dirs.Name, named(daemon), what, path, tail(path))
}

// tail is the last lines of a log.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	if len(strings.TrimSpace(string(b))) == 0 {
		return "  (it is empty)"
	}
	// A daemon that is started again and again ends for the same reason each time.
	lines := slices.Compact(strings.Split(strings.TrimRight(string(b), "\n"), "\n"))
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	return "  " + strings.Join(lines, "\n  ")
}
