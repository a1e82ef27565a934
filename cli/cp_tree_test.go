package cli

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever owns a directory that somebody else copies into an element may change it meanwhile. What comes in the place
// of a file that was looked at is not read: a link out of the directory, another file, a pipe, also by way of a
// directory that has become a link. Before, the machine's root copied what only root reads.
func TestCopyReadsWhatItLookedAt(t *testing.T) {
	elsewhere := t.TempDir()
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(elsewhere, "file"))
	for what, change := range map[string]func(dir string) error{
		"a link": func(dir string) error { return os.Symlink(filepath.Join(elsewhere, "file"), dir+"/d/file") },
		"another file": func(dir string) error {
			return os.Link(filepath.Join(elsewhere, "file"), dir+"/d/file")
		},
		"a pipe": func(dir string) error { return unix.Mkfifo(dir+"/d/file", 0o600) },
		"a directory": func(dir string) error {
			if err := os.Remove(dir + "/d"); err != nil {
				return err
			}
			return os.Symlink(elsewhere, dir+"/d")
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			write(filepath.Join(dir, "d", "file"))
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			info, err := root.Lstat("d/file")
			if err != nil {
				t.Fatal(err)
			}
			// The file stays open, so that no other has its number.
			was, err := root.Open("d/file")
			if err != nil {
				t.Fatal(err)
			}
			defer was.Close()
			if err := os.Remove(filepath.Join(dir, "d", "file")); err != nil {
				t.Fatal(err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			var sent bytes.Buffer
			out := tar.NewWriter(&sent)
			if err := writeEntry(out, root, "d/file", info, "d/file"); err == nil {
				t.Error("it is copied")
			}
			if strings.Contains(sent.String(), "secret") {
				t.Error("what is in its place is sent")
			}
		})
	}
}

// A directory is copied with links and directories, and a link that was named is followed.
func TestCopyOfATree(t *testing.T) {
	dir := t.TempDir()
	for path, mode := range map[string]fs.FileMode{"top/a/file": 0o640, "top/run": 0o755} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"top/link": "/etc/passwd", "named": "top", "name": "top/run"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for local, want := range map[string]string{"named": "x/ x/a/ x/a/file x/link>/etc/passwd x/run", "name": "x"} {
		local = filepath.Join(dir, local)
		info, err := os.Stat(local)
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		if err := writeTree(&sent, local, info, "x"); err != nil {
			t.Fatal(err)
		}
		var got []string
		in := tar.NewReader(&sent)
		for head, err := in.Next(); err == nil; head, err = in.Next() {
			name := head.Name
			switch head.Typeflag {
			case tar.TypeDir:
				name = strings.TrimSuffix(name, "/") + "/"
			case tar.TypeSymlink:
				name += ">" + head.Linkname
			}
			got = append(got, name)
		}
		if is := strings.Join(got, " "); is != want {
			t.Errorf("%s is sent as %q, want %q", local, is, want)
		}
	}
}
