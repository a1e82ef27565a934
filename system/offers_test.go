package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNodeThatLacksSomething: a node whose machine lacks runc is ready and takes what it can make; what needs
// containers is refused with the reason, until somebody installs it.
func TestNodeThatLacksSomething(t *testing.T) {
	dir, runc := t.TempDir(), ""
	for _, of := range filepath.SplitList(os.Getenv("PATH")) {
		programs, _ := filepath.Glob(of + "/*")
		for _, path := range programs {
			if filepath.Base(path) == "runc" {
				runc = path
				continue
			}
			os.Symlink(path, filepath.Join(dir, filepath.Base(path))) //nolint:errcheck // the first of a name counts
		}
	}
	if runc == "" {
		t.Fatal("there is no runc to be taken away")
	}
	p := newPlatform(t)
	p.env = append(p.env, "PATH="+dir)
	p.run("up", "--nodes", "2", "-d")
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	hosts := write("hosts.yaml", "network: hosts\nhosts: [h1, h2]\nlinks: [h1 -- h2]\n")
	routers := write("routers.yaml", "network: routers\nospf: {}\nrouters: [r1, r2]\nlinks: [r1 -- r2]\n")

	const why = "the program runc is missing: install the package runc"
	if out := p.run("get", "nodes", "-o", "wide"); strings.Count(out, " ready ") != 2 ||
		strings.Count(out, "software: frr with control: netns") != 2 {
		t.Errorf("the nodes:\n%s", out)
	}
	if out := p.run("describe", "node/n1"); !strings.Contains(out, "software: frr: "+why) {
		t.Errorf("the node:\n%s", out)
	}
	p.run("apply", "-f", hosts)
	p.run("check", "hosts", "--mesh", "--wait", "1m")
	for _, command := range []string{"plan", "apply"} {
		_, stderr, err := p.try(command, "-f", routers)
		if want := "router r1 wants software: frr; n1, n2 lack it: " + why; err == nil ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: %v\n%s\nwant %s", command, err, stderr, want)
		}
	}
	if err := os.Symlink(runc, filepath.Join(dir, "runc")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(generous); ; time.Sleep(time.Second) {
		_, stderr, err := p.try("plan", "-f", routers)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it is installed, and still refused: %s", stderr)
		}
	}
	p.run("apply", "-f", routers)
	if out := p.run("get", "events"); !strings.Contains(out, "node n1 offers software: frr with control: netns now") {
		t.Errorf("nobody is told that the node can make more:\n%s", out)
	}
}
