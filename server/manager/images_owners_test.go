package manager

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// treeOf are files that are put into elements, as they are sent.
func treeOf(t *testing.T, content string) (id string, data []byte) {
	t.Helper()
	img, err := image.NewFiles(t.Context(), []image.Given{{Path: "a", Size: int64(len(content)), Perm: 0o644,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	return string(img.ID), b.Bytes()
}

func withTree(name, id string, size model.Bytes) model.Network {
	return model.Network{Name: name, Elements: []model.Element{{Name: "h1", Kind: model.Host,
		Service: model.Service{Contents: map[string]model.File{"/srv/www": {Tree: id, Size: size}}}}}}
}

// TestTreesByOwner: who uses a tree is told by owner; what an owner's network uses no longer counts for the owner, though
// others use the same; and a network's new owner has what it uses.
func TestTreesByOwner(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	ann, bob := api.AsOwner(t.Context(), "ann"), api.AsOwner(t.Context(), "bob")
	id, data := treeOf(t, "x")
	for _, ctx := range []context.Context{ann, bob} {
		if _, err := f.images.AddImage(ctx, id, "", bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(ctx context.Context, owner string, n model.Network) model.Record {
		t.Helper()
		r, err := f.Apply(ctx, n, model.ApplyOptions{Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		return r.Record
	}
	lab := apply(ann, "ann", withTree("lab", id, 1))
	used := func() map[string]int {
		n := map[string]int{}
		for _, i := range f.images.Images(t.Context()).Images {
			n[i.Owner] += len(i.UsedBy)
		}
		return n
	}
	if got := used(); got["ann"] != 1 || got["bob"] != 0 {
		t.Errorf("used are %v", got)
	}
	if unused := f.images.unusedTrees("bob"); unused < 8<<20 || f.images.unusedTrees("ann") != 0 {
		t.Errorf("of bob's %s are unused, of ann's %s", unused, f.images.unusedTrees("ann"))
	}
	carl := api.AsOwner(t.Context(), "carl")
	if _, err := f.images.ReadTree(carl, id); err == nil {
		t.Error("carl reads it")
	}
	// Beyond the new owner's quota it is refused, and nothing is changed.
	toCarl := model.SetRequest{Values: []model.Assignment{{Key: "owner", Value: "carl"}}}
	quota := func(value string) {
		t.Helper()
		if _, err := f.SetQuota(t.Context(), model.QuotaOfOwner, "carl", model.QuotaRequest{
			Values: []model.Assignment{{Key: "images", Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
	quota("1MiB")
	if _, err := f.Set(t.Context(), lab.Network.Name, toCarl); err == nil || !strings.Contains(err.Error(), "quota of images is 1MiB") {
		t.Errorf("beyond the quota: %v", err)
	}
	quota("20MiB")
	if _, err := f.Set(t.Context(), lab.Network.Name, toCarl); err != nil {
		t.Fatal(err)
	}
	if got := used(); got["carl"] != 1 || got["ann"] != 0 {
		t.Errorf("with another owner, used are %v", got)
	}
	if list := f.images.Images(carl).Images; len(list) != 1 || !list[0].Tree || list[0].Owner != "carl" {
		t.Errorf("carl has %+v", list)
	}
}

// TestSizesOfTrees: what a document says of a tree's size is not believed: its element's disk must have room for it.
func TestSizesOfTrees(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	id, data := treeOf(t, strings.Repeat("x", 20<<20))
	if _, err := f.images.AddImage(t.Context(), id, "", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	lab := withTree("lab", id, 1)
	lab.Elements[0].Disk = 16 << 20
	for _, dry := range []bool{true, false} {
		if _, err := f.Apply(t.Context(), lab, model.ApplyOptions{Owner: "ann", DryRun: dry}); err == nil ||
			!strings.Contains(err.Error(), "its files have 20MiB, and its disk of 16MiB has no room for them") {
			t.Errorf("too small a disk: %v", err)
		}
	}
	lab.Elements[0].Disk = 64 << 20
	r, err := f.Apply(t.Context(), lab, model.ApplyOptions{Owner: "ann"})
	if err != nil || r.Record.Network.Elements[0].Contents["/srv/www"].Size != 20<<20 {
		t.Errorf("%+v %v", r.Record.Network.Elements, err)
	}
	if lab.Elements[0].Contents["/srv/www"].Size != 1 {
		t.Error("what was given is changed")
	}
}

// TestLostImages: a file that is gone from the store is noticed when it is asked for or sent again, is told of, and can be
// brought again.
func TestLostImages(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	ann := api.AsOwner(t.Context(), "ann")
	tree, data := treeOf(t, "x")
	img, imageData := imageOf(t, "web")
	bring := func() {
		t.Helper()
		if _, err := f.images.AddImage(ann, tree, "", bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.images.AddImage(ann, img, "web", bytes.NewReader(imageData)); err != nil {
			t.Fatal(err)
		}
	}
	lose := func() {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(f.dirs.Images(), "*.image"))
		if err != nil || len(files) != 2 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	bring()
	lose()
	bring() // before anybody has noticed
	for what, read := range map[string]func() (*os.File, error){
		"a node": func() (*os.File, error) { return f.images.ReadImage("n1", img) },
		"ann":    func() (*os.File, error) { return f.images.ReadTree(ann, tree) }} {
		r, err := read()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		r.Close()
	}
	lose()
	for _, id := range []string{tree, img} {
		if _, err := f.images.AddImage(ann, id, map[string]string{img: "web"}[id], nil); err == nil {
			t.Error("what is lost is said to be there")
		}
	}
	if _, err := f.Apply(ann, withTree("lab", tree, 1), model.ApplyOptions{Owner: "ann"}); err == nil ||
		!strings.Contains(err.Error(), "`polyplane apply -f` brings it") {
		t.Errorf("an apply: %v", err)
	}
	events, _ := f.Events(0)
	told := slices.DeleteFunc(events, func(e model.Event) bool { return e.Reason != "ImageLost" })
	if len(told) != 4 {
		t.Errorf("told is %+v", told)
	}
	bring()
	if _, err := f.Apply(ann, withTree("lab", tree, 1), model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Error(err)
	}
}
