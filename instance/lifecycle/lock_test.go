package lifecycle

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
)

// A process that was killed is gone for whoever looks, and has its files for a moment more: the lock is waited for.
// That of one that runs is not.
func TestLockOfAHolderThatIsEnding(t *testing.T) {
	d := instance.Dirs{Name: "t", Run: filepath.Join(t.TempDir(), "t")}
	hold := func(pid int) *os.File {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(d.Lock()), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(holder{PID: pid, What: "up"})
		if err == nil {
			err = os.WriteFile(d.Lock(), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(d.Lock())
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	gone := exec.Command("true")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	defer gone.Wait() //nolint:errcheck // until then it is a zombie, which has no command line
	if err := unix.Waitid(unix.P_PID, gone.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	f := hold(gone.Process.Pid)
	time.AfterFunc(100*time.Millisecond, func() { f.Close() })
	l, err := acquire(d, "up")
	if err != nil {
		t.Fatalf("the holder has ended: %v", err)
	}
	l.release()

	f = hold(os.Getpid())
	defer f.Close()
	var busy *BusyError
	if _, err := acquire(d, "up"); !errors.As(err, &busy) || busy.Holder.PID != os.Getpid() {
		t.Errorf("the holder runs: %v", err)
	}
}
