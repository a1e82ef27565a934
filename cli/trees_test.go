package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// What is too large for the network's document is sent once, by its content; a plan sends nothing; what is larger than
// elements can be given is refused with its size.
func TestApplyBringsTrees(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "www", "large")
	if err := os.Mkdir(filepath.Dir(large), 0o755); err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("content ", 700_000)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(large, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(content)
	file := filepath.Join(dir, "lab.yaml")
	if err := os.WriteFile(file, []byte("network: lab\nhosts:\n  h1: {files: {/srv/www: www}}\n  h2: {files: {/srv/www: www}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	if r := run(t, f, "plan", "-f", file); r.code != 0 || len(f.images) != 0 {
		t.Errorf("a plan: %+v, %d sent", r, len(f.images))
	}
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != 0 || len(f.images) != 1 || len(f.sent) != 1 ||
		!strings.Contains(r.err, "sending 5.") {
		t.Fatalf("an apply: %+v, %d sent", r, len(f.images))
	}
	first := f.sent[0].Elements[1].Contents["/srv/www"]
	if want := (model.File{Tree: f.images[0].ID, Size: model.Bytes(len(content))}); first.Tree != want.Tree || first.Size != want.Size ||
		f.sent[0].Elements[0].Contents["/srv/www"].Tree != first.Tree {
		t.Errorf("the document has %+v, want %+v", first, want)
	}
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != 0 || len(f.images) != 1 || strings.Contains(r.err, "sending") {
		t.Errorf("what is there is sent again: %+v", r)
	}
	write("C" + content[1:])
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != 0 || len(f.images) != 2 {
		t.Errorf("with another byte: %+v, %d sent", r, len(f.images))
	}
	if err := os.Truncate(large, 3<<29); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "apply"} {
		if r := run(t, f, command, "-f", file); r.code != ExitUsage || len(f.images) != 2 ||
			!strings.Contains(r.err, "lab.yaml:3:") || !strings.Contains(r.err, "has 1536 MiB in 1 file") {
			t.Errorf("%s of more than is allowed: %+v", command, r)
		}
	}
}
