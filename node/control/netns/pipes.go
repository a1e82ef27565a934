package netns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// A command's input and output are pipes of this process instead of runc's. runc ends only when nobody holds its pipes
// any more, so `sh -c 'daemon & echo started'` would last as long as the daemon.

// onOwnPipes puts a command on the three descriptors that runc passes on in addition to its own.
var onOwnPipes = sync.OnceValue(func() []string {
	shell := "/usr/bin/sh"
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh" // on a machine where /bin is a directory of its own
	}
	return []string{shell, "-c", `exec "$@" <&3 >&4 2>&5 3<&- 4>&- 5>&-`, "polyplane"}
})

// startPipes starts runc for a command without a terminal. Once runc has ended, finish passes on the output that is
// there, and nothing that the command's remaining processes write later.
func (d *Driver) startPipes(cmd *exec.Cmd, id model.ID, stdio control.Stdio) (finish func(), err error) {
	root := d.rootOf(id)
	var passed, own []*os.File // the command's ends, ours
	defer func() {
		for _, f := range passed {
			f.Close()
		}
		if err != nil {
			for _, f := range own {
				f.Close()
			}
		}
	}()
	var in *os.File
	if stdio.In != nil {
		r, w, err := pipeFor(root)
		if err != nil {
			return nil, err
		}
		in, passed, own = w, append(passed, r), append(own, w)
	} else {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		passed = append(passed, null)
	}
	var pumps []*pump
	for _, out := range []io.Writer{stdio.Out, stdio.Err} {
		if out == nil {
			out = io.Discard
		}
		r, w, err := pipeFor(root)
		if err != nil {
			return nil, err
		}
		passed, own = append(passed, w), append(own, r)
		pumps = append(pumps, &pump{from: r, to: out})
	}
	cmd.ExtraFiles = passed
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start runc: %w", err)
	}
	if in != nil {
		go func() {
			io.Copy(in, stdio.In) //nolint:errcheck // ends with the caller, or with whoever read it
			in.Close()
		}()
	}
	var running sync.WaitGroup
	for _, p := range pumps {
		running.Go(p.run)
	}
	return func() {
		for _, p := range pumps {
			p.from.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // pipes have deadlines
		}
		running.Wait()
		for _, p := range pumps {
			p.rest()
		}
		for _, f := range own {
			f.Close()
		}
	}, nil
}

// pipeFor makes a pipe that the element's root may open again as /dev/stdout.
func pipeFor(root int) (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := errors.Join(r.Chown(root, root), w.Chown(root, root)); err != nil {
		r.Close()
		w.Close()
		return nil, nil, fmt.Errorf("give a pipe to the element: %w", err)
	}
	return r, w, nil
}

// pump passes a command's output on.
type pump struct {
	from *os.File
	to   io.Writer
	gone bool // nobody takes it
}

// run passes on what comes, until the pipe's last writer is gone or the deadline has passed.
func (p *pump) run() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := p.from.Read(buffer)
		if n > 0 {
			if _, err := p.to.Write(buffer[:n]); err != nil {
				p.gone = true
				p.from.Close() // so that the command learns of it
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// rest passes on what is in the pipe, at most as much as a pipe can hold: somebody may go on writing into it.
func (p *pump) rest() {
	if p.gone {
		return
	}
	c, err := p.from.SyscallConn()
	if err != nil {
		return
	}
	n := 0
	if c.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) != nil || err != nil || n <= 0 {
		return
	}
	p.from.SetReadDeadline(time.Time{}) //nolint:errcheck // pipes have deadlines
	io.CopyN(p.to, p.from, int64(n))    //nolint:errcheck // the caller has gone
}

// rootOf is the machine's user ID that is root in the element.
func (d *Driver) rootOf(id model.ID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.elements[id]; e != nil {
		return int(model.UIDBase(e.job.Index))
	}
	return 0 // removed meanwhile
}
