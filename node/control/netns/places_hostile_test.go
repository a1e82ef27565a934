package netns

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestHostilePlaces: what an element's root makes in a directory that was made for given files is not looked through,
// however deep or wide it is: it stays, or is set aside as a whole when it is to be overwritten.
func TestHostilePlaces(t *testing.T) {
	p := newPlanter(t)
	const many, name = 500, 250
	for what, make := range map[string]func(dir *os.Root) error{
		"deep": func(dir *os.Root) error {
			for range many {
				if err := dir.Mkdir(strings.Repeat("d", name), 0o755); err != nil {
					return err
				}
				next, err := dir.OpenRoot(strings.Repeat("d", name))
				if err != nil {
					return err
				}
				defer next.Close()
				dir = next
			}
			return nil
		},
		"wide": func(dir *os.Root) error {
			for i := range 20 * many {
				if err := dir.Mkdir(strconv.Itoa(i), 0o755); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		for _, force := range []bool{false, true} {
			p.next()
			first, then := p.planOf(placed{"/srv/a/f": "1"}), p.planOf(placed{"/srv/a": "2"})
			if _, err := p.plantAll(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			dir, err := p.f.root.OpenRoot("srv/a")
			if err == nil {
				err = make(dir)
				dir.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			p.overwrites = 0
			kept := []string{"/srv/a"}
			if force {
				p.overwrites, kept = 1, nil
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := p.plantAll(t.Context(), then)
			runtime.ReadMemStats(&after)
			p.overwrites = 0
			if err != nil || !slices.Equal(got, kept) {
				t.Errorf("%s, overwritten %t: kept are %q, %v", what, force, got, err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
				t.Errorf("%s, overwritten %t: it took %d KiB", what, force, took>>10)
			}
			if info, err := p.f.root.Lstat("srv/a"); err != nil || info.IsDir() == force {
				t.Errorf("%s, overwritten %t: at the place is %v, %v", what, force, info, err)
			}
			if told := len(p.f.moved); force != (told == 1) {
				t.Errorf("%s, overwritten %t: %d moves are told of", what, force, told)
			}
		}
	}
}

// TestMadeDirectoriesAreToldOf: only directories that were made for given files go silently. Where a link has taken such a
// one's place, nothing goes where that leads.
func TestMadeDirectoriesAreToldOf(t *testing.T) {
	p := newPlanter(t)
	for what, c := range map[string]struct {
		inside func(root string) error
		stays  string
		moves  int
	}{
		"nothing": {inside: func(string) error { return nil }, stays: "srv"},
		"an empty directory": {inside: func(root string) error { return os.MkdirAll(filepath.Join(root, "srv/a/own"), 0o755) },
			stays: "srv/a.replaced/own", moves: 1},
		"a link": {inside: func(root string) error {
			if err := os.RemoveAll(filepath.Join(root, "srv/a")); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(root, "keep/b/c"), 0o755); err != nil {
				return err
			}
			return os.Symlink("../keep", filepath.Join(root, "srv/a"))
		}, stays: "keep/b/c"},
		"a link below": {inside: func(root string) error {
			if err := os.RemoveAll(filepath.Join(root, "srv/a/b")); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(root, "keep/c"), 0o755); err != nil {
				return err
			}
			return os.Symlink("../../keep", filepath.Join(root, "srv/a/b"))
		}, stays: "keep/c", moves: 1},
	} {
		p.next()
		if _, err := p.plantAll(t.Context(), p.planOf(placed{"/srv/a/b/c/f": "1"})); err != nil {
			t.Fatal(err)
		}
		if err := c.inside(p.f.root.Name()); err != nil {
			t.Fatal(err)
		}
		p.overwrites = 1
		kept, err := p.plantAll(t.Context(), p.planOf(placed{"/srv/a": "2"}))
		p.overwrites = 0
		if err != nil || len(kept) > 0 || len(p.f.moved) != c.moves {
			t.Errorf("%s: kept are %q, %d moves are told of, %v", what, kept, len(p.f.moved), err)
		}
		if info, err := p.f.root.Lstat(c.stays); err != nil || !info.IsDir() {
			t.Errorf("%s: /%s is gone: %v", what, c.stays, err)
		}
		if now, err := p.f.root.ReadFile("srv/a"); err != nil || string(now) != "2" {
			t.Errorf("%s: there is %q, %v", what, now, err)
		}
	}
}
