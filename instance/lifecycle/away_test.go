package lifecycle

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
)

// mounted mounts a small disk at a directory, which it makes.
func mounted(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("polyplane-test", dir, "tmpfs", 0, "size=200m"); err != nil {
		t.Fatal(err)
	}
	there := true
	unmount = func() {
		t.Helper()
		if there {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
		there = false
	}
	t.Cleanup(unmount)
	return unmount
}

// A disk of its own that is not mounted is told from an instance that never was, wherever it is mounted: above all
// instances' data, at one's, or behind a symbolic link. Who has none has no note, and nobody else's counts.
func TestDiskThatIsAway(t *testing.T) {
	for name, at := range map[string]string{"above": "lib", "at the data": "lib/x", "behind a link": "disk", "none": ""} {
		dir := t.TempDir()
		d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "lib", "x")}
		other := instance.Dirs{Name: "y", Run: d.Run, Data: filepath.Join(dir, "lib", "y")}
		unmount := func() {}
		if at != "" {
			unmount = mounted(t, filepath.Join(dir, at))
		}
		if at == "disk" {
			if err := os.Symlink("disk", filepath.Join(dir, "lib")); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkAway(d); err != nil {
			t.Errorf("%s: before it ever began: %v", name, err)
		}
		if err := os.MkdirAll(d.Data, 0o755); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := noteMount(d); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkAway(d); err != nil {
			t.Errorf("%s: its disk is mounted: %v", name, err)
		}
		unmount()
		err := checkAway(d)
		var refused *RefusedError
		if at == "" {
			if _, none := os.Stat(d.DiskNote()); err != nil || none == nil {
				t.Errorf("without a disk of its own: %v, and the note is there", err)
			}
			continue
		}
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "mounted at "+filepath.Join(dir, at)+", which is not") ||
			!strings.Contains(err.Error(), "down --purge --instance x") {
			t.Errorf("%s: its disk is away: %v", name, err)
		}
		if err := checkAway(other); err != nil {
			t.Errorf("%s: another instance: %v", name, err)
		}
		if at != "disk" { // its data were moved to the disk that was below
			if err := os.MkdirAll(d.Data, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := noteMount(d); err != nil {
				t.Fatal(err)
			}
			if err := checkAway(d); err != nil {
				t.Errorf("%s: after a move: %v", name, err)
			}
		}
		if err := forgetMount(d); err != nil {
			t.Error(err)
		}
		if err := checkAway(d); err != nil {
			t.Errorf("%s: forgotten: %v", name, err)
		}
	}
}

// TestUpWithoutItsDisk: `up` and `restore` do not begin anew where the disk is not mounted that the data are on, and
// come back to them when it is. `down --purge` forgets it.
func TestUpWithoutItsDisk(t *testing.T) {
	p := newPlatform(t)
	disk := filepath.Join(t.TempDir(), "disk")
	data := filepath.Join(disk, "x")
	unmount := mounted(t, disk)
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(p.dirs.Data), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, p.dirs.Data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(p.dirs.Data) }) // with the disk away, `down --purge` leaves it
	p.up("--nodes", "1")
	p.run("down", "--name", p.dirs.Name)
	settings, err := os.ReadFile(filepath.Join(data, instance.SettingsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(disk+"2", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(disk, disk+"2", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk+"2", unix.MNT_DETACH) })
	unmount()
	for _, args := range [][]string{{"up", "-d"}, {"up", "-d", "--nodes", "2"}, {"restore", "--empty"}} {
		out, err := p.try(append(args, "--instance", p.dirs.Name)...)
		if err == nil || !strings.Contains(out, "mounted at "+disk+", which is not mounted now") {
			t.Errorf("%v without the disk: %v, %s", args, err, out)
		}
	}
	if left, _ := os.ReadDir(disk); len(left) > 0 {
		t.Errorf("below where the disk is mounted there is %v", left)
	}
	if err := unix.Mount(disk+"2", disk, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	p.up()
	if now, err := os.ReadFile(filepath.Join(data, instance.SettingsFile)); err != nil || !bytes.Equal(now, settings) {
		t.Errorf("mounted again it came back to %s (%v), and was %s", now, err, settings)
	}
	p.run("down", "--name", p.dirs.Name)
	if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	// Purged, it is forgotten here, and what is on the disk stays.
	if out := p.run("down", "--name", p.dirs.Name, "--purge"); !strings.Contains(out, "nothing of them was deleted") {
		t.Errorf("purged without its disk it says %q", out)
	}
	if _, err := os.Stat(p.dirs.DiskNote()); err == nil {
		t.Error("the note is left")
	}
}
