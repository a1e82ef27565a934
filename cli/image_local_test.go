package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An image that docker or podman has on this machine is had from there, before a registry is asked.
func TestImagesOfThisMachinesDocker(t *testing.T) {
	dir := t.TempDir()
	path, id := anImage(t, "saved.tar", "localhost/lab/web:1", "one")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in
"image inspect -- lab/web:1") ;;
"image inspect -- lab/broken:1") ;;
"save -- lab/web:1") exec cat %s ;;
"save -- lab/broken:1") head -c 700 %s; echo "the store is damaged" >&2; exit 125 ;;
*) echo "no such image" >&2; exit 1 ;;
esac
`, path, path)
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	f := &fake{}
	r := run(t, f, "image", "import", "--from", "podman", "lab/web:1")
	if r.code != 0 || len(f.images) != 1 || f.images[0].Names[0] != "lab/web:1" || f.images[0].ID != id {
		t.Errorf("import: %+v, %+v", r, f.images)
	}
	for args, want := range map[string]string{
		"podman lab/none:1":   "podman save lab/none:1: no such image",
		"podman lab/broken:1": "podman save lab/broken:1: the store is damaged",
		"docker lab/web:1":    "docker", // which is not there
		"rkt lab/web:1":       `"rkt" keeps no images that polyplane knows: docker or podman was expected`,
	} {
		r := run(t, f, append([]string{"image", "import", "--from"}, strings.Fields(args)...)...)
		if r.code != ExitUsage || !strings.Contains(r.err, want) || len(f.images) != 1 {
			t.Errorf("--from %s: %+v", args, r)
		}
	}

	f = &fake{}
	lab := filepath.Join(dir, "lab.yaml")
	if err := os.WriteFile(lab, []byte("network: lab\nhosts: {h1: {image: \"lab/web:1\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, f, "plan", "-f", lab); r.code != 0 || len(f.images) != 0 {
		t.Errorf("a plan: %+v, %+v", r, f.images)
	}
	r = run(t, f, "apply", "-f", lab, "--wait=false")
	if r.code != 0 || len(f.images) != 1 || f.images[0].ID != id || strings.Contains(r.err, "pulling") ||
		!strings.Contains(r.err, "image lab/web:1: from podman on this machine\n") {
		t.Errorf("an apply: %+v, %+v", r, f.images)
	}
}
