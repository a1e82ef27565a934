package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// containerID is the name that runc knows an element's container by. No element's or network's name contains a plus.
func containerID(id model.ID) string { return id.Network + "+" + id.Element }

// shellID is the name of the container that exec uses for an element without processes.
func shellID(id model.ID) string { return containerID(id) + shellSuffix }

const shellSuffix = "+shell"

// runc returns a command of runc for the node's containers. It writes its own error messages into the file log.
func (d *Driver) runc(ctx context.Context, log string, args ...string) *exec.Cmd {
	all := append([]string{"--root", d.dirs.Runc(), "--log", log, "--log-format", "json"}, args...)
	return exec.CommandContext(ctx, "runc", all...)
}

// runRunc runs a runc command to its end. What the container prints goes to output.
func (d *Driver) runRunc(ctx context.Context, stdin []byte, output *os.File, args ...string) error {
	ctx, cancel := withRuncTime(ctx)
	defer cancel()
	began := time.Now()
	log, err := d.temporary("runc-")
	if err != nil {
		return fmt.Errorf("make a file for runc's complaints: %w", err)
	}
	log.Close()
	defer os.Remove(log.Name())
	cmd := d.runc(ctx, log.Name(), args...)
	if d.working != nil {
		cmd.ExtraFiles = []*os.File{d.working}
	}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	// A container inherits these. They must be files, or Wait would wait for the container to end.
	var said *os.File
	if output == nil {
		if said, err = d.temporary("runc-"); err != nil {
			return fmt.Errorf("make a file for runc's output: %w", err)
		}
		defer os.Remove(said.Name())
		defer said.Close()
		output = said
	}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		if errors.Is(context.Cause(ctx), errTooLong) {
			return fmt.Errorf("runc %s: ended by polyplane, as it was not done after %s", args[0],
				time.Since(began).Round(time.Second))
		}
		if words := runcComplaint(log.Name()); words != "" {
			return fmt.Errorf("runc %s: %s", args[0], words)
		}
		return fmt.Errorf("runc %s: %w", args[0], err)
	}
	return nil
}

// temporary makes a file for a single command. If the agent is killed, the next one finds and removes it there.
func (d *Driver) temporary(name string) (*os.File, error) {
	if err := os.MkdirAll(d.temporaryDir(), 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(d.temporaryDir(), name)
}

func (d *Driver) temporaryDir() string { return filepath.Join(d.dirs.Run, "commands") }

// runcComplaint is the last error in runc's log.
func runcComplaint(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	words := ""
	for line := range strings.Lines(string(data)) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Level == "error" || entry.Level == "fatal") {
			words = entry.Msg
		}
	}
	return words
}

// initProcess is a container's first process.
type initProcess struct {
	pid   int
	start uint64 // in clock ticks since the machine started, from /proc/PID/stat
}

// readContainer reads what runc noted about a container. ok is false if there is none.
func (d *Driver) readContainer(container string) (p initProcess, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(d.dirs.Runc(), container, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("read runc's state: %w", err)
	}
	var state struct {
		PID   int    `json:"init_process_pid"`
		Start uint64 `json:"init_process_start"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return p, false, fmt.Errorf("read runc's state of %s: %w", container, err)
	}
	return initProcess{state.PID, state.Start}, true, nil
}

// open returns a pidfd of the process, or -1 if it has ended.
func (p initProcess) open() int {
	if p.pid <= 0 {
		return -1
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return -1
	}
	if start, err := startTime(p.pid); err != nil || start != p.start || ended(fd) {
		unix.Close(fd)
		return -1 // the number is another process's by now
	}
	return fd
}

// began is when the process was started.
func (p initProcess) began() time.Time {
	const tick = 10 * time.Millisecond // USER_HZ, which is 100 on every architecture we know
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		panic(err) // every Linux has that clock
	}
	return time.Now().Add(time.Duration(p.start)*tick - time.Duration(sinceBoot.Nano()))
}

// startTime reads when a process was started (field 22 of proc_pid_stat(5)).
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name, in parentheses, may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// ended returns whether the process of a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// awaitEnd waits for a pidfd's process to end, at most this many milliseconds.
func awaitEnd(pidfd, milliseconds int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, milliseconds)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n > 0
	}
}

// termGrace is how long processes have to end by themselves, in milliseconds. killGrace is how long killed processes
// have: to end they need a processor, and a busy machine or their own limit may give it to them late.
const (
	termGrace = 2000
	killGrace = 30_000
)

// serviceGrace is how long what people have run has to end by itself, commands before its end included, in
// milliseconds. Services that need longer end by force: nothing else is done with the element meanwhile.
const serviceGrace = 10_000

// graceOf is how long an element's processes have to end by themselves.
func (d *Driver) graceOf(id model.ID) int {
	if d.serves(id) {
		return serviceGrace
	}
	return d.grace
}

// serves returns whether an element was started with something that its owner has run.
func (d *Driver) serves(id model.ID) bool {
	notes, err := bundleNotes(d.dirs.Bundle(id))
	return err == nil && notes[noteService] != ""
}

// removeContainer ends a container's processes and makes runc forget it. They have so many milliseconds to end by
// themselves. It is no error if there is no such container.
func (d *Driver) removeContainer(ctx context.Context, container string, grace int) error {
	p, ok, err := d.readContainer(container)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.dirs.Runc(), container)
	if !ok {
		// What a runc that was killed left.
		d.endGroup(container)
		return os.RemoveAll(dir)
	}
	if fd := p.open(); fd >= 0 {
		defer unix.Close(fd)
		if err := d.thaw(container); err != nil {
			return fmt.Errorf("let its processes go on, so that they can end: %w", err)
		}
		if grace > 0 {
			unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
			resting(ctx, func() { awaitEnd(fd, grace) })
		}
		// When its first process dies, the kernel ends all others of the container.
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		resting(ctx, func() { awaitEnd(fd, killGrace) })
	}
	if err := d.runRunc(ctx, nil, nil, "delete", "--force", container); err != nil {
		return err
	}
	return nil
}

// cgroupOf is the control group of a container. It lies below the root of each hierarchy, and so outside the agent's
// own group.
func (d *Driver) cgroupOf(container string) string {
	return filepath.Join(d.cgroupRoot(), container)
}

func (d *Driver) cgroupRoot() string { return d.dirs.Cgroup() }

// endGroup ends whatever is in a container's control group.
func (d *Driver) endGroup(container string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, root := range append(roots, "/sys/fs/cgroup") {
		group := filepath.Join(root, d.cgroupOf(container))
		data, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(word)
			if err != nil || pid <= 0 {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				awaitEnd(fd, termGrace)
				unix.Close(fd)
			}
		}
		unix.Rmdir(group)
	}
}

// openLock opens the lock that every runc command holds.
func (d *Driver) openLock() (err error) {
	if d.working != nil {
		return nil
	}
	if err := os.MkdirAll(d.dirs.Run, 0o755); err != nil {
		return fmt.Errorf("make the node's directory: %w", err)
	}
	if d.working, err = os.OpenFile(filepath.Join(d.dirs.Run, "containers.lock"), os.O_CREATE|os.O_RDWR,
		0o600); err != nil {
		return fmt.Errorf("open the lock of runc's commands: %w", err)
	}
	return nil
}

// awaitOthers returns when no runc command of an earlier agent is at work any more. Such commands outlive an agent that
// was killed, and may still be making a container that this agent must not make a second time.
func (d *Driver) awaitOthers(ctx context.Context) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(d.working.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, unix.EWOULDBLOCK) && time.Since(began) < runcTime:
			continue
		}
		// If it hangs, only its own element is to suffer from that.
		d.log.Warn("wait for what an earlier agent began; going on without", "lock", d.working.Name(), "error", err)
		return
	}
}

// removeCgroups removes the groups above the containers' own if they are empty.
func (d *Driver) removeCgroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, root := range append(roots, "/sys/fs/cgroup") {
		for dir := d.cgroupRoot(); dir != "/"; dir = filepath.Dir(dir) {
			if unix.Rmdir(filepath.Join(root, dir)) != nil {
				break
			}
		}
	}
}
