package spec

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// lay makes files in a directory of the test's own; what ends with / is a directory, what has -> a link.
func lay(t *testing.T, all map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range all {
		name, target, link := strings.Cut(name, "->")
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		switch {
		case link:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Files are put into elements: one, those of a directory, or what the file says itself; defaults are taken one by one.
func TestFiles(t *testing.T) {
	dir := lay(t, map[string]string{"nginx.conf": "user nobody;\n", "www/a.html": "a", "www/.hidden": "",
		"www/sub/b": "b", "www/sub/c->../a.html": "", "www/empty/": "", "tool": "#!/bin/sh\n",
		"photo": "\xff\xd8\x00", "own.conf": "mine"})
	if err := os.Chmod(filepath.Join(dir, "tool"), 0o750); err != nil {
		t.Fatal(err)
	}
	nets, err := Parse(filepath.Join(dir, "lab.yaml"), []byte(`network: lab
defaults:
  hosts:
    files: {/etc/nginx/nginx.conf: ./nginx.conf, /opt/tool: tool}
hosts:
  h1: {files: {/srv/www: www, /root/photo: {file: photo, mode: 600}}}
  h2:
    files:
      /etc/nginx/nginx.conf: {file: own.conf}
      /etc/motd: {text: "welcome\n", mode: "0444"}
      /etc/blob: {base64: /wA=}
routers:
  r: {files: {/etc/empty: {text: ""}}}
links: [h1 -- r, h2 -- r]
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	tool := model.File{Text: "#!/bin/sh\n", Mode: "0750"}
	for i, want := range []map[string]model.File{
		{"/etc/empty": {}},
		{"/etc/nginx/nginx.conf": {Text: "user nobody;\n"}, "/opt/tool": tool, "/srv/www/a.html": {Text: "a"},
			"/srv/www/.hidden": {}, "/srv/www/sub/b": {Text: "b"}, "/srv/www/sub/c": {Text: "a"},
			"/root/photo": {Base64: []byte("\xff\xd8\x00"), Mode: "600"}},
		{"/etc/nginx/nginx.conf": {Text: "mine"}, "/opt/tool": tool, "/etc/motd": {Text: "welcome\n", Mode: "0444"},
			"/etc/blob": {Base64: []byte("\xff\x00")}},
	} {
		if e := nets[0].Elements[i]; !reflect.DeepEqual(e.Contents, want) {
			t.Errorf("%s has\n%+v, want\n%+v", e.Name, e.Contents, want)
		}
	}
}

// What is too large for a network's document is only named there, and read by whoever sends it.
func TestLargeFiles(t *testing.T) {
	dir := lay(t, map[string]string{"www/a": "a", "www/sub/b": "", "www/link->a": "", "image": ""})
	for name, size := range map[string]int64{"www/sub/b": 5 << 20, "image": 6 << 20} {
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
	text := "network: lab\nhosts:\n  h: {files: {/srv/www: www, /srv/i: {file: image, mode: 0600}, /etc/motd: {text: a}}}\n"
	nets, err := Parse(filepath.Join(dir, "lab.yaml"), []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	www, image := filepath.Join(dir, "www"), filepath.Join(dir, "image")
	contents := nets[0].Elements[0].Contents
	if want := (map[string]model.File{"/srv/www": {Tree: www, Size: 5<<20 + 2}, "/srv/i": {Tree: image, Size: 6 << 20,
		Mode: "0600"}, "/etc/motd": {Text: "a"}}); !reflect.DeepEqual(contents, want) {
		t.Fatalf("it has\n%+v, want\n%+v", contents, want)
	}
	told := ""
	for _, at := range []string{"/srv/i", "/srv/www"} {
		files, closeAll, err := LargeFiles(contents[at])
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r)
			if r.Close(); err != nil || n != f.Size {
				t.Errorf("%s has %d bytes, and was said to have %d: %v", f.Path, n, f.Size, err)
			}
			told += fmt.Sprintf("%s %d %o\n", f.Path, f.Size, f.Perm)
		}
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	}
	if want := " 6291456 600\na 1 644\nlink 1 644\nsub/b 5242880 644\n"; told != want {
		t.Errorf("the files are\n%s, want\n%s", told, want)
	}

	// What the manager has is written, and read again.
	id := "sha256:" + strings.Repeat("ab", 32)
	contents["/srv/www"], contents["/srv/i"] = model.File{Tree: id, Size: 5<<20 + 2}, model.File{Tree: id}
	saved, err := Format(nets[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("lab.yaml", saved, Options{})
	if err != nil || !reflect.DeepEqual(again[0].Elements[0].Contents, contents) {
		t.Errorf("saved:\n%s\nread again: %+v, %v", saved, again, err)
	}
}

// What cannot be put into an element is refused, with the reason, at its place in the file.
func TestFilesThatAreRefused(t *testing.T) {
	dir := lay(t, map[string]string{"ok": "ok", "out/passwd->/etc/passwd": "", "up/x->../../ok": "", "gone/x->nothing": "",
		"looped/x->x": "", "dirs/a/f": "", "dirs/b->a": "", "pipe/ok": "", "none/": "", "large": "", "tree/a": "",
		"tree/b": "", "tree/c/d": "", "odd/.wh.x": "", "odd/y": ""})
	if err := unix.Mkfifo(filepath.Join(dir, "pipe", "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"large": 5 << 20, "tree/a": 2 << 30, "tree/c/d": 512 << 20, "odd/y": 5 << 20} {
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
	for i := range model.MaxContents + 1 {
		at := filepath.Join(dir, "many", strings.Repeat("x", i%200+1)+"."+string(rune('a'+i/200)))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for files, want := range map[string]string{
		"{/srv: missing}":                             "missing: no such file or directory; paths are relative to the file that names them",
		"{/srv: none}":                                "none has no files",
		"{/srv: out}":                                 "passwd is a link that leads to no file in",
		"{/srv: up}":                                  "is a link that leads to no file in",
		"{/srv: gone}":                                "is a link that leads to no file in",
		"{/srv: looped}":                              "is a link that leads to no file in",
		"{/srv: dirs}":                                "dirs/b is a link to a directory; links to files are followed",
		"{/srv: pipe}":                                "pipe/p is a pipe; regular files and directories are taken",
		"{/srv: pipe/p}":                              "pipe/p is a pipe; a regular file or a directory is expected",
		"{/srv: /dev/null}":                           "/dev/null is a device; a regular file or a directory is expected",
		"{/srv: tree}":                                "has 2560 MiB in 3 files; what is put into elements at a path has 1024 MiB in 20000 files at most",
		"{/srv: tree/a}":                              "a has 2048 MiB in 1 file; what is put into elements at a path has 1024 MiB in 20000 files at most",
		"{/etc: many}":                                "this cannot be where /etc/polyplane is",
		"{/srv: large, /srv/x: ok}":                   "all that is at /srv is large, and is kept as a whole, so that /srv/x cannot be in it",
		"{/srv: odd}":                                 "call it otherwise",
		"{/srv: tree/c/d}":                            "its files have 512MiB, and its disk of 256MiB has no room for them: say disk: 640MiB",
		"{/srv: {tree: sha256:1}}":                    "tree is the ID of files that the manager has",
		"{/srv: {tree: /etc/shadow}}":                 "tree is the ID of files that the manager has",
		"{/srv: {text: a, size: 1}}":                  "size is only said of a tree",
		"4096":                                        "how many files its processes may have open is said by open-files: 4096",
		"{/etc/x: }":                                  "/etc/x of files of host h is given nothing; write the path of a file or a directory, or {text: TEXT}",
		"{/etc/x: {mode: 0644}}":                      "it takes one of file, text and base64",
		"{/etc/x: {text: a, file: ok}}":               "it takes one of file, text and base64",
		"{/etc/x: {base64: '*'}}":                     "base64: illegal base64 data",
		"{/etc/x: {text: a, mode: 8}}":                `the mode "8" of /etc/x is not like 0644 or 0755`,
		"{/etc/x: {text: a, mode: 4755}}":             `the mode "4755" of /etc/x is not like 0644 or 0755`,
		"{/etc/x: \"one\\ntwo\"}":                     "is the path of a file, and this is text; write {text: TEXT}",
		"{etc/x: ok}":                                 `"etc/x" is not a whole path`,
		"{/etc/../root/x: ok}":                        "is not a whole path in its shortest form",
		"{/: ok}":                                     `"/" is not a whole path`,
		"{/usr/bin/sh: ok}":                           "/usr/bin/sh cannot be put there",
		"{/run/x: ok}":                                "/run/x cannot be put there",
		"{/etc/ssl/certs/x: ok}":                      "/etc/ssl/certs/x cannot be put there",
		"{/etc/polyplane/service: ok}":                "/etc/polyplane/service cannot be put there",
		"{/data/x: ok}":                               "would be hidden by the file system in memory at /data",
		"{/a: ok, /a/b: ok}":                          "/a is a file, so that /a/b cannot be in it",
		"{/etc/hostname: ok}":                         "has the element's name",
		"{\"/etc/a\\tb\": ok}":                        "is no path that a file can be at",
		"{/etc/x.polyplane-new: ok}":                  "has a name as polyplane gives them to files",
		"{/" + strings.Repeat("a/", 64) + "x: ok}":    "in at most 64 names of at most 223 bytes",
		"{/etc/" + strings.Repeat("a", 224) + ": ok}": "in at most 64 names of at most 223 bytes",
		"{/srv: tree/b, /srv/b: ok}":                  "/srv is a file, so that /srv/b cannot be in it",
	} {
		_, err := Parse(filepath.Join(dir, "lab.yaml"), []byte("network: lab\nhosts:\n  h:\n    tmpfs: {/data: 1MiB}\n    files: "+
			files+"\n"), Options{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "lab.yaml:5:") {
			t.Errorf("files: %s: %v, want %q in line 5", files, err, want)
		}
	}
	_, err := Parse(filepath.Join(dir, "lab.yaml"),
		[]byte("network: lab\nrouters: {r: {ospf: {}, files: {/etc/frr/frr.conf: ok}}}\n"), Options{})
	if err == nil || !strings.Contains(err.Error(), "write it as `config: {frr.conf: {file: PATH}}`") {
		t.Errorf("routing software's configuration as a file: %v", err)
	}
	text := base64.StdEncoding.EncodeToString(make([]byte, 2<<20))
	_, err = Parse("lab.yaml", []byte("network: lab\nhosts: {h: {files: {/x: {base64: "+text[:200<<10]+"}}}}\n"), Options{})
	if err != nil {
		t.Errorf("a file in base64: %v", err)
	}
}

// Whatever is in files, what is written of them is read again, as it was.
func TestFilesAreReadBack(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, contents map[string]model.File) {
		net := model.Network{Name: "lab", Elements: []model.Element{{Name: "h", Kind: model.Host, Service: model.Service{
			Contents: contents}}}}
		text, err := Format(net)
		if err != nil {
			t.Fatalf("%v", err)
		}
		again, err := Parse("lab.yaml", text, Options{})
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		if is := again[0].Elements[0].Contents; !reflect.DeepEqual(is, contents) {
			t.Fatalf("it comes back as something else: %d files, of %d", len(is), len(contents))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, map[string]model.File{"/text": model.FileOf([]byte(rapid.String().Draw(t, "text")), ""),
			"/lines": model.FileOf([]byte(strings.Join(rapid.SliceOf(rapid.StringMatching("[ -~\t\r]*")).Draw(t, "lines"),
				"\n")), ""),
			"/bytes": model.FileOf(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"), "0600")})
	})
	// A line may be longer than those of files that people write, and all may be more than a file of theirs.
	large := make([]byte, model.MaxContentSize)
	for i := range large {
		large[i] = byte(i * i >> 3)
	}
	check(t, map[string]model.File{"/a": model.FileOf(large, ""),
		"/c": {Text: strings.Repeat("var a,b;", 100<<10)}, "/d": {Text: "a\r\nb\r\n"}, "/e": {Text: " \n\n\ta \n"}})
}

// What is longer than a file that people write has to be what costs a reader little.
func TestSizeOfFiles(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", MaxSize+1):             "which is more than a description of networks ever needs",
		strings.Repeat("- a\n", maxPlain/2):        "commas, colons, line ends and the like; more than 4194304 bytes may only have",
		strings.Repeat("\"a\" \"b\" ", maxPlain/4): "commas, colons, line ends and the like",
		strings.Repeat("- a\n", maxPlain/4):        "",
		strings.Repeat("QUJD", MaxSize/4):          "",
	} {
		if err := CheckSize([]byte(text)); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes of %.8q: %v", len(text), text, err)
		}
	}
}
