package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
)

// holder is who holds an instance's lock.
type holder struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	What    string    `json:"what"` // "up" or "down"
}

// BusyError tells that another process holds the instance.
type BusyError struct {
	Instance instance.Dirs
	Holder   holder
}

func (e *BusyError) Error() string {
	if e.Holder.What == "down" {
		return fmt.Sprintf("polyplane '%s' is being ended (process %d): try again when that is done",
			e.Instance.Name, e.Holder.PID)
	}
	return fmt.Sprintf("polyplane '%s' is already running, since %s (process %d): `%s` ends it", e.Instance.Name,
		e.Holder.Started.Local().Format("2006-01-02 15:04:05"), e.Holder.PID, instance.Command(e.Instance.Name, "down"))
}

// lock is an instance's: whoever holds it may start or end the instance's processes. It ends with the process.
type lock struct {
	f    *os.File
	path string
}

// lastSteps is how long a process that is ending may take until it has given up its files. A busy machine needs
// seconds.
const lastSteps = 10 * time.Second

// acquire takes the lock, or returns a *BusyError. A holder that is ending is waited for: whoever has killed it finds
// it gone before the kernel has closed its files.
func acquire(d instance.Dirs, what string) (*lock, error) {
	path, began := d.Lock(), time.Now()
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			continue // the last holder of another instance has just tidied up
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if !errors.Is(err, unix.EWOULDBLOCK) {
				f.Close()
				return nil, fmt.Errorf("lock %s: %w", path, err)
			}
			h := readHolder(f)
			if h.PID != 0 && isEnding(h.PID) && time.Since(began) < lastSteps {
				f.Close()
				time.Sleep(10 * time.Millisecond)
				continue
			}
			f.Close()
			return nil, &BusyError{Instance: d, Holder: h}
		}
		// The last holder may have deleted the file between the two calls.
		var mine, there unix.Stat_t
		if unix.Fstat(int(f.Fd()), &mine) != nil || unix.Stat(path, &there) != nil || mine.Ino != there.Ino {
			f.Close()
			continue
		}
		b, err := json.Marshal(holder{PID: os.Getpid(), Started: time.Now(), What: what})
		if err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		return &lock{f, path}, nil
	}
}

// isEnding tells whether a process has ended, or is about to: its memory is gone already, and with it its command line.
func isEnding(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || len(line) == 0
}

// readHolder reads who holds a lock. It is for messages only: what holds the lock is the open file.
func readHolder(f *os.File) holder {
	var h holder
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	json.Unmarshal(b, &h) //nolint:errcheck // a holder that has not written yet is shown as process 0
	return h
}

// release gives the lock back and takes its file away.
func (l *lock) release() {
	os.Remove(l.path)               //nolint:errcheck // it is only tidier
	os.Remove(filepath.Dir(l.path)) //nolint:errcheck // only if there is no other instance
	l.f.Close()
}

// takeOver ends the `up` that holds the lock – politely, then not – and takes the lock.
func takeOver(d instance.Dirs, polite time.Duration) (*lock, bool, error) {
	stopped := false
	var odd time.Time // since when the lock names a process that does not have it
	for {
		l, err := acquire(d, "down")
		var busy *BusyError
		if err == nil || !errors.As(err, &busy) {
			return l, stopped, err
		}
		if busy.Holder.What == "down" {
			return nil, stopped, err
		}
		if busy.Holder.PID == 0 { // it has the lock and not yet said so
			time.Sleep(10 * time.Millisecond)
			continue
		}
		// It may have let go of the lock just now. But a number that never fits is one of another PID namespace, and
		// here it is somebody else's.
		if !hasOpen(busy.Holder.PID, d.Lock()) {
			if odd.IsZero() {
				odd = time.Now()
			} else if time.Since(odd) > lastSteps {
				return nil, stopped, fmt.Errorf("end polyplane '%s': process %d, which %s names, does not hold that "+
					"lock; whoever does is in another PID namespace, such as a container's: end polyplane there",
					d.Name, busy.Holder.PID, d.Lock())
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err := end(busy.Holder.PID, polite); err != nil {
			return nil, stopped, err
		}
		stopped = true
	}
}

// hasOpen returns whether a process has the file at path open.
func hasOpen(pid int, path string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if open, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && os.SameFile(file, open) {
			return true
		}
	}
	return false
}

// killed is how long a killed process has to be gone. It may have to come out of the kernel first. On a machine with
// hundreds of busy processes that took more than ten seconds.
const killed = 2 * time.Minute

// end ends a process and returns when it has ended.
func end(pid int, polite time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for _, s := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, polite}, {unix.SIGKILL, killed}} {
		if err := unix.PidfdSendSignal(fd, s.signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("end process %d: %w", pid, err)
		}
		if exited(fd, s.wait) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end, not even by SIGKILL", pid)
}

// exited waits for a process to end.
func exited(pidfd int, wait time.Duration) bool {
	deadline := time.Now().Add(wait)
	for {
		left := time.Until(deadline)
		if left < 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err == nil && n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}
