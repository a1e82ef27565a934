package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/images"
)

// imageOf is an image as it is sent, and its ID.
func imageOf(t testing.TB, content string) (string, []byte) {
	t.Helper()
	layer := imagetest.Layer(t, imagetest.File{Name: "f", Content: content})
	img, err := image.Open(imagetest.Write(t, "i", imagetest.Saved(t, "", imagetest.Config(t, model.ImageRun{Cmd: []string{"/f"}}, layer), layer)))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	return string(img.ID), b.Bytes()
}

// TestImagesOfNetworks follows images from their import to their end: networks are pinned to them by their IDs, what is
// used stays, and what nobody uses or names goes.
func TestImagesOfNetworks(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(1))
	ann, bob := api.AsOwner(t.Context(), "ann"), api.AsOwner(t.Context(), "bob")
	one, first := imageOf(t, "one")
	two, second := imageOf(t, "two")
	hers, third := imageOf(t, "ann's own")
	add := func(ctx context.Context, id, name string, data []byte) {
		t.Helper()
		var content io.Reader
		if data != nil {
			content = bytes.NewReader(data)
		}
		if is, err := f.images.AddImage(ctx, id, name, content); err != nil || is.ID != id {
			t.Fatalf("%s: %+v, %v", name, is, err)
		}
	}
	lab := func(name, of string) model.Network {
		return model.Network{Name: name, Elements: []model.Element{
			{Name: "h1", Kind: model.Host, Service: model.Service{Image: of}}, {Name: "h2", Kind: model.Host}}}
	}
	has := func(name string) string {
		t.Helper()
		record, err := f.Network(name)
		if err != nil {
			t.Fatal(err)
		}
		return record.Network.Elements[0].Image
	}
	add(t.Context(), one, "web:1", first)
	add(ann, hers, "own", third)

	// A network has the image that its name was at the time of its apply, also after a restart, and a node is told it.
	f.apply(t, lab("lab", "web:1"), model.ApplyOptions{})
	if _, err := f.Apply(ann, lab("anns", "web:1"), model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	if has("lab") != "web:1@"+one {
		t.Errorf("it has %s", has("lab"))
	}
	if state := f.desired(t, "n1"); len(state.Networks) != 2 || state.Networks[1].Elements[0].Image != "web:1@"+one {
		t.Errorf("the node is told %+v", state.Networks)
	}
	add(t.Context(), two, "web:1", second)
	if has("lab") != "web:1@"+one {
		t.Errorf("another image of this name has changed it: %s", has("lab"))
	}
	if planned, err := f.Apply(t.Context(), lab("lab", "web:1"), model.ApplyOptions{DryRun: true}); err != nil ||
		planned.Record.Network.Elements[0].Image != "web:1@"+two {
		t.Errorf("planned is %+v (%v)", planned.Record.Network, err)
	}
	f.stop()
	f = start(t, dir, substrateOf(1))
	f.images.collect(t.Context())
	if kept, err := f.images.ReadImage("n1", one); err != nil {
		t.Errorf("an image without a name that networks use is gone: %v", err)
	} else if data, err := io.ReadAll(kept); !bytes.Equal(data, first) || errors.Join(err, kept.Close()) != nil {
		t.Errorf("it is read as %d bytes (%v)", len(data), err)
	}

	// What an owner may not see cannot be used, whether by its name or by its ID; nobody's is everybody's.
	for _, of := range []string{"own", "own@" + hers, hers, hers[7:30], "none"} {
		_, err := f.Apply(bob, lab("bobs", of), model.ApplyOptions{Owner: "bob"})
		if problem := (*api.Problem)(nil); !errors.As(err, &problem) || !strings.Contains(err.Error(), "images are not here") {
			t.Errorf("bob's network of %s: %v", of, err)
		}
		if _, err := f.images.AddImage(bob, hers, "mine", nil); err == nil {
			t.Error("bob names ann's image without having it")
		}
	}
	if list := f.images.Images(bob).Images; len(list) != 2 || list[0].UsedBy != nil || list[1].UsedBy != nil {
		t.Errorf("bob sees %+v", list)
	}
	if _, err := f.images.RemoveImage(bob, "web:1"); err == nil || !strings.Contains(err.Error(), "not user bob's") {
		t.Errorf("bob removes what is nobody's: %v", err)
	}
	if _, err := f.images.RemoveImage(bob, "own"); err == nil || !strings.Contains(err.Error(), "there is no image") {
		t.Errorf("bob removes what is ann's: %v", err)
	}

	// What is used is not removed, unless the network has it from somebody else as well.
	if _, err := f.Apply(ann, lab("anns", "own"), model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.images.RemoveImage(ann, "own"); err == nil || !strings.Contains(err.Error(), "is used by anns") {
		t.Errorf("what is used is removed: %v", err)
	}
	add(t.Context(), hers, "theirs", third)
	if _, err := f.images.RemoveImage(ann, "own"); err != nil {
		t.Errorf("what everybody has is not removed: %v", err)
	}
	if _, err := f.images.RemoveImage(t.Context(), "theirs"); err == nil || !strings.Contains(err.Error(), "is used by anns") {
		t.Errorf("what is used is removed: %v", err)
	}
	// A network that is gone uses nothing, and what has no name then goes by itself.
	for _, name := range []string{"lab", f.keyOf(t, "ann", "anns")} {
		if err := f.Delete(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
	}
	f.obey(t, "n1", nil)
	for len(f.images.used()) > 0 {
		time.Sleep(10 * time.Millisecond) // the loop lets go of them
	}
	f.images.collect(t.Context())
	if _, err := f.images.ReadImage("n1", one); err == nil {
		t.Error("what nobody uses or names is there")
	}
	if _, err := f.images.RemoveImage(t.Context(), "theirs"); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(f.dirs.Images()); err != nil || len(entries) != 2 {
		t.Errorf("left are %v (%v)", entries, err)
	}
}

// TestTreesOfNetworks: files that are too large for a network's document are used by its owner alone, are sent to the
// nodes that have such elements, and stay as long as the network.
func TestTreesOfNetworks(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(2))
	ann, bob := api.AsOwner(t.Context(), "ann"), api.AsOwner(t.Context(), "bob")
	img, err := image.NewFiles(t.Context(), []image.Given{{Path: "a", Size: 1, Perm: 0o644,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	id, data := string(img.ID), b.Bytes()
	lab := model.Network{Name: "lab", Elements: []model.Element{{Name: "h1", Kind: model.Host, Node: "n1",
		Service: model.Service{Contents: map[string]model.File{"/srv/www": {Tree: id, Size: 1}}}}}}
	if _, err := f.Apply(ann, lab, model.ApplyOptions{Owner: "ann"}); err == nil ||
		!strings.Contains(err.Error(), "some images or files are not here") || !strings.Contains(err.Error(), "/srv/www") {
		t.Errorf("files that are not here: %v", err)
	}
	if _, err := f.Apply(ann, lab, model.ApplyOptions{DryRun: true}); err != nil {
		t.Errorf("a plan: %v", err)
	}
	if _, err := f.images.AddImage(ann, id, "", nil); err == nil {
		t.Error("what is not here is named")
	}
	if _, err := f.images.AddImage(ann, id, "", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Apply(bob, lab, model.ApplyOptions{Owner: "bob"}); err == nil {
		t.Error("bob uses ann's files")
	}
	if _, err := f.images.ReadTree(bob, id); err == nil {
		t.Error("bob reads ann's files")
	}
	if _, err := f.Apply(ann, lab, model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = start(t, dir, substrateOf(2))
	f.images.collect(t.Context())
	for what, read := range map[string]func() (*os.File, error){
		"a node": func() (*os.File, error) { return f.images.ReadImage("n1", id) },
		"ann":    func() (*os.File, error) { return f.images.ReadTree(ann, id) }} {
		kept, err := read()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, err := io.ReadAll(kept); !bytes.Equal(got, data) || errors.Join(err, kept.Close()) != nil {
			t.Errorf("%s reads %d bytes: %v", what, len(got), err)
		}
	}
	// An administrator's are not everybody's, and part of the networks that use them.
	if is, err := f.images.AddImage(t.Context(), id, "", nil); err != nil || is.Owner != "" {
		t.Fatal(is, err)
	}
	if _, err := f.images.ReadTree(bob, id); err == nil || len(f.images.Images(bob).Images) != 0 {
		t.Errorf("bob reads an administrator's files: %v", err)
	}
	if err := f.images.kept.Remove("ann", id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Apply(ann, lab, model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Errorf("ann's own network: %v", err)
	}
	if _, err := f.images.AddImage(ann, id, "", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.images.RemoveImage(t.Context(), id); err != nil {
		t.Error(err)
	}
	if list := f.images.Images(ann).Images; len(list) != 1 || !list[0].Tree || len(list[0].UsedBy) != 1 {
		t.Errorf("listed are %+v", list)
	}
	if _, err := f.images.RemoveImage(ann, id); err == nil || !strings.Contains(err.Error(), "is used by") {
		t.Errorf("what is used is removed: %v", err)
	}
	if err := f.Delete(t.Context(), f.keyOf(t, "ann", "lab"), true); err != nil {
		t.Fatal(err)
	}
	f.obey(t, "n1", nil)
	for len(f.images.used()) > 0 {
		time.Sleep(10 * time.Millisecond) // the loop lets go of them
	}
	if _, err := f.images.RemoveImage(ann, id); err != nil {
		t.Error(err)
	}
}

// TestImagesAreNoTrees: an image that elements are made from may have links that lead anywhere. Named as files, it is
// nobody's, whoever's network uses it; and the first few of many that are missing are told.
func TestImagesAreNoTrees(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	ann := api.AsOwner(t.Context(), "ann")
	id, data := imageOf(t, "web")
	if _, err := f.images.AddImage(ann, id, "web", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	lab := model.Network{Name: "lab", Elements: []model.Element{{Name: "h1", Kind: model.Host,
		Service: model.Service{Image: "web"}}}}
	if _, err := f.Apply(ann, lab, model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	lab.Elements[0].Contents = map[string]model.File{}
	for i := range 2 * model.MostNamed {
		lab.Elements[0].Contents[fmt.Sprintf("/srv/%d", i)] = model.File{Tree: id, Size: 5 << 20}
	}
	for who, ctx := range map[string]context.Context{"its owner": ann, "an administrator": t.Context()} {
		_, err := f.Apply(ctx, lab, model.ApplyOptions{Owner: "ann"})
		problem := (*api.Problem)(nil)
		if !errors.As(err, &problem) || strings.Count(err.Error(), "there is no tree") != model.MostNamed {
			t.Errorf("%s has it put into an element: %v", who, err)
		}
		if _, err := f.images.ReadTree(ctx, id); err == nil {
			t.Errorf("%s reads it as a tree", who)
		}
	}
}

// TestQuotaOfImages: an owner's images are bounded all together, and those of administrators are not.
func TestQuotaOfImages(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	ann := api.AsOwner(t.Context(), "ann")
	one, first := imageOf(t, "one")
	two, second := imageOf(t, "two")
	if _, err := f.SetQuota(t.Context(), model.QuotaOfOwner, "ann", model.QuotaRequest{
		Values: []model.Assignment{{Key: "images", Value: "12MiB"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.images.AddImage(ann, one, "one", bytes.NewReader(first)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.images.AddImage(ann, two, "two", bytes.NewReader(second)); err == nil ||
		!strings.Contains(err.Error(), "user ann's quota of images is 12MiB: with this image of") {
		t.Errorf("beyond the quota: %v", err)
	}
	if _, err := f.images.ReadImage("n1", two); err == nil {
		t.Error("what was refused is kept")
	}
	// Another name for what is there takes nothing, and administrators have no bound.
	if _, err := f.images.AddImage(ann, one, "uno", nil); err != nil {
		t.Error(err)
	}
	if _, err := f.images.AddImage(t.Context(), two, "two", bytes.NewReader(second)); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	var used model.Bytes
	for _, q := range f.Quotas() {
		if q.Kind == model.QuotaOfOwner && q.Name == "ann" {
			used = q.Used.Images
		}
	}
	if used < 8<<20 || used > 12<<20 {
		t.Errorf("ann's images are told to take %s", used)
	}
	for _, name := range []string{"one", "uno"} {
		if _, err := f.images.RemoveImage(ann, name); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.images.AddImage(ann, two, "two", nil); err != nil {
		t.Errorf("with room for it: %v", err)
	}
	if _, err := f.SetQuota(t.Context(), model.QuotaOfNetwork, "lab", model.QuotaRequest{
		Values: []model.Assignment{{Key: "images", Value: "1MiB"}}}); err == nil {
		t.Error("a network has a quota of images")
	}
}

// TestRefusalsOfImages: what the manager's disk has no room for, and too many uploads, are no failures of the manager's.
func TestRefusalsOfImages(t *testing.T) {
	for err, want := range map[error]api.Kind{images.ErrNone: api.KindNotFound, images.ErrQuota: api.KindInvalid,
		images.ErrBusy: api.KindTooMany, linux.ErrNoRoom: api.KindFull} {
		if p := problem(t, imageProblem(fmt.Errorf("send it: %w", err))); p.Kind != want {
			t.Errorf("%v is told as %v, want %v", err, p.Kind, want)
		}
	}
}
