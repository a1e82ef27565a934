package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/control"
)

// insideOf runs commands of an element here, with / being a directory.
func insideOf(t *testing.T, root string) func(control.Command, control.Stdio) (int, error) {
	return func(command control.Command, stdio control.Stdio) (int, error) {
		var words []string
		for i, word := range command.Args {
			if i > 0 && strings.HasPrefix(word, "/") {
				word = filepath.Join(root, word)
			}
			words = append(words, word)
		}
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.In, stdio.Out, stdio.Err
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), nil
		}
		return 0, err
	}
}

// tree are the files below a directory: their mode and content, or where they lead.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(dir, p)
		is := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			is += " " + string(data) + " " + info.ModTime().UTC().Format("15:04:05")
		} else if info.Mode()&fs.ModeSymlink != 0 {
			is, _ = os.Readlink(p)
		}
		all[below] = is
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCopy copies a tree into an element and back, under the names that are asked for.
func TestCopy(t *testing.T) {
	f := lab()
	root, here := t.TempDir(), t.TempDir()
	f.inside = insideOf(t, root)
	for _, dir := range []string{"site/sub/empty", "back"} {
		if err := os.MkdirAll(filepath.Join(here, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]fs.FileMode{"site/a": 0o644, "site/sub/run": 0o755, "site/sub/ro": 0o444} {
		if err := os.WriteFile(filepath.Join(here, name), []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../a", filepath.Join(here, "site/sub/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	ok := func(args ...string) {
		t.Helper()
		if r := runWith(t, f, "", append([]string{"cp"}, args...)...); r.code != ExitOK || r.out+r.err != "" {
			t.Fatalf("cp %q: %+v", args, r)
		}
	}
	same := func(a, b string) {
		t.Helper()
		is, want := tree(t, b), tree(t, a)
		if len(is) != len(want) {
			t.Errorf("%s has %v, want %v", b, is, want)
		}
		for name := range want {
			if is[name] != want[name] {
				t.Errorf("%s of %s is %q, want %q", name, b, is[name], want[name])
			}
		}
	}
	site := filepath.Join(here, "site")
	ok(site, "lab/r1:/srv") // a directory that is there
	same(site, filepath.Join(root, "srv/site"))
	ok(site, "lab/r1:/srv/other") // a name that is not
	same(site, filepath.Join(root, "srv/other"))
	ok(site+"/a", "lab/r1:/srv/site/a") // a file that is there
	ok("lab/r1:/srv/other", filepath.Join(here, "back"))
	same(site, filepath.Join(here, "back/other"))
	ok("lab/r1:/srv/other", filepath.Join(here, "back/new"))
	same(site, filepath.Join(here, "back/new"))
	ok("lab/r1:/srv/other/sub/ro", filepath.Join(here, "back/ro"))
	ok("lab/r1:/srv/other/sub/ro", filepath.Join(here, "back/ro")) // over itself
	if is := tree(t, filepath.Join(here, "back"))["ro"]; !strings.Contains(is, "content of site/sub/ro") {
		t.Errorf("a file came back as %q", is)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{site, here}, ExitUsage, "must be in an element"},
		{[]string{"lab/r1:/a", "lab/r2:/b"}, ExitUsage, "must be in an element"},
		{[]string{site, "lab/r1:srv"}, ExitUsage, "is no whole path"},
		{[]string{filepath.Join(here, "none"), "lab/r1:/srv"}, ExitNotFound, "none: no such file or directory"},
		{[]string{site, "lab/r1:/none/"}, ExitFailed, "lab/r1:/none/ is no directory"},
		{[]string{site, "lab/r1:/none/deeper"}, ExitFailed, "/none"},
		{[]string{"lab/r1:/none", here}, ExitFailed, "none: Cannot stat: No such file or directory"},
		{[]string{"lab/r1:/srv", filepath.Join(here, "no/where")}, ExitFailed, "no such file or directory"},
		{[]string{"/dev/null", "lab/r1:/srv"}, ExitFailed, "neither a file, a directory nor a link"},
	} {
		if r := runWith(t, f, "", append([]string{"cp"}, c.args...)...); r.code != c.code ||
			!strings.Contains(r.err, c.says) {
			t.Errorf("cp %q: got %+v, want %d, %q", c.args, r, c.code, c.says)
		}
	}
	huge := filepath.Join(here, "huge")
	file, err := os.Create(huge)
	if err == nil {
		err = errors.Join(file.Truncate(3<<30), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := runWith(t, f, "", "cp", huge, "lab/r1:/srv"); r.code != ExitFailed ||
		!strings.Contains(r.err, "it has 3GiB, and at most 1GiB are copied") {
		t.Errorf("got %+v", r)
	}
}

// TestCopyOutOfAHostileElement: whatever an element sends, nothing is written outside of the destination, and not more
// than is bounded.
func TestCopyOutOfAHostileElement(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		head tar.Header
		text string
	}
	reg := func(name, text string) entry {
		return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4755, Size: int64(len(text))}, text}
	}
	link := func(name, to string) entry {
		return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}, ""}
	}
	dir := entry{tar.Header{Typeflag: tar.TypeDir, Name: "x", Mode: 0o755}, ""}
	for what, c := range map[string]struct {
		entries []entry
		says    string
	}{
		"another name":      {[]entry{reg("y", "evil")}, `"y", which was not asked for`},
		"a name that is up": {[]entry{dir, reg("x/../../secret", "evil")}, "which was not asked for"},
		"a whole path":      {[]entry{reg(secret, "evil")}, "which was not asked for"},
		"a name like it":    {[]entry{reg("xy", "evil")}, "which was not asked for"},
		"through a link": {[]entry{dir, link("x/out", outside), reg("x/out/secret", "evil")},
			"x/out is a link"},
		"through a link to what is beside": {[]entry{dir, link("x/up", ".."), reg("x/up/mine", "evil")}, "x/up is a link"},
		"a directory through a link": {[]entry{dir, link("x/d", "../there"), {tar.Header{Typeflag: tar.TypeDir,
			Name: "x/d", Mode: 0o755}, ""}, reg("x/d/mine", "evil")}, "x/d"},
		"through a link of an earlier copy": {[]entry{{tar.Header{Typeflag: tar.TypeDir, Name: "x/earlier", Mode: 0o755}, ""},
			reg("x/earlier/mine", "evil")}, "x/earlier"},
		"over a link": {[]entry{dir, link("x/s", secret), reg("x/s", "evil")}, ""},
		"a link over": {[]entry{link("x", outside), dir, reg("x/secret", "evil")}, "x"},
		"a hard link": {[]entry{dir, {tar.Header{Typeflag: tar.TypeLink, Name: "x/h", Linkname: secret}, ""}},
			"neither a file"},
		"a device": {[]entry{{tar.Header{Typeflag: tar.TypeChar, Name: "x", Devmajor: 1, Devminor: 3}, ""}},
			"neither a file"},
		"a pipe":  {[]entry{{tar.Header{Typeflag: tar.TypeFifo, Name: "x"}, ""}}, "neither a file"},
		"nothing": {nil, "unexpected EOF"},
		"a bomb": {[]entry{dir, {tar.Header{Typeflag: tar.TypeReg, Name: "x/z", Size: 1 << 40}, ""}},
			"it has 1TiB, and at most 1GiB are copied"},
	} {
		into := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Join(into, "there"), 0o755),
			os.WriteFile(filepath.Join(into, "there", "mine"), []byte("mine"), 0o600),
			os.WriteFile(filepath.Join(into, "mine"), []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if what == "through a link of an earlier copy" {
			if err := errors.Join(os.Mkdir(filepath.Join(into, "x"), 0o755),
				os.Symlink("../there", filepath.Join(into, "x", "earlier"))); err != nil {
				t.Fatal(err)
			}
		}
		f := lab()
		f.inside = func(_ control.Command, stdio control.Stdio) (int, error) {
			out := tar.NewWriter(stdio.Out)
			for _, e := range c.entries {
				if out.WriteHeader(&e.head) == nil {
					io.WriteString(out, e.text) //nolint:errcheck // the reader may have had enough
				}
			}
			out.Flush() //nolint:errcheck // likewise
			if what != "a bomb" {
				out.Close() //nolint:errcheck // likewise
			}
			return 0, nil
		}
		r := runWith(t, f, "", "cp", "lab/r1:/x", into)
		if c.says == "" && r.code != ExitOK || c.says != "" && (r.code != ExitFailed || !strings.Contains(r.err, c.says)) {
			t.Errorf("%s: got %+v, want %q", what, r, c.says)
		}
		if data, err := os.ReadFile(secret); err != nil || string(data) != "untouched" {
			t.Fatalf("%s: what is outside is %q (%v)", what, data, err)
		}
		for _, name := range []string{"mine", "there/mine"} {
			if data, err := os.ReadFile(filepath.Join(into, name)); err != nil || string(data) != "mine" {
				t.Errorf("%s: %s, which is beside, is %q (%v)", what, name, data, err)
			}
		}
		if left, _ := os.ReadDir(outside); len(left) != 1 {
			t.Fatalf("%s: there are %v outside", what, left)
		}
		for name, is := range tree(t, into) {
			if strings.HasPrefix(is, "u") || strings.HasPrefix(is, "-rws") {
				t.Errorf("%s: %s is set-user-ID: %s", what, name, is)
			}
		}
	}
	var many bytes.Buffer
	out := tar.NewWriter(&many)
	for range 2 {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	out.Close() //nolint:errcheck // into memory
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := readTree(&many, root, "x", "y"); err != nil {
		t.Errorf("a file that comes twice: %v", err)
	}
}

// What the manager says when nothing can be run in the element is the reason, and not that its archive has no end.
func TestCopyOutOfWhatCannotBeAsked(t *testing.T) {
	f := lab()
	f.inside = func(control.Command, control.Stdio) (int, error) {
		return 0, errors.New("network lab is unknown to this store, and node n1 has 2 elements of it")
	}
	r := runWith(t, f, "", "cp", "lab/r1:/x", t.TempDir())
	if r.code != ExitFailed || !strings.Contains(r.err, "unknown to this store") || strings.Contains(r.err, "EOF") {
		t.Errorf("got %+v", r)
	}
}
