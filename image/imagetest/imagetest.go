// Package imagetest makes images for tests.
package imagetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/model"
)

// File is one of a layer. Kind is a type of archive/tar; a regular file where it is 0.
type File struct {
	Name, Content, Link string
	Kind                byte
	Mode                int64
	UID, GID            int
	PAX                 map[string]string
}

// Layer is a tar of files.
func Layer(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Linkname: f.Link, Typeflag: f.Kind, Mode: f.Mode, Uid: f.UID, Gid: f.GID,
			PAXRecords: f.PAX}
		h.Typeflag = cmp.Or(h.Typeflag, tar.TypeReg)
		h.Mode = cmp.Or(h.Mode, 0o755)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(f.Content))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(f.Content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Sum is the digest of data.
func Sum(data []byte) image.Digest {
	sum := sha256.Sum256(data)
	return image.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Config is the configuration of an image with these layers.
func Config(t testing.TB, run model.ImageRun, layers ...[]byte) []byte {
	t.Helper()
	c := image.Config{Architecture: runtime.GOARCH, OS: "linux", Config: run}
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, each.Of(layers, Sum)...)
	return marshal(t, c)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Gzip compresses.
func Gzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Tar is a tar of these files, in the order of their names.
func Tar(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	all := each.Of(slices.Sorted(maps.Keys(files)), func(name string) File {
		return File{Name: name, Content: string(files[name]), Mode: 0o644}
	})
	return Layer(t, all...)
}

// Saved is what `docker save` writes of an image.
func Saved(t testing.TB, tag string, config []byte, layers ...[]byte) []byte {
	t.Helper()
	files := map[string][]byte{"config.json": config}
	var names []string
	for i, l := range layers {
		name := fmt.Sprint(i, "/layer.tar")
		files[name] = l
		names = append(names, name)
	}
	var tags []string
	if tag != "" {
		tags = []string{tag}
	}
	files["manifest.json"] = marshal(t, []map[string]any{{"Config": "config.json", "RepoTags": tags, "Layers": names}})
	return Tar(t, files)
}

// OCI are the files of OCI's layout of an image.
func OCI(t testing.TB, tag string, config []byte, layers ...[]byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	add := func(kind string, data []byte) map[string]any {
		d := Sum(data)
		files["blobs/sha256/"+d.Hex()] = data
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": d, "size": len(data)}
	}
	list := []any{}
	list = append(list, each.Of(layers, func(l []byte) any { return add("layer.v1.tar", l) })...)
	m := add("manifest.v1+json", marshal(t, map[string]any{"schemaVersion": 2, "config": add("config.v1+json", config),
		"layers": list}))
	if tag != "" {
		m["annotations"] = map[string]string{"org.opencontainers.image.ref.name": tag}
	}
	files["index.json"] = marshal(t, map[string]any{"schemaVersion": 2, "manifests": []any{m}})
	return files
}

// Program compiles a Go program without any library into an image's layer, as a static file.
func Program(t testing.TB, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "program")
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", out, filepath.Join(dir, "main.go"))
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if words, err := c.CombinedOutput(); err != nil {
		t.Fatalf("compile a program for an image: %v: %s", err, words)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Write writes a file of a test's own, and returns its path.
func Write(t testing.TB, name string, data []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// Tool is the source of a program that tests have in their images. It needs nothing beside itself.
//
//	tool id                says who it is, its groups, and where it is
//	tool env NAME          says a variable
//	tool read FILE         prints a file; tool write FILE TEXT writes one
//	tool owner FILE        says whose it is, and its mode
//	tool list DIR          prints the names in a directory
//	tool serve PORT        listens on a port, and prints what it is and where
//	sh -c COMMAND          runs a command of words, and several with ; between them until one fails
const Tool = `package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	a := os.Args
	if filepath.Base(a[0]) == "sh" {
		for part := range strings.SplitSeq(a[2], ";") {
			w := strings.Fields(part)
			c := exec.Command(w[0], w[1:]...)
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			check(c.Run())
		}
		return
	}
	switch a[1] {
	case "id":
		groups, _ := os.Getgroups()
		at, _ := os.Getwd()
		fmt.Println(os.Getuid(), os.Getgid(), groups, at)
	case "env":
		fmt.Println(os.Getenv(a[2]))
	case "read":
		b, err := os.ReadFile(a[2])
		check(err)
		os.Stdout.Write(b)
	case "write":
		check(os.WriteFile(a[2], []byte(a[3]), 0o644))
	case "owner":
		info, err := os.Lstat(a[2])
		check(err)
		s := info.Sys().(*syscall.Stat_t)
		fmt.Println(s.Uid, s.Gid, info.Mode())
	case "list":
		all, err := os.ReadDir(a[2])
		check(err)
		for _, e := range all {
			fmt.Println(e.Name())
		}
	case "serve":
		at, _ := os.Getwd()
		l, err := net.Listen("tcp4", ":"+a[2])
		check(err)
		fmt.Println("serving as", os.Getuid(), "at", at, "with", strings.Join(a[3:], "+"), os.Getenv("GREETING"))
		for {
			c, err := l.Accept()
			check(err)
			fmt.Fprintln(c, "hello", os.Getenv("GREETING"))
			c.Close()
		}
	}
}
`
