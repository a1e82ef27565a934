package socket

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyplane/polyplane/system/attack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A socket that somebody removes, opens to others or replaces is there again, for its owner only; what is connected
// stays so.
func TestARemovedSocketIsMadeAgain(t *testing.T) {
	attack.Tell(t, "the socket of a daemon is removed, renamed, opened to others or replaced",
		"it is there again, and what was connected stays so")
	path := filepath.Join(t.TempDir(), "run", "a.sock")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // echoes
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }() //nolint:errcheck // ends with the connection
		}
	}()
	speak := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	reach := func(what string) net.Conn {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			c, err := net.Dial("unix", path)
			if err == nil {
				info, statErr := os.Stat(path)
				if statErr == nil && info.Mode().Perm() == 0o600 {
					if err := speak(c); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					return c
				}
				c.Close()
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	first := reach("at first")
	defer first.Close()
	for what, attack := range map[string]func() error{
		"removed":      func() error { return os.Remove(path) },
		"renamed":      func() error { return os.Rename(path, path+".away") },
		"a directory":  func() error { return os.RemoveAll(filepath.Dir(path)) },
		"opened":       func() error { return os.Chmod(path, 0o777) },
		"a stale file": func() error { _ = os.Remove(path); return os.Symlink("/nowhere", path) },
	} {
		if err := attack(); err != nil {
			t.Fatal(err)
		}
		reach(what).Close()
	}
	if err := speak(first); err != nil {
		t.Errorf("who was connected: %v", err)
	}
	if other, err := Listen(t.Context(), path); err == nil {
		other.Close()
		t.Error("a socket that is served was taken over")
	}
}
