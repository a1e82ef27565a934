package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// outcome is what a detached `up` tells the process that started it.
type outcome struct {
	Line  string `json:"line,omitempty"`  // for the user
	Error string `json:"error,omitempty"` // it has failed
	Kind  string `json:"kind,omitempty"`  // of the error
	Ready bool   `json:"ready,omitempty"`
}

// The kinds of errors that callers tell apart.
const (
	kindOption  = "option"
	kindRefused = "refused"
)

// kindOf says which of the errors that callers tell apart this is; in JSON its type would be lost.
func kindOf(err error) string {
	var option *OptionError
	var refused *RefusedError
	var busy *BusyError
	switch {
	case errors.As(err, &option):
		return kindOption
	case errors.As(err, &refused), errors.As(err, &busy):
		return kindRefused
	}
	return ""
}

// err is the error as the caller of Run would have got it.
func (o outcome) err() error {
	err := errors.New(o.Error)
	switch o.Kind {
	case kindOption:
		return &OptionError{err}
	case kindRefused:
		return &RefusedError{o.Error}
	}
	return err
}

// Detach starts the instance in the background – `up` again, with args, under which it calls Report – and returns when
// it is ready. What it says is passed on.
func (u *Up) Detach(ctx context.Context, args []string) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := CheckName(u.Dirs.Name); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command(executable, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.ExtraFiles = []*os.File{w} // ReportFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start the platform in the background: %w", err)
	}
	// ^C here ends what was started, since nobody would know of it otherwise.
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	for d := json.NewDecoder(r); ; {
		var o outcome
		if err := d.Decode(&o); err != nil {
			cmd.Wait() //nolint:errcheck // its state is what counts
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the platform ended while it started (%s): see %s", cmd.ProcessState, u.Dirs.Logs())
		}
		switch {
		case o.Error != "":
			cmd.Wait() //nolint:errcheck // it says no more
			return o.err()
		case o.Ready:
			return cmd.Process.Release()
		default:
			u.say("%s", o.Line)
		}
	}
}

// ReportFD is the file descriptor on which a detached `up` tells how it goes.
const ReportFD = 3

// RunDetached is Run for the process that Detach started.
func (u *Up) RunDetached(ctx context.Context) error {
	syscall.CloseOnExec(ReportFD)
	pipe := os.NewFile(ReportFD, "report")
	report := &reporter{enc: json.NewEncoder(pipe)}
	u.Out = report
	err := u.Run(ctx, func() {
		report.tell(outcome{Ready: true})
		report.end()
		pipe.Close()
	})
	if err != nil {
		report.tell(outcome{Error: err.Error(), Kind: kindOf(err)})
	}
	return err
}

// reporter turns lines into messages; after end they go nowhere.
type reporter struct {
	mu   sync.Mutex    // messages come from several goroutines
	enc  *json.Encoder // nil after end
	rest []byte        // a line without its end
}

func (r *reporter) tell(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.enc != nil {
		r.enc.Encode(o) //nolint:errcheck // whoever started this may have gone
	}
}

func (r *reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enc = nil
}

func (r *reporter) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		r.tell(outcome{Line: string(line)})
		r.rest = rest
	}
}
