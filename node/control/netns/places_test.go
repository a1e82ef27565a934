package netns

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// placed are files that an element is given: those of trees by the tree's path, a ">" and the path below, others by
// their path.
type placed map[string]string

func (p *planter) planOf(files placed) *software.Plan {
	p.t.Helper()
	plan := &software.Plan{}
	trees := map[string]map[string]string{}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if at, below, large := strings.Cut(at, ">"); large {
			if trees[at] == nil {
				trees[at] = map[string]string{}
			}
			trees[at][below] = files[at+">"+below]
			continue
		}
		plan.Contents = append(plan.Contents, software.File{Path: at, Content: files[at], Mode: 0o644, Owner: "root", Group: "root"})
	}
	for _, at := range slices.Sorted(maps.Keys(trees)) {
		p.give(plan, at, trees[at])
	}
	return plan
}

func (p *planter) there() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(p.f.root.Name(), func(at string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(at)
		all[strings.TrimPrefix(at, p.f.root.Name())] = string(content)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// dirs are the directories that are there.
func (p *planter) dirs() map[string]bool {
	p.t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(p.f.root.Name(), func(at string, entry os.DirEntry, err error) error {
		if at != p.f.root.Name() && err == nil && entry.IsDir() {
			all[strings.TrimPrefix(at, p.f.root.Name())] = true
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// dirsAbove are the directories that files need.
func dirsAbove(files map[string]string) map[string]bool {
	all := map[string]bool{}
	for file := range files {
		for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return all
}

// TestDirectoriesGo: directories that were made for files go with the last of them. What was there before stays, and so
// does what somebody has put something into; what a link leads to is somebody else's.
func TestDirectoriesGo(t *testing.T) {
	p := newPlanter(t)
	give := func(files placed) {
		t.Helper()
		if kept, err := p.plantAll(t.Context(), p.planOf(files)); err != nil || len(kept) > 0 {
			t.Errorf("%v, kept are %q", err, kept)
		}
	}
	has := func(want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(p.dirs())); !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	make := func(at string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(p.f.root.Name(), at), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	make("/etc")
	make("/opt/before")
	give(placed{"/etc/a/b/c": "1", "/opt/before/d": "1", "/srv/www>e/f/g": "1", "/srv/www>h": "1"})
	has("/etc", "/etc/a", "/etc/a/b", "/opt", "/opt/before", "/srv", "/srv/www", "/srv/www/e", "/srv/www/e/f")
	give(placed{"/etc/a/z": "1", "/srv/www>h": "1"})
	has("/etc", "/etc/a", "/opt", "/opt/before", "/srv", "/srv/www")
	make("/srv/mine")
	give(placed{})
	has("/etc", "/opt", "/opt/before", "/srv", "/srv/mine")
	// What somebody had in there, and took out again.
	if err := os.Remove(filepath.Join(p.f.root.Name(), "/srv/mine")); err != nil {
		t.Fatal(err)
	}
	give(placed{"/etc/x": "1", "/var/a/b": "1", "/usr/a/b": "1"})
	has("/etc", "/opt", "/opt/before", "/usr", "/usr/a", "/var", "/var/a")
	if err := os.RemoveAll(filepath.Join(p.f.root.Name(), "/usr")); err != nil {
		t.Fatal(err)
	}
	make("/theirs/a")
	if err := os.Symlink("theirs", filepath.Join(p.f.root.Name(), "usr")); err != nil {
		t.Fatal(err)
	}
	give(placed{"/var/a/b": "1"})
	give(placed{})
	has("/etc", "/opt", "/opt/before", "/theirs", "/theirs/a")
}

// TestPlacesChange: what was put at a path gives way to what is put there next – a file to a directory, a directory to a
// file, a tree to one above it –, and nothing of it counts as edited inside. What somebody has edited, or made beside it,
// stays, and is told of.
func TestPlacesChange(t *testing.T) {
	p := newPlanter(t)
	for name, c := range map[string]struct {
		first, then placed
		inside      placed // what is written inside between
		kept        []string
	}{
		"a file of a tree to a directory":        {first: placed{"/srv>x": "1", "/srv>same": "s"}, then: placed{"/srv>x/y/z": "2", "/srv>same": "s"}},
		"a directory of a tree to a file":        {first: placed{"/srv>x/y/z": "1", "/srv>x/v": "1"}, then: placed{"/srv>x": "2"}},
		"a file to a directory":                  {first: placed{"/srv/a": "1"}, then: placed{"/srv/a/b": "2", "/srv/a/c": "2"}},
		"a directory to a file":                  {first: placed{"/srv/a/b": "1", "/srv/a/c/d": "1"}, then: placed{"/srv/a": "2"}},
		"a file to a tree":                       {first: placed{"/srv/a": "1"}, then: placed{"/srv/a>b": "2"}},
		"a tree to a file":                       {first: placed{"/srv/a>b": "1", "/srv/a>c/d": "1"}, then: placed{"/srv/a": "2"}},
		"a large file to a tree":                 {first: placed{"/srv/a>": "1"}, then: placed{"/srv/a>b": "2"}},
		"a tree to a large file":                 {first: placed{"/srv/a>b/c": "1"}, then: placed{"/srv/a>": "2"}},
		"a tree moves up":                        {first: placed{"/srv/a>b": "1", "/srv/a>c": "1", "/srv/a>d": "s"}, then: placed{"/srv>e": "2", "/srv>a/b": "2", "/srv>a/d": "s"}},
		"a tree moves up, and leaves nothing":    {first: placed{"/srv/a>b": "1"}, then: placed{"/srv>e": "2"}},
		"a tree moves down":                      {first: placed{"/srv>a/b": "1", "/srv>c": "1"}, then: placed{"/srv/a>b": "2"}},
		"files move up into a tree":              {first: placed{"/srv/a/b": "1", "/srv/a/c": "1"}, then: placed{"/srv>a/b": "2"}},
		"a tree becomes small, one a directory":  {first: placed{"/srv>x": "1", "/srv>y/z": "1"}, then: placed{"/srv/x/v": "2", "/srv/y": "2"}},
		"it becomes large, and one a directory":  {first: placed{"/srv/x": "1", "/srv/y/z": "1"}, then: placed{"/srv>x/v": "2", "/srv>y": "2"}},
		"an edited file stays a file":            {first: placed{"/srv>x": "1"}, inside: placed{"/srv/x": "mine"}, then: placed{"/srv>x/y": "2", "/srv>z": "2"}, kept: []string{"/srv/x/y"}},
		"something was made in a directory":      {first: placed{"/srv>x/y": "1"}, inside: placed{"/srv/x/own": "mine"}, then: placed{"/srv>x": "2", "/srv>z": "2"}, kept: []string{"/srv/x"}},
		"something was made beside small files":  {first: placed{"/srv/x/y": "1"}, inside: placed{"/srv/x/own": "mine"}, then: placed{"/srv/x": "2"}, kept: []string{"/srv/x"}},
		"a tree moves up over an edited file":    {first: placed{"/srv/a>b": "1", "/srv/a>c": "1"}, inside: placed{"/srv/a/b": "mine"}, then: placed{"/srv>a/b": "2"}, kept: []string{"/srv/a/b"}},
		"all goes, and what was made inside not": {first: placed{"/srv>a": "1", "/opt/b": "1"}, inside: placed{"/srv/own": "mine"}, then: placed{}},
	} {
		p.next()
		plan := func(files placed) []string {
			t.Helper()
			kept, err := p.plantAll(t.Context(), p.planOf(files))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return kept
		}
		if kept := plan(c.first); len(kept) > 0 {
			t.Errorf("%s: at first %q were kept", name, kept)
		}
		for at, content := range c.inside {
			if err := os.WriteFile(filepath.Join(p.f.root.Name(), at), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if kept := plan(c.then); !slices.Equal(kept, c.kept) {
			t.Errorf("%s: kept are %q, want %q", name, kept, c.kept)
		}
		want := maps.Clone(map[string]string(c.inside))
		if want == nil {
			want = map[string]string{}
		}
		for at, content := range c.then {
			top, below, _ := strings.Cut(at, ">")
			if at := path.Join(top, below); !slices.Contains(c.kept, at) {
				want[at] = content
			}
		}
		if got := p.there(); !maps.Equal(got, want) {
			t.Errorf("%s: there is %q, want %q", name, got, want)
		}
		if got, want := p.dirs(), dirsAbove(want); !maps.Equal(got, want) {
			t.Errorf("%s: there are the directories %v, want %v", name, got, want)
		}
		// Once more, and back.
		if kept := plan(c.then); !slices.Equal(kept, c.kept) {
			t.Errorf("%s: once more, kept are %q", name, kept)
		}
		if len(c.inside) == 0 {
			if kept := plan(c.first); len(kept) > 0 {
				t.Errorf("%s: back, kept are %q", name, kept)
			}
		}
	}
}

// TestLastFilesGo: where the last file goes of an element that runs nothing, what it was given goes as well, also where
// that happened while it was stopped; what was made or edited inside stays.
func TestLastFilesGo(t *testing.T) {
	n := newNode(t)
	var r registry
	n.serveImages(t, &r)
	jobs := lineOf("lab", 65, 2)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
		jobs[i].Element.Service = model.Service{Contents: map[string]model.File{"/srv/www": r.addFiles(t, map[string]string{
			"a": "a\n", "deep/b": "b\n", "c": "c\n"}), "/root/small": {Text: "small\n"}, "/root/edited": {Text: "small\n"}}}
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for i := range jobs {
		n.run(t, jobs[i].ID, "sh", "-c", "echo own > /srv/www/own; echo mine > /root/edited; echo mine > /srv/www/c")
	}
	jobs[1].Element.Stopped = true
	n.apply(t, jobs)
	for i := range jobs {
		jobs[i].Element.Contents = nil
	}
	n.apply(t, jobs)
	jobs[1].Element.Stopped = false
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for i := range jobs {
		if got := n.run(t, jobs[i].ID, "sh", "-c", "find /srv /root -type f | sort; cat /root/edited"); got !=
			"/root/edited\n/srv/www/c\n/srv/www/own\nmine\n" {
			t.Errorf("%s has %q", jobs[i].ID, got)
		}
	}
}
