package lifecycle

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
)

// holdAs takes an instance's lock, and writes that a process has it.
func holdAs(t *testing.T, d instance.Dirs, pid int) *os.File {
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

// Whoever holds the lock in another PID namespace has another number there: the process that has this number here is
// somebody else's, and is left alone.
func TestDownEndsOnlyWhoHasTheLock(t *testing.T) {
	d := instance.Dirs{Name: "t", Run: filepath.Join(t.TempDir(), "t")}
	innocent := exec.Command("sleep", "1h")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		innocent.Process.Kill() //nolint:errcheck // it is still there, or the test has failed
		innocent.Wait()         //nolint:errcheck // by the signal
	}()
	f := holdAs(t, d, innocent.Process.Pid)
	_, stopped, err := takeOver(d, time.Second)
	if err == nil || stopped || !strings.Contains(err.Error(), "another PID namespace") {
		t.Errorf("it ended somebody: %t; %v", stopped, err)
	}
	if err := innocent.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("whose number the lock names: %v", err)
	}
	f.Close()

	// Who does have it is ended.
	up := exec.Command("sh", "-c", `exec 9<>"$0"; flock 9; exec sleep 1h`, d.Lock())
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	go up.Wait() //nolint:errcheck // by a signal
	for {        // until it has the lock
		f, err := os.Open(d.Lock())
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		f.Close()
		if err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b, err := json.Marshal(holder{PID: up.Process.Pid, What: "up"})
	if err == nil {
		err = os.WriteFile(d.Lock(), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, stopped, err := takeOver(d, time.Minute)
	if err != nil || !stopped {
		t.Fatalf("the holder was ended: %t; %v", stopped, err)
	}
	l.release()
}

// A process that was killed is gone for whoever looks, and has its files for a moment more: the lock is waited for.
// That of one that runs is not.
func TestLockOfAHolderThatIsEnding(t *testing.T) {
	d := instance.Dirs{Name: "t", Run: filepath.Join(t.TempDir(), "t")}
	hold := func(pid int) *os.File { return holdAs(t, d, pid) }
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
