package netns

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/software"
)

// tellStopFailed has it told which command has failed that was run before an element's end.
func (d *Driver) tellStopFailed(w *work) {
	root, err := os.OpenRoot(d.rootfs(w.job.ID))
	if err != nil {
		return // without files nothing was run
	}
	defer root.Close()
	data, err := readNote(root, software.StopFailed)
	if err != nil {
		return
	}
	if words := software.Trouble(data); words != "" {
		w.did(change.CommandFailed, words)
	}
	root.Remove(rel(software.StopFailed)) //nolint:errcheck // the next start does
}

// What a service prints goes into its element's log, on the element's own disk. So that it does not fill the disk over
// the weeks, a log that has grown beyond logMost is set aside, and only the end of it is kept.
const (
	logMost = 16 << 20
	logKept = 1 << 20
)

// trimLog does so. What is printed in the moment between the two steps is lost.
func (d *Driver) trimLog(id model.ID) {
	path := d.logPath(id)
	info, err := os.Stat(path)
	if err != nil || info.Size() <= logMost {
		return
	}
	if err := cutLog(path, info.Size()); err != nil && !errors.Is(err, unix.ENOSPC) {
		d.log.Warn("set aside the log of what is run in an element", "element", id, "error", err)
	}
}

// cutLog keeps a log's end in a second file, and empties the log itself: who writes it goes on with the same file.
func cutLog(path string, size int64) error {
	from, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	aside, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(from, size-logKept, logKept))
	if err = errors.Join(err, aside.Close()); err != nil {
		return fmt.Errorf("copy its end: %w", err)
	}
	return from.Truncate(0) // those who write into it append
}
