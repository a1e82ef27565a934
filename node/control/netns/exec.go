package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// Exit statuses as shells give them.
const (
	notExecutable = 126
	notFound      = 127
	signalled     = 128 // plus the signal's number
)

// Exec runs a command inside an element, as its root. An element without processes gets a container for as long as
// commands run in it.
func (d *Driver) Exec(ctx context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error) {
	if len(command.Args) == 0 {
		return 0, fmt.Errorf("element %s: run a command: none was given", id)
	}
	container, release, err := d.hold(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("element %s: run %s: %w", id, command.Args[0], err)
	}
	defer release()
	var status int
	if command.Detach {
		status, err = d.detach(ctx, id, container, command)
	} else {
		status, err = d.execIn(ctx, id, container, command, stdio)
	}
	if err != nil {
		return 0, fmt.Errorf("element %s: run %s: %w", id, command.Args[0], err)
	}
	return status, nil
}

// hold finds the container in which commands run, and keeps it until release.
func (d *Driver) hold(ctx context.Context, id model.ID) (container string, release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.elements[id]
	switch {
	case e == nil:
		return "", nil, errors.New("it is not on this node")
	case e.job.Element.Stopped:
		return "", nil, fmt.Errorf("it is stopped: `polyplane start %s` starts it", id)
	case e.job.Element.Suspended:
		return "", nil, fmt.Errorf("it is suspended: `polyplane resume %s` lets it go on", id)
	case e.process.running():
		return containerID(id), func() {}, nil
	}
	if s := d.shifts[id]; s != nil && s.ends {
		return "", nil, errors.New("it is being removed")
	}
	// If processes should run and do not, this is how the owner reaches the files to mend them.
	if err := d.knowSockets(e); err != nil {
		return "", nil, err
	}
	cookie, r := e.cookie, d.rollOf(&e.job)
	e.shells++ // the last user of the container ends it
	e.roll = r
	err = d.besides(ctx, id, func(ctx context.Context, job *control.Job, _ *process) error {
		return d.startShell(ctx, job, cookie, r)
	})
	if err == nil && d.elements[id] != e {
		err = errors.New("it was removed")
	}
	if err != nil {
		e.shells--
		return "", nil, err
	}
	return shellID(id), sync.OnceFunc(func() { d.letGo(id, e) }), nil
}

// letGo is called when a command of exec has ended. With the last one the shell container goes, unless somebody left
// something running in it.
func (d *Driver) letGo(id model.ID, e *element) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.shells--
	// the caller's context may be over, but the container must go
	ctx := context.Background()
	// the element was removed meanwhile, and perhaps made anew
	if err := d.alone(ctx, id); err != nil || e.shells > 0 || e.kept || d.elements[id] != e {
		return
	}
	err := d.besides(ctx, id, func(ctx context.Context, _ *control.Job, p *process) error {
		err := d.removeContainer(ctx, shellID(id), 0)
		os.RemoveAll(d.shellBundle(id)) //nolint:errcheck // the next one replaces it
		if !p.wanted {
			if busy := d.unmountDisk(id, 0); !errors.Is(busy, unix.EBUSY) { // somebody may read its logs
				err = errors.Join(err, busy)
			}
		}
		return err
	})
	if err != nil {
		d.log.Warn("let go of what was made for exec", "element", id, "error", err)
	}
}

func (d *Driver) shellBundle(id model.ID) string { return d.dirs.Bundle(id) + shellSuffix }

// startShell starts a container for commands, unless one runs.
func (d *Driver) startShell(ctx context.Context, job *control.Job, cookie uint64, r *roll) error {
	id := job.ID
	if d.alive(shellID(id)) {
		return nil
	}
	d.forgetKept(id) // what was in it has ended
	if _, err := d.ensureDisk(job, false); err != nil {
		return err
	}
	files, err := d.openFiles(job, true)
	if err != nil {
		return err
	}
	defer files.close()
	for _, moved := range files.moved {
		d.log.Info(moved.String(), "element", id)
	}
	d.takeBack(ctx, job, files)
	if err := files.writeNames(r, job.ID.Element, job.Element.Contents); err != nil {
		return err
	}
	command := []string{"/usr/bin/sleep", "infinity"}
	if job.Element.Image != "" {
		command = software.ImagePause
	}
	spec := d.newSpec(job, shellID(id), command, nil)
	if job.Element.Image != "" {
		plan := software.ImageShell()
		d.showPrograms(spec, &plan)
	}
	if err := writeBundle(d.shellBundle(id), spec); err != nil {
		return err
	}
	log, err := openLog(d.logPath(id))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := d.boundSockets(cookie, job.Element.Limits().Memory); err != nil {
		return err
	}
	return d.launch(ctx, shellID(id), d.shellBundle(id), job.Element.Limits().Memory, log)
}

// execIn runs the command in a running container.
func (d *Driver) execIn(ctx context.Context, id model.ID, container string, command control.Command,
	stdio control.Stdio) (int, error) {
	dir, err := os.MkdirTemp(d.dirs.Run, "exec-")
	if err != nil {
		return 0, fmt.Errorf("make a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	log, pidFile := filepath.Join(dir, "log"), filepath.Join(dir, "pid")
	process := filepath.Join(dir, "process.json")
	if err := d.writeProcess(process, id, d.elementOf(id), command); err != nil {
		return 0, err
	}
	var cmd *exec.Cmd
	var finish func()
	if command.TTY {
		cmd = d.runc(context.Background(), log, "exec", "--pid-file", pidFile, "--process", process, container)
		finish, err = startTerminal(cmd, command.Size, stdio)
	} else {
		cmd = d.runc(context.Background(), log, "exec", "--pid-file", pidFile, "--preserve-fds", "3",
			"--process", process, container)
		finish, err = d.startPipes(cmd, id, stdio)
	}
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	var stopper sync.WaitGroup
	stopper.Go(func() {
		select {
		case <-ended:
		case <-ctx.Done():
			stopCommand(cmd, pidFile, ended)
		}
	})
	err = cmd.Wait()
	close(ended)
	stopper.Wait()
	finish()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if words := runcComplaint(log); words != "" {
		return refusedStatus(words)
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	case errors.As(err, &exit):
		if s, ok := exit.Sys().(interface{ Signal() unix.Signal }); ok {
			return signalled + int(s.Signal()), nil
		}
	}
	return 0, err
}

// homeOf is the directory in which commands begin: /root, unless the element has put something else there.
func (d *Driver) homeOf(id model.ID) string {
	if info, err := os.Lstat(filepath.Join(d.rootfs(id), "root")); err != nil || !info.IsDir() {
		return "/"
	}
	return "/root"
}

// elementOf is an element as it is wanted. Processes that people start in it have the same limits and variables as its
// own.
func (d *Driver) elementOf(id model.ID) *model.NodeElement {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.elements[id]; e != nil {
		el := e.job.Element
		return &el
	}
	return &model.NodeElement{}
}

// calledOf is what an element is called inside.
func (d *Driver) calledOf(id model.ID) model.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.elements[id]; e != nil && e.job.ID == id {
		return e.job.Called()
	}
	return id
}

// writeProcess writes what runc shall run.
func (d *Driver) writeProcess(path string, id model.ID, el *model.NodeElement, command control.Command) error {
	env := append(d.environmentOf(d.calledOf(id), el), command.Env...)
	p := specs.Process{Args: command.Args, Env: env, Cwd: d.homeOf(id),
		Rlimits: rlimits(el), Terminal: command.TTY, NoNewPrivileges: true,
		Capabilities: &specs.LinuxCapabilities{Bounding: shellCapabilities,
			Effective: shellCapabilities, Permitted: shellCapabilities, Inheritable: shellCapabilities,
			Ambient: shellCapabilities}}
	if command.TTY {
		if !slices.ContainsFunc(command.Env, func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
			p.Env = append(p.Env, "TERM=xterm")
		}
		// runc would also tell the terminal its size by itself, but only after the command has started.
		size := windowSize(command.Size)
		p.ConsoleSize = &specs.Box{Height: uint(size.Rows), Width: uint(size.Cols)}
	} else if !command.Detach {
		pipes := software.ImagePipes
		if el.Image == "" {
			pipes = onOwnPipes()
		}
		p.Args = slices.Concat(pipes, command.Args)
	}
	data, err := json.Marshal(&p)
	if err != nil {
		return fmt.Errorf("write the command for runc: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write the command for runc: %w", err)
	}
	return nil
}

// refusedStatus distinguishes a command that cannot be run, about which runc writes on its standard error, from runc's
// own failures.
func refusedStatus(words string) (int, error) {
	switch {
	case strings.Contains(words, "executable file not found"), strings.Contains(words, "no such file or directory"):
		return notFound, nil
	case strings.Contains(words, "permission denied"):
		return notExecutable, nil
	}
	return 0, errors.New(words)
}

// stopCommand ends a command whose caller has gone.
func stopCommand(cmd *exec.Cmd, pidFile string, ended <-chan struct{}) {
	cmd.Process.Signal(unix.SIGTERM) // runc passes it on
	select {
	case <-ended:
		return
	case <-time.After(termGrace * time.Millisecond):
	}
	if data, err := os.ReadFile(pidFile); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && pid > 0 {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	select {
	case <-ended:
	case <-time.After(termGrace * time.Millisecond):
		cmd.Process.Kill()
	}
}

// startTerminal starts a command on a terminal of its own.
func startTerminal(cmd *exec.Cmd, size control.Size, stdio control.Stdio) (finish func(), err error) {
	terminal, err := pty.StartWithSize(cmd, windowSize(size))
	if err != nil {
		return nil, fmt.Errorf("start runc on a terminal: %w", err)
	}
	if stdio.In != nil {
		go io.Copy(terminal, stdio.In)
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		if stdio.Out != nil {
			io.Copy(stdio.Out, terminal) // ends with EIO when the last user of the terminal has closed it
		}
	}()
	over := make(chan struct{})
	var resizer sync.WaitGroup
	resizer.Go(func() {
		for {
			select {
			case <-over:
				return
			case s, ok := <-stdio.Resize:
				if !ok {
					return
				}
				pty.Setsize(terminal, windowSize(s))
			}
		}
	})
	return func() {
		select {
		case <-shown:
		case <-time.After(termGrace * time.Millisecond):
		}
		close(over)
		resizer.Wait()
		terminal.Close()
	}, nil
}

func windowSize(s control.Size) *pty.Winsize {
	if s.Rows == 0 || s.Cols == 0 {
		s = control.Size{Rows: 24, Cols: 80}
	}
	return &pty.Winsize{Rows: s.Rows, Cols: s.Cols}
}

// Console is the command of an interactive session in the element.
func (d *Driver) Console(id model.ID) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.elements[id]
	if e == nil {
		return nil, fmt.Errorf("element %s is not on this node", id)
	}
	if len(e.process.plan.Console) == 0 || !e.process.running() {
		if e.job.Element.Image != "" {
			return []string{"/bin/sh"}, nil
		}
		return []string{"/bin/bash"}, nil
	}
	return e.process.plan.Console, nil
}

// Logs writes what the element's processes printed and wrote into their log files. With follow it goes on as they write
// more, until ctx is done.
func (d *Driver) Logs(ctx context.Context, id model.ID, follow bool, w io.Writer) error {
	d.mu.Lock()
	e := d.elements[id]
	if e == nil {
		d.mu.Unlock()
		return fmt.Errorf("element %s is not on this node", id)
	}
	inside := e.process.plan.LogFiles
	d.mu.Unlock()

	root, err := os.OpenRoot(d.rootfs(id))
	if errors.Is(err, fs.ErrNotExist) {
		root, inside = nil, nil
	} else if err != nil {
		return fmt.Errorf("element %s: read its logs: %w", id, err)
	} else {
		defer root.Close()
	}
	tails := []*tail{{open: func() (*os.File, error) { return os.Open(d.logPath(id)) }}}
	for _, path := range inside {
		tails = append(tails, &tail{open: func() (*os.File, error) { return openRegular(root, path) }})
	}
	tick := time.Tick(200 * time.Millisecond)
	for {
		for _, t := range tails {
			if err := t.copy(w); err != nil {
				return fmt.Errorf("element %s: read its logs: %w", id, err)
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// tail follows a log file that grows. If the file is made anew, it begins at its start.
type tail struct {
	open func() (*os.File, error)
	was  os.FileInfo
	at   int64
}

// copy writes what is new since the last call.
func (t *tail) copy(w io.Writer) error {
	f, err := t.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if t.was != nil && !os.SameFile(t.was, info) || info.Size() < t.at {
		t.at = 0
	}
	t.was = info
	// The element's root writes this file as well, and can make it as long as it likes at no cost, since holes take no
	// room.
	if left := info.Size() - logShown - t.at; left > 0 {
		t.at += left
		if _, err := fmt.Fprintf(w, "… %s before this are left out; the whole is in the element\n",
			model.Bytes(left).Rounded()); err != nil {
			return err
		}
		if err := t.nextLine(f); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, io.NewSectionReader(f, t.at, info.Size()-t.at))
	t.at += n
	return err
}

// logShown bounds how many bytes of a log file are shown: of its end, and of what was added between two looks.
const logShown = 4 << 20

// nextLine skips to the beginning of a line, if one is near.
func (t *tail) nextLine(f *os.File) error {
	part := make([]byte, 4096)
	n, err := f.ReadAt(part, t.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if end := bytes.IndexByte(part[:n], '\n'); end >= 0 {
		t.at += int64(end) + 1
	}
	return nil
}
