package netns

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// TestATreeThatIsAnImage: an image that was not verified to be files for elements is put into none, whatever it has,
// and no element is made from files for elements.
func TestATreeThatIsAnImage(t *testing.T) {
	n := newNode(t)
	var r registry
	n.serveImages(t, &r)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the machine's own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hostile := r.add(t, model.ImageRun{}, Layer(t, File{Name: "files/x", Kind: tar.TypeSymlink, Link: secret},
		File{Name: "files/y", Content: "y"}))
	jobs := lineOf("lab", 63, 2)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	tree := r.addFiles(t, map[string]string{"a": "a"})
	jobs[0].Element.Service = model.Service{Contents: map[string]model.File{"/srv/www": {Tree: hostile, Size: 1}}}
	jobs[1].Element.Image = "lab/files@" + tree.Tree
	for i, want := range []string{"what is to be at /srv/www is " + strings.TrimPrefix(hostile, "sha256:")[:12] +
		", an image that elements are made from", "has files that are put into elements (files:), and no element is made"} {
		for said := ""; !strings.Contains(said, want); {
			res := n.Apply(t.Context(), jobs)[i]
			if res.Err != nil {
				said = res.Err.Error()
			} else if res.Phase == model.PhaseRunning && res.Message == "" {
				t.Fatalf("%s is applied; wanted: %s", res.ID, want)
			}
			if t.Context().Err() != nil {
				t.Fatal(said)
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(n.rootfs(jobs[0].ID), "srv/*"))
	if err != nil || len(found) > 0 {
		t.Errorf("it was given %q, %v", found, err)
	}
}

// TestLinksInTrees: whatever got into a tree's directory, only regular files are opened, and nothing is followed.
func TestLinksInTrees(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	plant := map[string]func(files string) error{
		"a link":             func(files string) error { return os.Symlink(secret, filepath.Join(files, "x")) },
		"a link to a device": func(files string) error { return os.Symlink("/dev/zero", filepath.Join(files, "x")) },
		"a pipe":             func(files string) error { return unix.Mkfifo(filepath.Join(files, "x"), 0o600) },
		"a device": func(files string) error {
			return unix.Mknod(filepath.Join(files, "x"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))
		},
		"a link to a directory": func(files string) error { return os.Symlink(filepath.Dir(secret), filepath.Join(files, "x")) },
		"a link as the whole": func(files string) error {
			return os.Symlink(secret, files)
		},
		"a link to a directory as the whole": func(files string) error { return os.Symlink(filepath.Dir(secret), files) },
	}
	for what, do := range plant {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			files := filepath.Join(dir, "files")
			below := "x"
			if strings.HasSuffix(what, "as the whole") {
				below = ""
			} else if err := os.Mkdir(files, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := do(files); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			f := &elementFiles{root: root}
			all := &treesOf{path: func(string) string { return filepath.Join(t.TempDir(), "note") }, notes: map[string]*treeNote{}}
			is := &planted{at: "/srv", dir: dir, sizes: map[string]int64{}, note: &treeNote{Files: map[string]treeMark{}}}
			if _, err := is.compare(t.Context(), f, all, &planting{}, false); err == nil ||
				!strings.Contains(err.Error(), "is no regular file") {
				t.Errorf("compared: %v", err)
			}
			is.write = []string{below}
			if err := is.writeAll(t.Context(), f, &planting{taking: &taking{}}); err == nil || !strings.Contains(err.Error(), "is no regular file") {
				t.Errorf("written: %v", err)
			}
			from, err := openTree(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer from.close()
			if _, err := sumOf(t.Context(), from.open, below); err == nil {
				t.Error("it was read")
			}
			if below == "x" { // nor is a file found through a link to its directory
				if _, err := from.open("x/secret"); err == nil {
					t.Error("what is below was opened")
				}
			}
			if got, _ := os.ReadFile(filepath.Join(root.Name(), "srv")); bytes.Contains(got, []byte("secret")) {
				t.Errorf("it was given %q", got)
			}
			if made, err := os.ReadDir(root.Name()); err != nil || slices.ContainsFunc(made, func(e os.DirEntry) bool {
				return e.Type().IsRegular()
			}) {
				t.Errorf("made were %v, %v", made, err)
			}
		})
	}
}
