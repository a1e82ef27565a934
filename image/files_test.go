package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/image"
	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

func given(path, content string) image.Given {
	return image.Given{Path: path, Size: int64(len(content)), Perm: 0o640,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

// TestGivenFiles: files that are put into elements have the same ID whenever they are read, come out as they were, and
// are refused where they change while they are sent.
func TestGivenFiles(t *testing.T) {
	long := strings.Repeat("directory/", 30) + "ä"
	files := []image.Given{given("a", "one"), given("b/"+long, "two"), given("c", "")}
	first, err := image.NewFiles(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := image.NewFiles(t.Context(), files)
	if err != nil || again.ID != first.ID || !first.IsFiles() {
		t.Errorf("read again they are %s, not %s: %v", again.ID, first.ID, err)
	}
	other, err := image.NewFiles(t.Context(), []image.Given{given("a", "onE"), files[1], files[2]})
	if err != nil || other.ID == first.ID {
		t.Errorf("with another byte they are the same: %v", err)
	}
	var b bytes.Buffer
	if err := first.Write(&b); err != nil || int64(b.Len()) != first.StoredSize() {
		t.Fatalf("they are %d bytes, and said to be %d: %v", b.Len(), first.StoredSize(), err)
	}
	img, out, err := unpacked(t, Write(t, "i", b.Bytes()))
	if err != nil || img.ID != first.ID || !img.IsFiles() {
		t.Fatalf("%v %v", img, err)
	}
	for _, want := range []string{"files/a -rw-r----- one\n", "files/c -rw-r----- \n", "files/b/" + long + " -rw-r----- two\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("unpacked:\n%s\nwanted: %s", out, want)
		}
	}
	content := "content"
	changing := given("a", content)
	changing.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
	img, err = image.NewFiles(t.Context(), []image.Given{changing})
	if err != nil {
		t.Fatal(err)
	}
	for _, content = range []string{"longer than it was", "short"} {
		if err := img.Write(io.Discard); err == nil || !strings.Contains(err.Error(), "a has changed while it was read") {
			t.Errorf("with the content %q: %v", content, err)
		}
	}
	for _, path := range []string{"x/.wh.y", "x/y.polyplane-new"} {
		if _, err := image.NewFiles(t.Context(), []image.Given{given(path, "")}); err == nil ||
			!strings.Contains(err.Error(), "call it otherwise") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestHostileGivenFiles: what nobody packs is refused before any of it is unpacked.
func TestHostileGivenFiles(t *testing.T) {
	file := File{Name: "files/a", Content: "x", Mode: 0o644}
	many := make([]File, model.MaxTreeFiles+1)
	for i := range many {
		many[i] = File{Name: "files", Mode: 0o644}
	}
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"a link":             {[]File{{Name: "files/l", Kind: tar.TypeSymlink, Link: "/etc/passwd"}}, "is no regular file"},
		"a hard link":        {[]File{file, {Name: "files/l", Kind: tar.TypeLink, Link: "files/a"}}, "is no regular file"},
		"a directory":        {[]File{{Name: "files", Kind: tar.TypeDir}}, "is no regular file"},
		"a device":           {[]File{{Name: "files/null", Kind: tar.TypeChar}}, "remove none"},
		"a removal":          {[]File{file, {Name: "files/.wh.a", Mode: 0o644}}, "remove none"},
		"a file elsewhere":   {[]File{{Name: "etc/passwd", Mode: 0o644}}, "is not below files"},
		"a path that leaves": {[]File{{Name: "files/../../x", Mode: 0o644}}, "leads out"},
		"many files":         {many, "more than 20000 files"},
		"no file":            {nil, "there is none of the files"},
		"a name of ours":     {[]File{{Name: "files/a.polyplane-new", Mode: 0o644}}, "or end with .polyplane-new mean"},
		"a directory's":      {[]File{{Name: "files/a.polyplane-new/b", Mode: 0o644}}, "or end with .polyplane-new mean"},
		"a long name":        {[]File{{Name: "files/" + strings.Repeat("a", 224), Mode: 0o644}}, "at most 223 bytes"},
		"a long path":        {[]File{{Name: "files" + strings.Repeat("/aaaaaaaaa", 103), Mode: 0o644}}, "at most 1024 bytes"},
		"a control":          {[]File{{Name: "files/a\x1b[2J", Mode: 0o644}}, "without control characters"},
		"no text":            {[]File{{Name: "files/\xff", Mode: 0o644}}, "of text"},
	} {
		layer := Layer(t, c.files...)
		var config map[string]any
		if err := json.Unmarshal(Config(t, model.ImageRun{}, layer), &config); err != nil {
			t.Fatal(err)
		}
		config["polyplane"] = "files"
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := unpacked(t, Write(t, "i", Saved(t, "", raw, layer))); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	layer := Layer(t, file)
	raw := bytes.Replace(Config(t, model.ImageRun{}, layer), []byte("{"), []byte(`{"polyplane":"else",`), 1)
	if _, _, err := unpacked(t, Write(t, "i", Saved(t, "", raw, layer))); err == nil ||
		!strings.Contains(err.Error(), "not known here") {
		t.Errorf("another kind: %v", err)
	}
}
