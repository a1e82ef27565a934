package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// Restores without end do not fill the disk with stores that were set aside.
func TestStoresThatWereSetAsideAreBounded(t *testing.T) {
	var out bytes.Buffer
	r := &Restore{Dirs: instance.Dirs{Name: "test", Data: t.TempDir()}, Out: &out}
	for i := range 9 {
		name := fmt.Sprintf("%s202611%02dT120000.000Z", aside, i+1)
		if err := os.MkdirAll(filepath.Join(r.Dirs.Data, name, "etcd", "member"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.bound(); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(r.Dirs.Data, aside+"*"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(paths)
		if len(paths) != min(i+1, mostAside) || !strings.Contains(paths[0], "20261101T") ||
			filepath.Base(paths[len(paths)-1]) != name {
			t.Fatalf("after %d there are %v", i+1, paths)
		}
	}
	if said := out.String(); !strings.Contains(said, "20261105T") || strings.Contains(said, "20261101T") {
		t.Errorf("it says\n%s", said)
	}
}

// A disk that is full leaves nothing of a file that is put back: half of it would count as there the next time. What
// was left so by earlier versions is seen to be none, and put aside.
func TestFilesArePutBackWhole(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0) //nolint:errcheck // the test is over
	elsewhere := t.TempDir()
	if _, err := trust.OpenAuthority(elsewhere, "test"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(elsewhere, filepath.Base(instance.AuthorityFile)))
	if err != nil {
		t.Fatal(err)
	}
	content = append(content, bytes.Repeat([]byte("#\n"), 4096)...) // more than the page that is left
	r := &Restore{Dirs: instance.Dirs{Name: "test", Data: dir}, Out: io.Discard}
	b := &store.Backup{Files: map[string][]byte{instance.AuthorityFile: content}}
	path := filepath.Join(dir, instance.AuthorityFile)
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.putFiles(b, true); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a part of it is left")
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.putFiles(b, true); err != nil {
			t.Fatal(err)
		}
		if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, content) {
			t.Errorf("put back are %d bytes of %d (%v)", len(is), len(content), err)
		}
	}
	if matches, _ := filepath.Glob(path + ".*"); len(matches) != 1 || matches[0] != path+".damaged" {
		t.Errorf("beside it are %v", matches)
	}
}

// Whoever restores a backup of before tokens were revoked is told that these stay revoked, and nothing of the others.
func TestRestoreTellsOfRevokedTokens(t *testing.T) {
	var out bytes.Buffer
	r := &Restore{Dirs: instance.Dirs{Name: "test", Data: t.TempDir()}, Out: &out}
	b := &store.Backup{Keys: map[string][]byte{"documents/access": []byte(`{"layout":1,"value":{"tokens":[
		{"id":"good","user":"al","role":"owner","hash":""},{"id":"since","user":"eve","role":"admin","hash":""},
		{"id":"host","hash":""},{"id":"before","user":"bo","revoked":"2026-01-02T03:04:05Z","hash":""}]}}`)}}
	if err := r.tellTokens(b); err != nil || out.Len() > 0 {
		t.Errorf("where nothing was revoked it says %q, %v", out.String(), err)
	}
	revoked, err := instance.ReadRevoked(r.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []model.StoredToken
	for _, id := range []string{"since", "host", "before"} {
		tokens = append(tokens, model.StoredToken{Token: model.Token{ID: id, Revoked: time.Now()}})
	}
	if err := revoked.Keep(tokens); err != nil {
		t.Fatal(err)
	}
	const want = "Tokens that were revoked since stay revoked: since (user eve, admin), host (for a host).\n"
	if err := r.tellTokens(b); err != nil || out.String() != want {
		t.Errorf("it says %q, %v; want %q", out.String(), err, want)
	}
}
