package image_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/polyplane/polyplane/image"
	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// unpacked opens, verifies and unpacks a file, and returns what is in the directory by then, a line a file.
func unpacked(t *testing.T, path string) (*image.Image, string, error) {
	t.Helper()
	img, err := image.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer img.Close()
	counts, err := img.Verify(t.Context())
	if err != nil {
		return img, "", err
	}
	around := t.TempDir()
	dir := filepath.Join(around, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = img.Unpack(t.Context(), &counts, root)
	if outside, _ := os.ReadDir(around); len(outside) != 1 {
		t.Errorf("there are %d files beside the directory", len(outside)-1)
	}
	return img, listing(t, dir), err
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%s %v", name, info.Mode())
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %.20s", content)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %s", target)
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func dirOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func zstdOf(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// TestSources: the same image is the same, whatever it comes in.
func TestSources(t *testing.T) {
	lower := Layer(t, File{Name: "./", Kind: tar.TypeDir, Mode: 0o755}, File{Name: "bin/", Kind: tar.TypeDir},
		File{Name: "bin/a", Content: "one"}, File{Name: "etc/gone", Content: "x"})
	upper := Layer(t, File{Name: "etc/.wh.gone"}, File{Name: "/bin/b", Kind: tar.TypeSymlink, Link: "a"})
	run := model.ImageRun{Entrypoint: []string{"/bin/a"}, Cmd: []string{"-x"}, Env: []string{"A=b"}}
	config := Config(t, run, lower, upper)
	oci := OCI(t, "lab/web:1", config, lower, upper)
	const want = "bin drwxr-xr-x\nbin/a -rwxr-xr-x one\nbin/b Lrwxrwxrwx -> a\netc drwxr-xr-x\n"
	stored := func() []byte {
		img, err := image.Open(Write(t, "i", Saved(t, "", config, Gzip(t, lower), upper)))
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		var b bytes.Buffer
		if err := img.Write(&b); err != nil {
			t.Fatal(err)
		}
		if int64(b.Len()) != img.StoredSize() {
			t.Errorf("it takes %d bytes, and is said to take %d", b.Len(), img.StoredSize())
		}
		return b.Bytes()
	}()
	index := OCI(t, "", config, zstdOf(t, lower), Gzip(t, upper))
	for name, path := range map[string]string{
		"docker save":            Write(t, "i", Saved(t, "lab/web:1", config, lower, upper)),
		"docker save by gzip":    Write(t, "i", Gzip(t, Saved(t, "lab/web:1", config, lower, upper))),
		"an archive":             Write(t, "i", Tar(t, oci)),
		"a layout":               dirOf(t, oci),
		"compressed layers":      Write(t, "i", Tar(t, index)),
		"the form that is kept":  Write(t, "i", stored),
		"all of it by zstandard": Write(t, "i", zstdOf(t, Tar(t, index))),
	} {
		t.Run(name, func(t *testing.T) {
			img, files, err := unpacked(t, path)
			if err != nil {
				t.Fatal(err)
			}
			if files != want {
				t.Errorf("unpacked:\n%s\nwanted:\n%s", files, want)
			}
			if img.ID != Sum(config) {
				t.Errorf("its ID is %s", img.ID)
			}
			if got := strings.Join(img.Config.Config.Command(), " "); got != "/bin/a -x" {
				t.Errorf("it runs %s", got)
			}
			if (name == "docker save" || name == "a layout") && strings.Join(img.Names, " ") != "lab/web:1" {
				t.Errorf("its names are %q", img.Names)
			}
		})
	}
}

// TestOldSavedLinks: older versions of docker save have links to layers that are there already.
func TestOldSavedLinks(t *testing.T) {
	layer := Layer(t, File{Name: "a", Content: "one"})
	config := Config(t, model.ImageRun{}, layer, layer)
	data := Layer(t, File{Name: "c.json", Content: string(config)}, File{Name: "x/layer.tar", Content: string(layer)},
		File{Name: "y/layer.tar", Kind: tar.TypeSymlink, Link: "../x/layer.tar"},
		File{Name: "manifest.json", Content: `[{"Config":"c.json","Layers":["x/layer.tar","y/layer.tar"]}]`})
	if _, files, err := unpacked(t, Write(t, "i", data)); err != nil || files != "a -rwxr-xr-x one\n" {
		t.Fatalf("%q %v", files, err)
	}
}

// TestLayers: what layers do to those below them.
func TestLayers(t *testing.T) {
	dir := func(name string) File { return File{Name: name, Kind: tar.TypeDir} }
	sym := func(name, to string) File { return File{Name: name, Kind: tar.TypeSymlink, Link: to} }
	for name, c := range map[string]struct {
		layers [][]File
		want   string
	}{
		"an opaque directory hides what is below it, not what comes with it, in whatever order": {[][]File{
			{dir("d"), {Name: "d/old", Content: "1"}}, {{Name: "d/new", Content: "2"}, {Name: "d/.wh..wh..opq"}}},
			"d drwxr-xr-x\nd/new -rwxr-xr-x 2\n"},
		"a file that is removed and made in one layer is there": {[][]File{
			{{Name: "f", Content: "1"}}, {{Name: "f", Content: "2"}, {Name: ".wh.f"}}}, "f -rwxr-xr-x 2\n"},
		"what is removed need not be there": {[][]File{{{Name: "f", Content: "1"}, {Name: "a/b/.wh.c"}}},
			"f -rwxr-xr-x 1\n"},
		"aufs's own names hide nothing": {[][]File{{{Name: ".wh..wh.plnk"}, {Name: ".wh..wh.aufs"}, {Name: ".wh.."}}}, ""},
		"a directory becomes a file": {[][]File{{dir("d"), {Name: "d/f", Content: "1"}}, {{Name: "d", Content: "2"}}},
			"d -rwxr-xr-x 2\n"},
		"a file becomes a directory": {[][]File{{{Name: "d", Content: "2"}}, {{Name: "d/f", Content: "1"}}},
			"d drwxr-xr-x\nd/f -rwxr-xr-x 1\n"},
		"a link on the way leads where it would inside": {[][]File{
			{dir("run"), sym("var/run", "/run")}, {{Name: "var/run/x", Content: "1"}}},
			"run drwxr-xr-x\nrun/x -rwxr-xr-x 1\nvar drwxr-xr-x\nvar/run Lrwxrwxrwx -> /run\n"},
		"a link is not written through": {[][]File{{{Name: "t", Content: "1"}, sym("f", "t")}, {{Name: "f", Content: "2"}}},
			"f -rwxr-xr-x 2\nt -rwxr-xr-x 1\n"},
		"modes and hard links": {[][]File{{{Name: "f", Content: "1", Mode: 0o6755}, {Name: "d", Kind: tar.TypeDir,
			Mode: 0o3777}, {Name: "g", Kind: tar.TypeLink, Link: "/f"}, {Name: "f2", Kind: tar.TypeLink, Link: "f2"}}},
			""},
		"devices and pipes are left out": {[][]File{{{Name: "null", Kind: tar.TypeChar}, {Name: "sda",
			Kind: tar.TypeBlock}, {Name: "p", Kind: tar.TypeFifo}, {Name: "f", Content: "1"}}}, "f -rwxr-xr-x 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, files := range c.layers {
				layers = append(layers, Layer(t, files...))
			}
			path := Write(t, "i", Saved(t, "", Config(t, model.ImageRun{}, layers...), layers...))
			_, files, err := unpacked(t, path)
			if name == "modes and hard links" { // whose link to itself leads to nothing
				if err == nil || !strings.Contains(err.Error(), "not there") {
					t.Errorf("a hard link to itself: %v", err)
				}
				c.want = "d dgtrwxrwxrwx\nf -rwxr-xr-x 1\ng -rwxr-xr-x 1\n"
			} else if err != nil {
				t.Fatal(err)
			}
			if files != c.want {
				t.Errorf("unpacked:\n%s\nwanted:\n%s", files, c.want)
			}
		})
	}
}

// hostile are layers that somebody made to do harm, and what is said of them; nothing where they do none.
func hostile() map[string]struct {
	files []File
	words string
} {
	sym := func(name, to string) File { return File{Name: name, Kind: tar.TypeSymlink, Link: to} }
	return map[string]struct {
		files []File
		words string
	}{
		"a path that leads out":        {[]File{{Name: "../out"}}, "leads out of the image"},
		"one in the middle":            {[]File{{Name: "a/../../out"}}, "leads out of the image"},
		"an absolute path":             {[]File{{Name: "/out"}}, ""},
		"a link out, and a file in it": {[]File{sym("l", "../../.."), {Name: "l/out"}}, ""},
		"an absolute link":             {[]File{sym("l", "/"), {Name: "l/out"}}, ""},
		"a link to a link":             {[]File{sym("a", ".."), sym("b", "a/.."), {Name: "b/out"}}, ""},
		"a link to proc":               {[]File{sym("l", "/proc/self/root/tmp"), {Name: "l/out"}}, ""},
		"links in a circle":            {[]File{sym("a", "b"), sym("b", "a"), {Name: "a/out"}}, "links"},
		"links that grow":              {[]File{sym("a", "a/a/a/a/a/a/a/a"), {Name: "a/out"}}, "links"},
		"a hard link out":              {[]File{{Name: "h", Kind: tar.TypeLink, Link: "../../etc/passwd"}}, "leads out"},
		"a hard link over a link out":  {[]File{sym("l", "/etc"), {Name: "h", Kind: tar.TypeLink, Link: "l/passwd"}}, "not there"},
		"a hard link to a directory":   {[]File{{Name: "d", Kind: tar.TypeDir}, {Name: "h", Kind: tar.TypeLink, Link: "d"}}, "directory"},
		"a whiteout out":               {[]File{{Name: "../.wh.root"}}, "leads out"},
		"a whiteout over a link out":   {[]File{sym("l", "/.."), {Name: "l/.wh.root"}}, ""},
		"a whiteout of the root":       {[]File{{Name: ".wh..wh..opq"}, {Name: ".wh.."}}, ""},
		"a set-user-ID file":           {[]File{{Name: "su", Mode: 0o4755, Content: "x"}}, ""},
		"a capability":                 {[]File{{Name: "c", Content: "x", PAX: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}}}, ""},
		"an overlay's attribute":       {[]File{{Name: "d", Kind: tar.TypeDir, PAX: map[string]string{"SCHILY.xattr.trusted.overlay.redirect": "/etc"}}}, ""},
		"an overlay's whiteout":        {[]File{{Name: "f", Content: "1"}, {Name: "f", Kind: tar.TypeChar}}, ""},
		"another network's user":       {[]File{{Name: "f", UID: 70000}}, "belongs to user 70000"},
		"a root that is a link":        {[]File{sym("./", "/etc")}, "root is no directory"},
		"a name that is too long":      {[]File{{Name: strings.Repeat("n", 300)}}, "no file can have"},
		"directories without end":      {[]File{{Name: strings.Repeat("d/", 500) + "f"}}, "deeper"},
	}
}

func TestHostile(t *testing.T) {
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			base := Layer(t, File{Name: "keep", Content: "k"})
			layer := Layer(t, c.files...)
			path := Write(t, "i", Saved(t, "", Config(t, model.ImageRun{}, base, layer), base, layer))
			_, files, err := unpacked(t, path)
			switch {
			case c.words == "" && err != nil:
				t.Fatal(err)
			case c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
				t.Fatalf("the error is %v, and should tell of %q", err, c.words)
			}
			for line := range strings.Lines(files) {
				if mode := strings.Fields(line)[1]; strings.ContainsAny(mode, "uDpS") {
					t.Errorf("there is %s", line)
				}
			}
			if name == "a whiteout of the root" && files != "" {
				t.Errorf("left: %s", files)
			}
			if c.words == "" && strings.Contains(name, " out") && !strings.Contains(files, "keep") {
				t.Errorf("what was there is gone: %s", files)
			}
		})
	}
	for _, at := range []string{"/out", "/tmp/out"} {
		if _, err := os.Lstat(at); err == nil {
			t.Errorf("%s was made", at)
		}
	}
}

// TestAttributes: no extended attribute of an image is set.
func TestAttributes(t *testing.T) {
	layer := Layer(t, hostile()["a capability"].files...)
	img, err := image.Open(Write(t, "i", Saved(t, "", Config(t, model.ImageRun{}, layer), layer)))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	counts, err := img.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := img.Unpack(t.Context(), &counts, root); err != nil {
		t.Fatal(err)
	}
	if attributes := attributesOf(t, filepath.Join(dir, "c")); attributes != "" {
		t.Errorf("it has %q", attributes)
	}
}

// TestRefused: what is no image, or not the one that it says.
func TestRefused(t *testing.T) {
	layer := Layer(t, File{Name: "f", Content: strings.Repeat("content ", 1000)})
	config := Config(t, model.ImageRun{}, layer)
	other := Layer(t, File{Name: "f", Content: "other"})
	replaced := func(of, by []byte) []byte {
		files := OCI(t, "", config, layer)
		files["blobs/sha256/"+Sum(of).Hex()] = by
		return Tar(t, files)
	}
	zeros := Layer(t, File{Name: "z", Content: string(make([]byte, 64<<20))})
	short := Gzip(t, layer)
	short = short[:len(short)/2]
	manyLayers := make([][]byte, image.MaxLayers+1)
	for i := range manyLayers {
		manyLayers[i] = layer
	}
	two := OCI(t, "one", config, layer)
	two["index.json"] = []byte(fmt.Sprintf(`{"manifests":[{"digest":"%s","annotations":{"org.opencontainers.image.ref.name":
		"one"}},{"digest":"%s"}]}`, Sum([]byte("1")), Sum([]byte("2"))))
	elsewhere := OCI(t, "", config, layer)
	elsewhere["index.json"] = []byte(fmt.Sprintf(`{"manifests":[{"digest":"%s","platform":{"os":"linux",
		"architecture":"s390x"}}]}`, Sum([]byte("1"))))
	circle := OCI(t, "", config, layer)
	circle["index.json"] = []byte(fmt.Sprintf(`{"manifests":[{"digest":"%s"}]}`, Sum([]byte(`{"manifests":[]}`))))
	circle["blobs/sha256/"+Sum([]byte(`{"manifests":[]}`)).Hex()] = []byte(`{"manifests":[]}`)
	bad := func(run model.ImageRun) []byte { return Saved(t, "", Config(t, run, layer), layer) }
	for name, c := range map[string]struct {
		data  []byte
		words string
	}{
		"nothing":                       {nil, "no image"},
		"text":                          {[]byte(strings.Repeat("hello ", 200)), "no tar"},
		"another tar":                   {Tar(t, map[string][]byte{"a": nil}), "no image"},
		"xz":                            {append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, layer...), "only gzip and zstd"},
		"gzip that is cut short":        {Gzip(t, Saved(t, "", config, layer))[:200], "cut short"},
		"a tar that is cut short":       {Saved(t, "", config, layer)[:2000], "cut short"},
		"a layer that is cut short":     {Saved(t, "", config, short), "cut short"},
		"another layer":                 {replaced(layer, other), "not what the image's configuration says"},
		"another configuration":         {replaced(config, Config(t, model.ImageRun{}, other)), "does not have the content"},
		"no layer":                      {Tar(t, map[string][]byte{"manifest.json": []byte(`[{"Config":"c","Layers":["l"]}]`), "c": config}), "no file"},
		"a layer too few":               {Saved(t, "", Config(t, model.ImageRun{}, layer, layer), layer), "names 2 layers, and it has 1"},
		"a digest that is a path":       {Tar(t, map[string][]byte{"index.json": []byte(`{"manifests":[{"digest":"sha256:../../etc/passwd"}]}`)}), "no SHA-256 digest"},
		"absurd numbers of layers":      {Saved(t, "", Config(t, model.ImageRun{}, manyLayers...), manyLayers...), "layers"},
		"two images":                    {Tar(t, two), "several images (one,"},
		"another machine's":             {Tar(t, elsewhere), "only for linux/s390x"},
		"an index of nothing":           {Tar(t, circle), "holds no image"},
		"an index without end":          {Tar(t, map[string][]byte{"index.json": bytes.Repeat([]byte("["), 2<<20)}), "at most"},
		"another system's":              {Saved(t, "", []byte(`{"os":"windows"}`)), "windows"},
		"a null in the command":         {bad(model.ImageRun{Cmd: []string{"a\x00b"}}), "null"},
		"a variable without a name":     {bad(model.ImageRun{Env: []string{"=b"}}), "no name"},
		"a relative directory":          {bad(model.ImageRun{WorkingDir: "../.."}), "not absolute"},
		"a command without end":         {bad(model.ImageRun{Cmd: []string{strings.Repeat("x", image.MaxRun)}}), "bytes"},
		"zeros, of which there are few": {Saved(t, "", Config(t, model.ImageRun{}, zeros), Gzip(t, zeros)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpacked(t, Write(t, "i", c.data))
			if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
				t.Fatalf("the error is %v, and should tell of %q", err, c.words)
			}
		})
	}
	if _, err := image.Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// zeroBomb is a layer's reader that says it has a file of this size, which is all zeros: a few kilobytes compressed.
func zeroBomb(t *testing.T, size int64) io.Reader {
	t.Helper()
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Name: "z", Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return io.MultiReader(&head, io.LimitReader(zeros{}, size))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestBombs: a layer that would unpack to more than an image can have is refused by what its files say, before they are
// read; and one that is more than it says by what is read.
func TestBombs(t *testing.T) {
	config := Config(t, model.ImageRun{}, []byte("never read to its end"))
	refused := func(words string, open func() io.Reader) {
		t.Helper()
		img, err := image.New(config, nil, []image.Layer{{Size: 1, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(open()), nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := img.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the error is %v, and should tell of %q", err, words)
		}
	}
	refused("larger than", func() io.Reader { return zeroBomb(t, image.MaxSize+1) })
	refused("more than 500000 files", func() io.Reader {
		r, w := io.Pipe()
		go func() {
			tw := tar.NewWriter(bufio.NewWriterSize(w, 1<<20))
			for i := 0; ; i++ {
				if tw.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeDir, Mode: 0o755}) != nil {
					return
				}
			}
		}()
		t.Cleanup(func() { r.Close() })
		return r
	})
}

// FuzzOpen: whatever somebody imports, it is refused in words, or unpacked below its directory.
func FuzzOpen(f *testing.F) {
	for _, c := range hostile() {
		layer := Layer(f, c.files...)
		f.Add(Saved(f, "a", Config(f, model.ImageRun{Cmd: []string{"x"}}, layer), layer))
		f.Add(Tar(f, OCI(f, "a", Config(f, model.ImageRun{}, layer), Gzip(f, layer))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, err := unpacked(t, Write(t, "i", data))
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}

// FuzzLayer: a layer of any content, whose digest is right, stays below its directory.
func FuzzLayer(f *testing.F) {
	for _, c := range hostile() {
		f.Add(Layer(f, c.files...), Layer(f, c.files...))
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		_, _, err := unpacked(t, Write(t, "i", Saved(t, "", Config(t, model.ImageRun{}, lower, upper), lower, upper)))
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
