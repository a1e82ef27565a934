package linux

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An image that is attached is found by whatever path leads to it, or it would be attached twice.
func TestLoopOfFollowsLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at, link := filepath.Join(dir, "at"), filepath.Join(dir, "link")
	image := filepath.Join(link, "image")
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "data"), 0o700), os.Mkdir(at, 0o700),
		os.Symlink("data", link),
		os.WriteFile(image, nil, 0o600), os.Truncate(image, 4<<20)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if device := LoopOf(image); device != "" {
		t.Fatalf("%s before it was attached", device)
	}
	if err := MountImage(image, at, unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	device := LoopOf(image)
	if device == "" || LoopOf(filepath.Join(dir, "data", "image")) != device {
		t.Errorf("by a link it is attached to %q, by its own path to %q", device,
			LoopOf(filepath.Join(dir, "data", "image")))
	}
}
