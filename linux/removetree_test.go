package linux

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes directories within each other, further than a path may say.
func deep(t *testing.T, top string, levels int) {
	t.Helper()
	fd, err := unix.Open(top, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		var next int
		if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
			next, err = unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

// A tree that is deeper than the process may have files open is removed, and so is one with many files.
func TestRemoveTreeIsBounded(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	for _, dir := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * removeBatch {
		name := filepath.Join(top, "c", strings.Repeat("x", 1+i%200)+string(rune('a'+i/200)))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deep(t, filepath.Join(top, "a", "b"), 5000)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := RemoveTree(top)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Errorf("it is there still: %v", err)
	}
	if err := RemoveTree(top); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

// Links go, and not what they lead to.
func TestRemoveTreeFollowsNoLinks(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	top := filepath.Join(dir, "top")
	for _, d := range []string{kept, top} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(kept, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{filepath.Join(top, "link"), filepath.Join(dir, "link")} {
		if err := os.Symlink(kept, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{top, filepath.Join(dir, "link")} {
		if err := RemoveTree(path); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left is %v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
		t.Error(err)
	}
}

// What is mounted below is left alone, and told: another disk, and another directory of the same one.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	dir := t.TempDir()
	kept, top := filepath.Join(dir, "kept"), filepath.Join(dir, "top")
	bound, disk := filepath.Join(top, "a", "bound"), filepath.Join(top, "b", "disk")
	for _, d := range []string{kept, bound, disk} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(kept, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // its mount namespace ends with it
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount(kept, bound, "", unix.MS_BIND, "")
		}
		if err == nil {
			err = unix.Mount("none", disk, "tmpfs", 0, "")
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(disk, "file"), nil, 0o600)
		}
		if err == nil {
			if err := RemoveTree(top); err == nil || !strings.Contains(err.Error(), "something is mounted there") {
				t.Errorf("it is told by %v", err)
			}
			_, err = os.Stat(filepath.Join(disk, "file"))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
		t.Errorf("what is bound below is gone: %v", err)
	}
}
