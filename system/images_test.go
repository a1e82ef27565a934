package system

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// TestImages follows images from a file to elements on two hosts, of which one has joined, and back: what is wrong is
// refused and leaves nothing, what is used stays, what is gone is gone everywhere. An owner sends one over TLS.
func TestImages(t *testing.T) {
	hostA, hostB := twoHosts(t)
	p, far := newPlatformOn(t, hostA), newPlatformOn(t, hostB)
	p.run("up", "--host", "--underlay", "198.51.100.1", "--listen", "198.51.100.1:7455", "-d")
	var nodes []model.NodeStatus
	decode(t, p.run("get", "nodes", "-o", "json"), &nodes)
	here := nodes[0].Name
	far.run(words(t, p.run("token", "create", "--node", "far"))...)
	tool := string(Program(t, Tool))
	base := Layer(t, File{Name: "bin/tool", Content: tool}, File{Name: "bin/sh", Kind: tar.TypeLink, Link: "bin/tool"},
		File{Name: "srv/index", Content: "first", UID: 1000, Mode: 0o640})
	run := model.ImageRun{Cmd: []string{"/bin/tool", "serve", "8080"}, User: "1000", Env: []string{"PATH=/bin"}}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("web.tar", Saved(t, "", Config(t, run, base), base))
	lab := "network: lab\nhosts:\n" +
		"  h1: {image: IMAGE, node: " + here + ", ready: {tcp: 8080}}\n" +
		"  h2: {image: IMAGE, node: far, env: {GREETING: hi}, ready: {command: tool read /srv/index}}\nlinks: [h1 -- h2]\n"
	file := write("lab.yaml", []byte(strings.ReplaceAll(lab, "IMAGE", "./web.tar")))

	// Hostile and broken ones are refused in words, by the manager as well.
	other := Layer(t, File{Name: "other", Content: "x"})
	bad := Layer(t, File{Name: "../../etc/passwd", Content: "x"})
	for path, words := range map[string]string{
		write("out.tar", Saved(t, "", Config(t, run, bad), bad)):      "leads out of the image",
		write("other.tar", Saved(t, "", Config(t, run, base), other)): "not what the image's configuration says",
		write("text.tar", []byte(strings.Repeat("no image ", 200))):   "no tar",
		filepath.Join(dir, "none.tar"):                                "no such file",
	} {
		if _, said, err := p.try("image", "import", path); err == nil || !strings.Contains(said, words) {
			t.Errorf("%s is told as %q", filepath.Base(path), said)
		}
	}
	if out := p.run("image", "list"); !strings.Contains(out, "there are no images") {
		t.Errorf("what was refused left\n%s", out)
	}
	unknown := write("unknown.yaml", []byte(strings.ReplaceAll(lab, "IMAGE", "sha256:0123456789abcdef")))
	if _, said, err := p.try("apply", "-f", unknown); err == nil || !strings.Contains(said, "image") {
		t.Errorf("an image that nobody has is told as %q", said)
	}

	// A plan sends nothing.
	if out := p.run("plan", "-f", file); !strings.Contains(out, "web.tar@sha256:") {
		t.Errorf("the plan is\n%s", out)
	}
	if out := p.run("image", "list"); !strings.Contains(out, "there are no images") {
		t.Errorf("a plan sent\n%s", out)
	}
	p.run("apply", "-f", file)
	for _, h := range []string{"h1", "h2"} {
		if out := p.run("exec", "lab/"+h, "--", "tool", "owner", "/srv/index"); out != "1000 0 -rw-r-----\n" {
			t.Errorf("in %s its file is %s", h, out)
		}
		if out := p.run("logs", "lab/"+h); !strings.Contains(out, "serving as 1000 at /") {
			t.Errorf("%s says\n%s", h, out)
		}
	}
	if out := p.run("apply", "-f", file); !strings.Contains(out, "no changes") {
		t.Errorf("the same again is\n%s", out)
	}
	if out := p.run("image", "list"); !strings.Contains(out, "web.tar") || !strings.Contains(out, "lab") {
		t.Errorf("the list is\n%s", out)
	}
	if _, said, err := p.try("image", "remove", "web.tar"); err == nil || !strings.Contains(said, "used by lab") {
		t.Errorf("what is used is removed: %q", said)
	}
	// Everything survives the death of who made it.
	p.run("exec", "lab/h1", "--", "tool", "write", "/srv/index", "mine")
	p.kill("manager", "agent "+here)
	far.kill("agent far")
	p.ready()
	if out := p.run("exec", "lab/h1", "--", "tool", "read", "/srv/index"); out != "mine" {
		t.Errorf("what was written is %q", out)
	}
	// Another image under the same name is another one at the next apply only.
	second := Layer(t, File{Name: "srv/second", Content: "2"})
	write("web.tar", Saved(t, "", Config(t, run, base, second), base, second))
	if out := p.run("apply", "-f", file); !strings.Contains(out, "restarts h1") {
		t.Errorf("another image is told as\n%s", out)
	}
	if out := p.run("exec", "lab/h1", "--", "tool", "list", "/srv"); out != "index\nsecond\n" {
		t.Errorf("with another image there is %s", out)
	}
	p.run("delete", "lab")
	p.run("image", "remove", "web.tar")

	// An owner sends one from the other host, over TLS; files of the network's take the place of the image's.
	var made model.TokenResult
	decode(t, p.run("token", "create", "--user", "alice", "--role", "owner", "-o", "json"), &made)
	token := write("token", []byte(made.Text))
	alice := func(args ...string) string {
		return far.run(append([]string{"--server", "198.51.100.1", "--token-file", token}, args...)...)
	}
	large := Layer(t, File{Name: "large", Content: strings.Repeat("not to be compressed ", 1<<20)})
	write("web.tar", Saved(t, "lab/web:1", Config(t, run, base, large), base, large))
	example, err := os.ReadFile("../examples/image/image.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(example), "    image: ./web.tar", "    image: ./web.tar\n    node: far")
	alice("apply", "-f", write("image.yaml", []byte(text)))
	alice("check", "image", "--wait", "1m")
	if out := alice("exec", "image/web", "--", "tool", "read", "/srv/index"); out != "hello from the network's file\n" {
		t.Errorf("the network's file is %q", out)
	}
	if out := alice("image", "list"); !strings.Contains(out, "lab/web:1") || !strings.Contains(out, "alice") {
		t.Errorf("alice's images are\n%s", out)
	}
	at := strings.Index(text, "    files:")
	end := at + strings.Index(text[at:], "\n") + 1
	alice("apply", "-f", write("image.yaml", []byte(text[:at]+text[end:])))
	if out := alice("exec", "image/web", "--", "tool", "owner", "/srv/index"); out != "1000 0 -rw-r-----\n" {
		t.Errorf("the image's file is not there again: %s", out)
	}
	if out := alice("exec", "image/web", "--", "tool", "read", "/srv/index"); out != "first" {
		t.Errorf("the image's file is %q", out)
	}
	alice("delete", "image")
	alice("image", "remove", "lab/web:1")
	if entries, err := os.ReadDir(p.dirs.Images()); err != nil || len(entries) != 1 {
		t.Errorf("the manager still has %v, %v", entries, err)
	}
}
