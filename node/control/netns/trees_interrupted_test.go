package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// breaks is a context that ends, or has a crash happen, after it was asked a number of times.
type breaks struct {
	context.Context
	left  int
	crash bool
}

var errCrash = errors.New("crash")

func (b *breaks) Err() error {
	if b.left--; b.left >= 0 {
		return nil
	}
	if b.crash {
		panic(errCrash)
	}
	return context.Canceled
}

// planter plants trees into an element's root without running anything.
type planter struct {
	*testNode
	t          *testing.T
	id         model.ID
	f          *elementFiles
	r          *registry
	made       int
	overwrites uint32
}

func newPlanter(t *testing.T) *planter {
	t.Helper()
	p := &planter{testNode: newNode(t), t: t, r: &registry{}}
	p.serveImages(t, p.r)
	p.next()
	return p
}

// next goes on with an element that has nothing.
func (p *planter) next() {
	p.t.Helper()
	p.made++
	p.id = model.ID{Network: "lab", Element: fmt.Sprintf("r%d", p.made)}
	if err := os.MkdirAll(p.rootfs(p.id), 0o700); err != nil {
		p.t.Fatal(err)
	}
	root, err := os.OpenRoot(p.rootfs(p.id))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { root.Close() })
	p.f = &elementFiles{root: root, id: p.id}
}

func (p *planter) plan(files map[string]string) *software.Plan {
	p.t.Helper()
	plan := &software.Plan{}
	if files != nil {
		p.give(plan, "/srv", files)
	}
	return plan
}

// give adds a tree to a plan.
func (p *planter) give(plan *software.Plan, at string, files map[string]string) {
	p.t.Helper()
	plan.Contents = append(plan.Contents, software.File{Path: at, Tree: p.r.addFiles(p.t, files).Tree})
	for waits := "yet"; waits != ""; {
		var err error
		if _, waits, err = p.treeDir(&plan.Contents[len(plan.Contents)-1]); err != nil || p.t.Context().Err() != nil {
			p.t.Fatal(err)
		}
	}
}

// plant does what an apply does with trees.
func (p *planter) plant(ctx context.Context, files map[string]string) (kept []string, err error) {
	p.t.Helper()
	return p.plantAll(ctx, p.plan(files))
}

// plantAll does it with a plan.
func (p *planter) plantAll(ctx context.Context, plan *software.Plan) (kept []string, err error) {
	p.t.Helper()
	defer func() {
		if is := recover(); is != nil {
			if is != errCrash {
				panic(is)
			}
			err = errCrash
		}
	}()
	s, err := p.seed(p.id, p.f, plan, p.overwrites, true)
	if err != nil {
		return nil, err
	}
	trees := p.treesOf(p.id, plan, &s.seeds)
	planting, err := p.f.plant(ctx, plan, &s, trees, true)
	if err == nil {
		err = p.plantTrees(p.t.Context(), p.f, trees, &planting, &s, true)
	}
	if err == nil {
		err = p.carryOutPlanting(ctx, p.id, p.f, &planting, &s, true)
	}
	if err == nil {
		err = p.sow(p.id, p.f, s)
	}
	return planting.kept, err
}

func (p *planter) has(want map[string]string) {
	p.t.Helper()
	got := 0
	err := filepath.WalkDir(p.f.root.Name(), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below := strings.TrimPrefix(path, filepath.Join(p.f.root.Name(), "srv")+"/")
		content, err := os.ReadFile(path)
		if is, known := want[below]; !known || is != string(content) {
			p.t.Errorf("%s is %.40q, want %.40q (%t)", below, content, is, known)
		}
		got++
		return err
	})
	if err != nil || got != len(want) {
		p.t.Errorf("there are %d files, want %d: %v", got, len(want), err)
	}
}

// TestInterruptedTrees: wherever the planting of a tree ends before it is whole, by an error or with the agent, none of
// its files counts as edited inside later; and what was edited does.
func TestInterruptedTrees(t *testing.T) {
	first := map[string]string{"a": "a1", "b": "b1", "c/d": "d1", "e": "e1", "old": "old1", "same": "same"}
	second := map[string]string{"a": "a2", "b": "b2, longer", "c/d": "d2", "e": "e2", "new": "new2", "same": "same"}
	third := map[string]string{"a": "a3", "b": "b3", "c/d": "d2", "e": "e3", "same": "same", "z": "z3"}
	p := newPlanter(t)
	for _, crash := range []bool{false, true} {
		for _, then := range []map[string]string{third, second, first, nil} {
			for left, whole := 0, false; !whole && !t.Failed(); left++ {
				p.next()
				if left%2 == 0 { // else even the first one is interrupted
					if _, err := p.plant(t.Context(), first); err != nil {
						t.Fatal(err)
					}
					p.has(first)
				}
				for range 2 { // also twice
					_, err := p.plant(&breaks{t.Context(), left, crash}, second)
					whole = err == nil
				}
				kept, err := p.plant(t.Context(), then)
				if err != nil || len(kept) > 0 {
					t.Errorf("crash %t, after %d, then %v: it keeps %q, %v", crash, left, then, kept, err)
				}
				p.has(then)
			}
		}
	}
}

// TestWorkBesideAnInterruption: what was edited between an interruption and the next apply is kept.
func TestWorkBesideAnInterruption(t *testing.T) {
	p := newPlanter(t)
	files := map[string]string{"a": "a1", "b": "b1"}
	if _, err := p.plant(&breaks{t.Context(), 3, true}, files); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.rootfs(p.id), "srv/a"), []byte("ee"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := p.plant(t.Context(), map[string]string{"a": "a2", "b": "b2"})
	if err != nil || !slices.Equal(kept, []string{"/srv/a"}) {
		t.Errorf("it keeps %q, %v", kept, err)
	}
	p.has(map[string]string{"a": "ee", "b": "b2"})
}

// TestRoomForReplacing: a file that is replaced is there until the new one is whole, so both have to have room.
func TestRoomForReplacing(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := &elementFiles{root: root}
	const large = 1 << 20
	for _, name := range []string{"a", "b", "old"} {
		if err := root.WriteFile(name, make([]byte, large), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		remove, write []string
		need, count   int64
	}{
		{write: []string{"a", "b"}, need: large, count: 1},
		{write: []string{"new"}, need: large, count: 1},
		{write: []string{"a", "new"}, need: large, count: 1},
		{write: []string{"new", "a"}, need: 2 * large, count: 2},
		{remove: []string{"old"}, write: []string{"a", "b"}},
	} {
		is := &planted{at: "/", remove: c.remove, write: c.write, sizes: map[string]int64{"a": large, "b": large - 100, "new": large - 1}}
		gone, _, trees := (&planting{trees: []*planted{is}}).placings(f, 4096)
		need := needsOf(append(gone, trees...))[0]
		if need.bytes/4096*4096 != c.need || need.files != c.count {
			t.Errorf("%q and %q need %+v, want %d and %d", c.remove, c.write, need, c.need, c.count)
		}
	}
}
