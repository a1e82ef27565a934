package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// A detached command lives as long as the element. Where the element has no processes of its own, the container that
// was made for commands stays for it. A file in that container's bundle says so to an agent that begins anew.

const keptName = "kept"

func (d *Driver) keptPath(id model.ID) string { return filepath.Join(d.shellBundle(id), keptName) }

// isKept returns whether something was detached in an element's shell container that lives.
func (d *Driver) isKept(id model.ID) bool {
	_, err := os.Lstat(d.keptPath(id))
	return err == nil && d.alive(shellID(id))
}

func (d *Driver) forgetKept(id model.ID) { os.Remove(d.keptPath(id)) } //nolint:errcheck // there may be none

// alive returns whether a container's first process lives.
func (d *Driver) alive(container string) bool {
	p, _, err := d.readContainer(container)
	if err != nil {
		return false
	}
	fd := p.open()
	if fd < 0 {
		return false
	}
	unix.Close(fd)
	return true
}

// elementOfShell is the element whose shell container has this name.
func elementOfShell(name string) (id model.ID, ok bool) {
	name, ok = strings.CutSuffix(name, shellSuffix)
	if !ok {
		return id, false
	}
	id.Network, id.Element, ok = strings.Cut(name, "+")
	return id, ok
}

// detach starts a command in a running container, and leaves it there.
func (d *Driver) detach(ctx context.Context, id model.ID, container string, command control.Command) (int, error) {
	if command.TTY {
		return 0, errors.New("what is detached has no terminal")
	}
	if err := d.keep(id, container); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(d.dirs.Run, "exec-")
	if err != nil {
		return 0, fmt.Errorf("make a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	words, process := filepath.Join(dir, "log"), filepath.Join(dir, "process.json")
	if err := d.writeProcess(process, id, d.elementOf(id), command); err != nil {
		return 0, err
	}
	log, err := openLog(d.logPath(id))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	ctx, cancel := withRuncTime(ctx)
	defer cancel()
	cmd := d.runc(ctx, words, "exec", "--detach", "--process", process, container)
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	if said := runcComplaint(words); said != "" {
		return refusedStatus(said)
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return 0, fmt.Errorf("runc: %w", err)
	}
	return 0, err
}

// keep has an element's shell container stay, if that is the container.
func (d *Driver) keep(id model.ID, container string) error {
	if container != shellID(id) {
		return nil
	}
	if err := os.WriteFile(d.keptPath(id), nil, 0o600); err != nil {
		return fmt.Errorf("note that the command is to stay: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.elements[id]; e != nil {
		e.kept = true
	}
	return nil
}

// endDetached ends what was detached in an element without processes that is to be stopped, or was to be restarted.
func (d *Driver) endDetached(ctx context.Context, w *work) error {
	id := w.job.ID
	if _, err := os.Lstat(d.keptPath(id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	notes, err := bundleNotes(d.shellBundle(id))
	if err != nil {
		return err
	}
	if !w.job.Element.Stopped && !asksRestart(w.job.Element.Restarts, notes) {
		return nil
	}
	if err := d.removeContainer(ctx, shellID(id), d.grace); err != nil {
		return fmt.Errorf("stop what was detached in it: %w", err)
	}
	d.forgetKept(id)
	w.did(change.DetachedEnded)
	return nil
}
