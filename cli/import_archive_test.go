package cli

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// treeWith is the tree of an element with one file.
func treeWith(t *testing.T, path, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := archive.NewTree(&b)
	if err := w.Add(archive.File{Path: path, Size: int64(len(content)), Mode: 0o644}, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// exported is a lab in which things were written inside, and the archive of it.
func exported(t *testing.T) (f *fake, file string) {
	t.Helper()
	f = savable()
	record := f.records["lab"]
	record.Network.Owner = "ann"
	record.Network.Edges = nil
	f.records["lab"] = record
	f.running = map[string]model.Running{"r1": {Config: map[string]string{"frr.conf": "hostname mine\n"}},
		"r2": {Config: map[string]string{"frr.conf": "hostname r2\n"}}, "s1": {},
		"h1": {Files: []model.OwnFile{{Path: "/root/work", Size: 5}, {Path: "/root/l", Link: true}}}}
	f.trees = map[string][]byte{"h1": treeWith(t, "root/work", "done\n")}
	file = filepath.Join(t.TempDir(), "lab.tar")
	return f, file
}

func TestExportAndImport(t *testing.T) {
	f, file := exported(t)
	r := run(t, f, "export", "lab", "-o", file)
	if r.code != ExitOK || !strings.Contains(r.out, "lab exported to "+file+": 2 routers, 1 host, 1 switch, 2 links, files of 1") ||
		!strings.Contains(r.err, "lab/h1: links are not taken along: /root/l") {
		t.Fatalf("%+v", r)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("beside the archive there are %v, %v", entries, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if piped := run(t, f, "export", "lab", "-o", "-"); piped.code != ExitOK || piped.out != string(b) {
		t.Errorf("piped, the archive is another one: %d, %s", piped.code, piped.err)
	}
	h1 := model.ID{Network: "mine", Element: "h1"}
	for name, do := range map[string]func(g *fake) result{
		"from a file": func(g *fake) result { return run(t, g, "import", file, "--name", "mine") },
		"from a pipe": func(g *fake) result { return runWith(t, g, string(b), "import", "-", "--name", "mine") },
	} {
		g := lab()
		r := do(g)
		if r.code != ExitOK || !strings.Contains(r.out, "mine imported in") || len(g.applied) != 1 ||
			!g.applied[0].Provisional || g.applied[0].Base != model.BaseNew || strings.Join(g.kept, "") != "mine" ||
			!bytes.Equal(g.unpacked[h1], f.trees["h1"]) || len(g.unpacked) != 1 || len(g.deleted) > 0 {
			t.Errorf("%s: %+v, applied %+v, kept %v, deleted %v, %d trees", name, r, g.applied, g.kept, g.deleted,
				len(g.unpacked))
		}
	}
	// A network whose elements are not everything is not exported.
	delete(f.trees, "h1")
	os.Remove(file)
	if r := run(t, f, "export", "lab", "-o", file); r.code != ExitFailed || !strings.Contains(r.err, "lab/h1: its files: node n2") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("an archive that lacks something was written")
	}
	if r := run(t, f, "export", "lab", "-o", file, "--partial"); r.code != ExitOK {
		t.Errorf("--partial: %+v", r)
	}
}

// TestImportIsAllOrNothing has imports that fail at each step: what was made goes again, or nothing was made at all.
func TestImportIsAllOrNothing(t *testing.T) {
	f, file := exported(t)
	if r := run(t, f, "export", "lab", "-o", file); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := lab()
	g.full = "h1"
	if r := run(t, g, "import", file, "--name", "mine"); r.code != ExitFailed || strings.Join(g.deleted, "") != "mine" ||
		len(g.kept) > 0 || !strings.Contains(r.err, "no space left") || !strings.Contains(r.err, "nothing is imported") {
		t.Errorf("a full disk: %+v, deleted %v, kept %v", r, g.deleted, g.kept)
	}
	g = lab()
	g.refusals = map[string]error{"mine": &client.Error{Status: http.StatusConflict, Detail: "network mine is there"}}
	if r := run(t, g, "import", file, "--name", "mine"); r.code != ExitRefused || len(g.deleted) > 0 {
		t.Errorf("refused: %+v, deleted %v", r, g.deleted)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the importer's own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	document := func(text string) []byte {
		var b bytes.Buffer
		tree, err := archive.TreeOf("h1", bytes.NewReader(f.trees["h1"]), int64(len(f.trees["h1"])))
		if err == nil {
			err = archive.Write(&b, archive.Manifest{Network: "lab"}, []archive.Content{archive.Document([]byte(text)), tree})
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for words, b := range map[string][]byte{
		"cut off":     whole[:len(whole)-600],
		"is a lab":    []byte("network: lab\n"),
		"the digest":  bytes.Replace(whole, []byte("hostname mine"), []byte("hostname evil"), 1),
		"of another":  document("network: other\nhosts: [h1]\n"),
		"of an elem":  document("network: lab\nhosts: [h2]\n"),
		"names no fi": document("network: lab\nhosts: [h1]\nrouters:\n  r1: {config: {file: " + secret + "}}\n"),
	} {
		if words == "the digest" {
			words = "its digest says"
		}
		g := lab()
		r := runWith(t, g, string(b), "import", "-", "--name", "mine")
		if r.code != ExitUsage || !strings.Contains(r.err, words) || g.requests > 0 || len(g.applied) > 0 {
			t.Errorf("want %q: %+v, %d requests", words, r, g.requests)
		}
	}
	if r := run(t, lab(), "import", filepath.Dir(file)); r.code != ExitUsage {
		t.Errorf("a directory: %+v", r)
	}
}
