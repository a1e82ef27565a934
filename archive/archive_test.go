package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

var made = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tree is one with these files.
func tree(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewTree(&b)
	for path, content := range files {
		err := w.Add(File{Path: path, Size: int64(len(content)), Mode: os.ModeSetuid | 0o755, UID: 300, GID: 301,
			Modified: made}, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// network is an archive with the files of one host.
func network(t testing.TB, document string, files []byte) []byte {
	t.Helper()
	contents := []Content{Document([]byte(document))}
	if files != nil {
		c, err := TreeOf("h1", bytes.NewReader(files), int64(len(files)))
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, c)
	}
	var b bytes.Buffer
	if err := Write(&b, Manifest{Network: "lab", Made: made, By: "1.2.3"}, contents); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(b []byte) (*Archive, error) { return Open(bytes.NewReader(b), int64(len(b))) }

func TestArchiveComesBack(t *testing.T) {
	long := "root/" + strings.Repeat("x/", 100) + "ü"
	b := network(t, "network: lab\n", tree(t, map[string]string{"root/work": "done\n", long: "", "etc/x": strings.Repeat("y", 5000)}))
	a, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	if string(a.Document) != "network: lab\n" || a.Manifest.Network != "lab" || a.Manifest.By != "1.2.3" ||
		strings.Join(a.Elements(), " ") != "h1" {
		t.Errorf("read back are %+v, %q, %v", a.Manifest, a.Document, a.Elements())
	}
	r, size := a.Tree("h1")
	got := map[string]string{}
	err = ReadTree(io.LimitReader(r, size), func(f File, content io.Reader) error {
		text, err := io.ReadAll(content)
		got[f.Path] = string(text)
		if f.Mode != 0o755 || f.UID != 300 || f.GID != 301 || !f.Modified.Equal(made) {
			t.Errorf("read back is %+v", f)
		}
		return err
	})
	if err != nil || len(got) != 3 || got["root/work"] != "done\n" || len(got["etc/x"]) != 5000 {
		t.Errorf("the files are %v, %v", got, err)
	}
	if _, err := tar.NewReader(bytes.NewReader(b)).Next(); err != nil {
		t.Errorf("tar cannot read it: %v", err)
	}
}

// TestCutArchivesAreRefused cuts an archive everywhere and turns each of its bits' bytes over: none of that is taken for
// an archive.
func TestCutArchivesAreRefused(t *testing.T) {
	b := network(t, "network: lab\n", tree(t, map[string]string{"root/work": "done\n"}))
	for n := range len(b) {
		if _, err := open(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for the whole", n, len(b))
		}
	}
	if _, err := open(append(bytes.Clone(b), 0)); err == nil {
		t.Error("a byte more is taken for the whole")
	}
	a, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		changed := bytes.Clone(b)
		changed[i] ^= 0x20
		got, err := open(changed)
		if err == nil && (!bytes.Equal(got.Document, a.Document) || len(got.trees) != 1) {
			t.Fatalf("with byte %d changed, it is taken, and has %q", i, got.Document)
		}
	}
}

// TestHostileTrees has trees that no element ever had.
func TestHostileTrees(t *testing.T) {
	header := func(edit func(*tar.Header)) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "root/x", Mode: 0o644}
		edit(h)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Close() //nolint:errcheck // some promise more than they have
		return append(b.Bytes(), make([]byte, 1024)...)
	}
	for name, c := range map[string]struct {
		edit  func(*tar.Header)
		words string
	}{
		"up":         {func(h *tar.Header) { h.Name = "root/../../etc/shadow" }, "no path below"},
		"absolute":   {func(h *tar.Header) { h.Name = "/etc/shadow" }, "no path below"},
		"itself":     {func(h *tar.Header) { h.Name = "." }, "no path below"},
		"no text":    {func(h *tar.Header) { h.Name = "root/\xff" }, "no path below"},
		"link":       {func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc" }, "no regular file"},
		"hard link":  {func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeLink, "root/y" }, "no regular file"},
		"device":     {func(h *tar.Header) { h.Typeflag, h.Devmajor = tar.TypeBlock, 8 }, "no regular file"},
		"pipe":       {func(h *tar.Header) { h.Typeflag = tar.TypeFifo }, "no regular file"},
		"directory":  {func(h *tar.Header) { h.Typeflag, h.Name = tar.TypeDir, "root/d/" }, "no regular file"},
		"too large":  {func(h *tar.Header) { h.Size = MaxTree + 1 }, "are allowed"},
		"bomb":       {func(h *tar.Header) { h.Size, h.Format = 1<<40, tar.FormatGNU }, "are allowed"},
		"the host's": {func(h *tar.Header) { h.Uid = 1 << 20 }, "no element has"},
		"cut":        {func(h *tar.Header) { h.Size = 100000 }, "cut off"},
	} {
		err := ReadTree(bytes.NewReader(header(c.edit)), func(_ File, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.words) && !strings.Contains(err.Error(), "unexpected EOF") {
			t.Errorf("%s: %v: want an error with %q", name, err, c.words)
		}
	}
	twice := tree(t, map[string]string{"root/x": "1"})
	twice = append(bytes.TrimRight(twice, "\x00"), make([]byte, 511)...) // up to the end of its block
	twice = append(twice[:len(twice)-len(twice)%512], tree(t, map[string]string{"root/x": "2"})...)
	if err := ReadTree(bytes.NewReader(twice), func(File, io.Reader) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "there twice") {
		t.Errorf("a file that is there twice: %v", err)
	}
	w := NewTree(io.Discard)
	for i := range 3 {
		err := w.Add(File{Path: "root/" + strings.Repeat("x", i+1), Size: MaxTree / 2}, zeros{})
		if (err != nil) != (i > 0) {
			t.Errorf("file %d of half the size that is allowed: %v", i, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestHostileArchives has manifests that lie.
func TestHostileArchives(t *testing.T) {
	files := tree(t, map[string]string{"root/work": "done\n"})
	b := network(t, "network: lab\n", files)
	for name, c := range map[string]struct{ old, new, words string }{
		"no manifest":       {"manifest.json", "manifest.jsno", "no archive"},
		"another format":    {`"format": 1`, `"format": 2`, "format 2"},
		"an unknown field":  {`"network": "lab"`, `"netwrok": "lab"`, "netwrok"},
		"an odd part":       {`elements/h1.tar"`, `elements/../tar"`, "which no network has"},
		"another digest":    {`"sha256": "`, `"sha256":" `, "digest"},
		"a part of nothing": {`"network.yaml"`, `"network.yeml"`, "does not begin"},
	} {
		changed := bytes.Replace(b, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(changed, b) {
			t.Fatal(name)
		}
		// the header's sum is right again
		if c.old == "manifest.json" {
			changed = bytes.Clone(b)
			changed[9], changed[10] = changed[10], changed[9]
		}
		if _, err := open(changed); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v: want an error with %q", name, err, c.words)
		}
	}
	if _, err := Open(bytes.NewReader(b), MaxSize+1); err == nil || !strings.Contains(err.Error(), "are allowed") {
		t.Errorf("an archive that is too large: %v", err)
	}
	if _, err := TreeOf("h1", bytes.NewReader(files[:len(files)-1]), int64(len(files)-1)); err == nil {
		t.Error("a tree that is cut off becomes part of an archive")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(network(f, "network: lab\n", tree(f, map[string]string{"root/work": "done\n"})))
	f.Add(network(f, "", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := open(b)
		if err != nil {
			return
		}
		for _, name := range a.Elements() {
			r, _ := a.Tree(name)
			if err := ReadTree(r, func(f File, _ io.Reader) error { return f.check() }); err != nil {
				t.Errorf("a tree of an archive that was verified: %v", err)
			}
		}
	})
}
