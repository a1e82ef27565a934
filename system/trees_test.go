package system

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestTrees puts 40 MiB into elements on two hosts, of which one has joined, while the manager is killed; changes one
// byte of it; keeps what was edited inside; takes it along into an archive and back. What is larger than elements can
// be given is refused with its size.
func TestTrees(t *testing.T) {
	hostA, hostB := twoHosts(t)
	p, far := newPlatformOn(t, hostA), newPlatformOn(t, hostB)
	p.run("up", "--host", "--underlay", "198.51.100.1", "--listen", "198.51.100.1:7455", "-d")
	var nodes []model.NodeStatus
	decode(t, p.run("get", "nodes", "-o", "json"), &nodes)
	here := nodes[0].Name
	far.run(words(t, p.run("token", "create", "--node", "far"))...)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	large := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{1}).Read(large) //nolint:errcheck // never fails
	write("www/deep/large", large)
	write("www/index", []byte("first\n"))
	write("www/mine", []byte("first\n"))
	file := write("lab.yaml", fmt.Appendf(nil, "network: lab\nhosts:\n  h1: {node: %s, files: {/srv/www: www}, run: "+
		"cat /srv/www/index; exec sleep infinity}\n  h2: {node: far, files: {/srv/www: www}}\nlinks: [h1 -- h2]\n", here))

	// Too much is refused, in a plan as well, and leaves nothing.
	huge := write("www/huge", nil)
	if err := os.Truncate(huge, 1<<30); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "apply"} {
		if _, said, err := p.try(command, "-f", file); err == nil || !strings.Contains(said, "www has 1065 MiB in 4 files") {
			t.Errorf("%s of too much is told as %q", command, said)
		}
	}
	if err := os.Remove(huge); err != nil {
		t.Fatal(err)
	}
	if out := p.run("plan", "-f", file); !strings.Contains(out, "network lab (new)") {
		t.Errorf("the plan is\n%s", out)
	}
	if out := p.run("image", "list"); !strings.Contains(out, "there are no images") {
		t.Errorf("plans and refusals sent\n%s", out)
	}

	p.run("apply", "-f", file, "--wait=false")
	p.kill("manager")
	p.ready()
	if out := p.run("apply", "-f", file); !strings.Contains(out, "no changes") && !strings.Contains(out, "nothing new") {
		t.Errorf("the same again is\n%s", out)
	}
	has := func(want []byte, elements ...string) {
		t.Helper()
		for _, e := range elements {
			if out := p.run("exec", e, "--", "cat", "/srv/www/deep/large"); !bytes.Equal([]byte(out), want) {
				t.Errorf("%s has %d bytes, or others", e, len(out))
			}
		}
	}
	has(large, "lab/h1", "lab/h2")

	// One byte is another one, and one file was edited inside.
	p.run("exec", "lab/h1", "--", "sh", "-c", "echo edited > /srv/www/mine")
	large[20<<20] ^= 1
	write("www/deep/large", large)
	write("www/index", []byte("second\n"))
	write("www/mine", []byte("second\n"))
	out, said, err := p.try("apply", "-f", file)
	said += out
	if err != nil || !strings.Contains(said, "/srv/www/mine was edited inside the element") ||
		strings.Contains(said, "/srv/www/index") {
		t.Errorf("another apply is told as %q (%v)", said, err)
	}
	has(large, "lab/h1", "lab/h2")
	if out := p.run("exec", "lab/h1", "--", "cat", "/srv/www/mine", "/srv/www/index"); out != "edited\nsecond\n" {
		t.Errorf("h1 has %q", out)
	}
	p.await("its service to have the new one", func() bool {
		return strings.Contains(p.run("logs", "lab/h1"), "second\n")
	}, func() string { return p.run("logs", "lab/h1") })

	// All of it is in the archive of an export, with what was edited.
	archive := filepath.Join(dir, "lab.tar")
	p.run("export", "lab", "-o", archive)
	p.run("delete", "lab")
	for _, line := range strings.Split(strings.TrimSpace(p.run("image", "list")), "\n")[1:] {
		p.run("image", "remove", strings.Fields(line)[1])
	}
	if entries, err := os.ReadDir(p.dirs.Images()); err != nil || len(entries) != 1 {
		t.Errorf("the manager still has %v, %v", entries, err)
	}
	p.run("import", archive)
	has(large, "lab/h1", "lab/h2")
	if out := p.run("exec", "lab/h1", "--", "cat", "/srv/www/mine", "/srv/www/index"); out != "edited\nsecond\n" {
		t.Errorf("h1 has %q once it is imported", out)
	}
	p.run("delete", "lab")
}
