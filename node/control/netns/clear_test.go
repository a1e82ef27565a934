package netns

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// Directories within each other, deeper than the agent may have descriptors, in the way of files that it writes: they
// are set aside, and the files are there. Before, removing them took all descriptors, and no start helped.
func TestDeepTreesAreSetAside(t *testing.T) {
	const most, deep = 128, 300
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	plant := func(path string) {
		t.Helper()
		if err := root.MkdirAll(path+strings.Repeat("/d", deep), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"etc/motd.polyplane-new", "etc/passwd", "etc/group.polyplane-new", "srv/.polyplane-new"} {
		plant(path)
	}
	if err := root.Mkdir("etc/empty.polyplane-new", 0o755); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was) //nolint:errcheck // it was so

	f := &elementFiles{root: root, base: os.Getuid()}
	job := &control.Job{ID: model.ID{Network: "lab", Element: "a"}}
	job.Element.Name = "a"
	if err := f.furnish(job); err != nil {
		t.Errorf("furnish: %v", err)
	}
	for _, path := range []string{"/etc/motd", "/etc/empty"} {
		if err := f.write(path, "text", 0o644, 0, 0); err != nil {
			t.Errorf("write %s: %v", path, err)
		}
	}
	if err := f.unpack(archive.File{Path: "srv/page", Size: 4, Mode: 0o644}, strings.NewReader("text")); err != nil {
		t.Errorf("unpack: %v", err)
	}
	for _, path := range []string{"etc/motd", "etc/empty", "srv/page", "etc/passwd", "etc/group"} {
		if !f.regular(path) {
			t.Errorf("/%s is not there", path)
		}
	}
	for _, path := range []string{"etc/motd.polyplane-new", "etc/passwd", "etc/group.polyplane-new", "srv/.polyplane-new"} {
		if !f.exists(path + asideSuffix + "/d/d") {
			t.Errorf("what was at /%s is not kept", path)
		}
		if !slices.ContainsFunc(f.moved, func(c change.Change) bool { return c.Object == "/"+path }) {
			t.Errorf("%q does not tell of /%s", f.moved, path)
		}
	}
	if f.exists("etc/empty.polyplane-new" + asideSuffix) {
		t.Error("an empty directory is kept")
	}
}
