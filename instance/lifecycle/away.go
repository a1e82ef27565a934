package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/instance"
)

// An instance whose data are on a disk of their own leaves a note beside it, on the disk that the machine starts from,
// of where that is mounted. At a start without any data the note tells a disk that is not mounted from an instance that
// never was. Where the data are on the same disk as the note would be, neither can be there without the other, and
// there is none.

// noteMount writes down where the disk with the instance's data is mounted, if it is one of its own.
func noteMount(d instance.Dirs) error {
	note := d.DiskNote()
	at, err := mountOf(d.Data)
	if err != nil {
		return err
	}
	beside, err := mountOf(note)
	if err != nil {
		return err
	}
	if at == beside {
		return forgetMount(d)
	}
	if b, err := os.ReadFile(note); err == nil && string(b) == at+"\n" {
		return nil
	}
	if err := durable.Replace(note, []byte(at+"\n"), 0o600); err != nil {
		return fmt.Errorf("note where the data of polyplane '%s' are mounted: %w", d.Name, err)
	}
	return nil
}

// forgetMount removes the note, if there is one.
func forgetMount(d instance.Dirs) error {
	if err := os.Remove(d.DiskNote()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// away is where the disk with the instance's data was mounted and is no longer; empty where it is, or has none.
func away(d instance.Dirs) (string, error) {
	b, err := os.ReadFile(d.DiskNote())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	was := strings.TrimSpace(string(b))
	at, err := mountOf(d.Data)
	if err != nil || at == was {
		return "", err
	}
	return was, nil
}

// checkAway refuses to begin a new instance, or to put one back, where the disk of an earlier one is not mounted.
func checkAway(d instance.Dirs) error {
	was, err := away(d)
	if err != nil || was == "" {
		return err
	}
	return &RefusedError{fmt.Sprintf("polyplane '%s' has its data in %s, on the disk that was mounted at %s, which is "+
		"not mounted now (%s says so), and there are no data without it. Nothing was changed. Mount it, and start "+
		"again; or forget it here, and begin anew: `%s` deletes nothing of what is on that disk", d.Name, d.Data, was,
		d.DiskNote(), instance.Command(d.Name, "down --purge"))}
}

// mountOf is where the file system of a path is mounted, or of its nearest parent that exists.
func mountOf(path string) (string, error) {
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return mountAt(resolved)
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return "", fmt.Errorf("find the disk of %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

// mountAt is the longest mount point that a path, without symbolic links, is at or below.
func mountAt(path string) (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	at := "/"
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line)) // proc(5): the fifth is the mount point
		if len(fields) < 5 {
			continue
		}
		p := unescape(fields[4])
		if len(p) > len(at) && (p == path || strings.HasPrefix(path, p+"/")) {
			at = p
		}
	}
	return at, nil
}
