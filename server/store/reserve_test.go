package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// diskOf mounts a disk of so many MiB: in memory, or a file system with a journal, which does not give back at once
// what a file gives up.
func diskOf(t *testing.T, kind string, mib int) string {
	t.Helper()
	disk := t.TempDir()
	if kind == "tmpfs" {
		if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
			t.Fatal(err)
		}
	} else {
		image := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, int64(mib)<<20); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, disk}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
			unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // the last that can be tried
		}
	})
	return disk
}

// On a full disk, whoever makes room or ends something is heard, also after the store was opened anew there, and while
// somebody takes what the reserve gives up. An administrator is heard when owners have used up their part.
func TestUrgentWritesHaveAReserve(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			disk := diskOf(t, kind, 300)
			options := EmbeddedOptions{Dir: filepath.Join(disk, "etcd"), Log: filepath.Join(t.TempDir(), "etcd.log"),
				Reserve: filepath.Join(disk, "etcd.reserve")}
			reopen := func() *Store {
				s, err := OpenEmbedded(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := reopen()
			defer func() { s.Close() }()
			if held := Reserved(options.Reserve); held != reserveSize {
				t.Fatalf("%d bytes are held", held)
			}
			owner, administrator := Urgent(t.Context(), false), Urgent(t.Context(), true)
			revision := int64(0)
			put := func(ctx context.Context) error {
				_, err := s.Put(ctx, record("a", revision+1, 3))
				if err == nil {
					revision++
				}
				return err
			}
			must := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			must("while there is room", put(t.Context()))
			free := fill(t, disk)
			ordinary := func() {
				t.Helper()
				if err := put(t.Context()); !errors.Is(err, ErrFull) {
					t.Fatalf("a write that is not urgent: %v", err)
				}
			}
			ordinary()
			must("an owner's", put(owner))
			ordinary() // what was given up is not for everybody
			must("an owner's next", put(owner))
			must("restraints", s.PutRestraints(owner, []model.Restraint{{Owner: "bob", ID: model.ID{Network: "a"},
				Attack: model.AttackTell}}))

			for n := 0; ; n++ {
				more := fillMore(t, disk, n)
				defer more()
				if err := put(owner); errors.Is(err, ErrFull) {
					break
				} else if err != nil || n > reserveSize/urgentRoom {
					t.Fatalf("owners were heard %d times: %v", n, err)
				}
			}
			if held := Reserved(options.Reserve); held < reserveSize/ownersShare {
				t.Fatalf("owners have left %d bytes", held)
			}
			must("an administrator's", put(administrator))
			must("close", s.Close())
			defer fillMore(t, disk, 100)()
			s = reopen()
			load(t, s)
			must("an administrator's, after a start on a full disk", put(administrator))
			equal(t, load(t, s)["a"], record("a", revision, 3))
			if _, err := s.Delete(t.Context(), "a", model.Deleted{Index: 1}); err != nil {
				t.Fatal("deletions are never refused:", err)
			}
			for n := range 101 {
				os.Remove(filepath.Join(disk, fmt.Sprint("ballast", n))) //nolint:errcheck // most are not there
			}
			free()
			must("close", s.Close())
			s = reopen()
			if held := Reserved(options.Reserve); held != reserveSize {
				t.Errorf("with room again, %d bytes are held", held)
			}
			must("close", s.Close())
		})
	}
}

// fillMore fills what has become free since.
func fillMore(t *testing.T, dir string, n int) (free func()) {
	t.Helper()
	fill(t, dir)
	path := filepath.Join(dir, fmt.Sprint("ballast", n))
	if err := os.Rename(filepath.Join(dir, "ballast"), path); err != nil {
		t.Fatal(err)
	}
	return func() { os.Remove(path) }
}
