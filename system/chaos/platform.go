package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/server/api/client"
)

// patience is far longer than anything takes. It ends a hung run, and does not judge speed.
const patience = 4 * time.Minute

// platform is the instance under test.
type platform struct {
	binary string
	dirs   instance.Dirs
	client *client.Client
	up     []string // the arguments of the first `up`
}

func newPlatform(binary, name string, up ...string) *platform {
	dirs := instance.NewDirs(name)
	return &platform{binary: binary, dirs: dirs, client: client.New(dirs), up: up}
}

// failure is a command that ended with another status than 0.
type failure struct {
	args   []string
	status int
	output string
}

func (e *failure) Error() string {
	return fmt.Sprintf("polyplane %s: exit status %d: %s", strings.Join(e.args, " "), e.status,
		strings.TrimSpace(e.output))
}

// run runs the program as a user does. If another program is given (with its arguments), that one starts it.
func (p *platform) run(ctx context.Context, input string, args ...string) (string, error) {
	return p.runBelow(ctx, nil, input, args...)
}

func (p *platform) runBelow(ctx context.Context, above []string, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	words := append(slices.Clone(above), append([]string{p.binary}, args...)...)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Env = append(os.Environ(), instance.Variable+"="+p.dirs.Name, "NO_COLOR=1")
	c.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	// What it starts in the background may hold its output open.
	c.WaitDelay = time.Second
	err := c.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("polyplane %s: %w", strings.Join(args, " "), context.Cause(ctx))
	case errors.As(err, &ended):
		return "", &failure{args, ended.ExitCode(), stderr.String() + out.String()}
	case err != nil:
		return "", fmt.Errorf("polyplane %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), nil
}

// processes are the instance's own, by what they are: "up", "manager", "agent n1"…
func (p *platform) processes() map[string]int {
	found := map[string]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) < 2 || filepath.Base(args[0]) != filepath.Base(p.binary) ||
			!slices.Contains([]string{"up", "manager", "agent"}, args[1]) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if !slices.Contains(args, p.dirs.Name) && !strings.Contains(string(env), instance.Variable+"="+
			p.dirs.Name+"\x00") {
			continue
		}
		name := args[1]
		if i := slices.Index(args, "--node"); i > 0 && i+1 < len(args) {
			name += " " + args[i+1]
		}
		// Who starts an `up` in the background is called so, too, until it is ready.
		if name == "up" && !slices.Contains(args, "--report") {
			continue
		}
		found[name] = pid
	}
	return found
}

// kill ends processes as the kernel does when memory runs out, and returns when they are gone.
func kill(pids ...int) error {
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		defer unix.Close(fd)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(patience/time.Millisecond)); n == 0 && err == nil {
			return fmt.Errorf("process %d was killed and does not end", pid)
		}
	}
	return nil
}

// eventually waits until try returns nil. If it never does, try's last error says what was missing.
func eventually(ctx context.Context, what string, try func() error) error {
	return eventuallyWithin(ctx, patience, what, try)
}

// eventuallyWithin is the same with another patience.
func eventuallyWithin(ctx context.Context, patience time.Duration, what string, try func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, new(certain)):
			return fmt.Errorf("waited for %s: %w", what, err)
		case time.Now().After(deadline):
			return fmt.Errorf("waited %s for %s: %w", patience, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// certain is an error that waiting will not change.
type certain struct{ error }

// ready waits until the manager answers and every node is ready.
func (p *platform) ready(ctx context.Context) error {
	return eventually(ctx, "the platform to be ready", func() error { return p.isReady(ctx) })
}

func (p *platform) isReady(ctx context.Context) error {
	nodes, err := p.client.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Ready || n.Problem != "" {
			return fmt.Errorf("node %s is not ready: %s", n.Name, n.Problem)
		}
	}
	return nil
}
