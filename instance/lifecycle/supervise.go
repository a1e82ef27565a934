package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts processes from one thread that lives as long as this process. The kernel ends a child when the
// *thread* that started it ends (PR_SET_PDEATHSIG), and a child is in the network namespace of that thread.
type spawner struct {
	requests chan func()
	home     int // this process's own network namespace
}

func newSpawner() (*spawner, error) {
	home, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open this process's network namespace: %w", err)
	}
	s := &spawner{requests: make(chan func()), home: home}
	go func() {
		runtime.LockOSThread()
		for f := range s.requests {
			f()
		}
	}()
	return s, nil
}

// start starts the command inside the network namespace at path, in this process's own when path is empty.
func (s *spawner) start(cmd *exec.Cmd, path string) error {
	done := make(chan error)
	s.requests <- func() { done <- s.startHere(cmd, path) }
	return <-done
}

// startHere runs on the spawner's thread: it takes the thread into the node's namespace, starts the command, which
// stays there, and takes the thread back.
func (s *spawner) startHere(cmd *exec.Cmd, path string) error {
	if path == "" {
		return cmd.Start()
	}
	ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the node's namespace %s: %w", path, err)
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the node's namespace %s: %w", path, err)
	}
	err = cmd.Start()
	if back := unix.Setns(s.home, unix.CLONE_NEWNET); back != nil {
		// The thread is in a namespace where it must not be, so nothing can be started correctly any more.
		panic(fmt.Sprintf("return from the node's namespace %s: %v", path, back))
	}
	return err
}

// daemon is a process that must always run.
type daemon struct {
	name      string
	args      []string
	env       []string
	namespace string // path of the network namespace it runs in; this process's own when empty
	log       *logFile
	watch     *watch // nil: it is not asked whether it lives
}

// Waits between a daemon's lives. Each is twice as long as the one before. A daemon that lived for `steady` starts from
// the beginning.
const (
	firstRestart = 200 * time.Millisecond
	lastRestart  = 10 * time.Second
	steady       = 30 * time.Second
	// politeness is how long a daemon may take to end when it is told to.
	politeness = 5 * time.Second
)

// supervisor keeps daemons running.
type supervisor struct {
	spawner    *spawner
	executable string
	say        func(format string, a ...any) // of deaths

	mu     sync.Mutex     // guards deaths
	deaths map[string]int // how often each daemon has ended by itself, by name
}

// keep runs the daemon, again and again, until the context ends. It returns when the daemon has ended.
func (s *supervisor) keep(ctx context.Context, d daemon) {
	wait := firstRestart
	for {
		began := time.Now()
		err := s.once(ctx, d)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			wait = firstRestart
		}
		s.mu.Lock()
		s.deaths[d.name]++
		s.mu.Unlock()
		s.say("%s ended (%s), starting it again in %s", d.name, reason(err), wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRestart)
	}
}

func reason(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// died tells how often a daemon has ended by itself.
func (s *supervisor) died(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deaths[name]
}

// once runs the daemon once, and returns why it ended. When the context ends, the daemon is told to end (SIGTERM) and,
// if it takes longer than politeness, is killed.
func (s *supervisor) once(ctx context.Context, d daemon) error {
	cmd := exec.Command(s.executable, d.args...)
	cmd.Env = append(withoutSystemd(os.Environ()), d.env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = d.log, d.log
	// If a child of the daemon outlives it, it may hold the log's pipe open.
	cmd.WaitDelay = time.Second
	// The daemon gets a session of its own. So ^C at the terminal reaches only this process, which ends its daemons in
	// order; and see precedence.go.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true}
	if err := s.spawner.start(cmd, d.namespace); err != nil {
		return err
	}
	if err := prefer(cmd.Process.Pid); err != nil {
		note(d.log, "%v", err)
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	hung := make(chan string, 1)
	if d.watch != nil {
		go d.watch.guard(over, func(why string) {
			hung <- why
			cmd.Process.Kill() //nolint:errcheck // it may have ended; a process that is stopped ends by this as well
		})
	}
	stop := context.AfterFunc(ctx, func() {
		cmd.Process.Signal(unix.SIGTERM) //nolint:errcheck // it may have ended
		time.AfterFunc(politeness, func() { cmd.Process.Kill() })
	})
	defer stop()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	select {
	case why := <-hung:
		return fmt.Errorf("it hung and was killed: %s", why)
	default:
	}
	return err
}
