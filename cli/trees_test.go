package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
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

	// A network that is refused has nothing sent for it. What a manager that ends did not take is sent again, and where
	// it ends each time that is told, and that nothing was applied. --timeout bounds the sending.
	write("D" + content[1:])
	f.refusals = map[string]error{"lab": &client.Error{Status: http.StatusUnprocessableEntity, Detail: "it does not fit"}}
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != ExitRefused || len(f.images) != 2 ||
		strings.Contains(r.err, "sending") {
		t.Errorf("a network that is refused: %+v, %d sent", r, len(f.images))
	}
	f.refusals, f.stuck = nil, true
	if r := run(t, f, "apply", "-f", file, "--timeout", "200ms"); r.code != ExitTimeout || len(f.images) != 2 ||
		!strings.Contains(r.err, "was not sent within 200ms (--timeout), and nothing was applied") {
		t.Errorf("what takes too long: %+v, %d sent", r, len(f.images))
	}
	f.stuck, f.cut = false, sendTries
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != ExitFailed || len(f.images) != 2 ||
		!strings.Contains(r.err, "sending broke off (write unix: broken pipe), and nothing was applied; the same command again") {
		t.Errorf("a manager that always ends: %+v, %d sent", r, len(f.images))
	}
	f.cut = 1
	if r := run(t, f, "apply", "-f", file, "--wait=false"); r.code != 0 || len(f.images) != 3 ||
		!strings.Contains(r.err, "the manager ended while this was sent; it is back, and gets it again") {
		t.Errorf("a manager that ends once: %+v, %d sent", r, len(f.images))
	}
	if err := os.Truncate(large, 3<<29); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "apply"} {
		if r := run(t, f, command, "-f", file); r.code != ExitUsage || len(f.images) != 3 ||
			!strings.Contains(r.err, "lab.yaml:3:") || !strings.Contains(r.err, "has 1536 MiB in 1 file") {
			t.Errorf("%s of more than is allowed: %+v", command, r)
		}
	}
}
