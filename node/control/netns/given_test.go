package netns

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// TestGivenFiles follows files that are put into elements: before anything is run, while it runs, where they were
// edited inside, where something else is in their place, and when the document has them no longer.
func TestGivenFiles(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 62, 3)
	id, el, plain, routed := jobs[0].ID, &jobs[0].Element, jobs[1].ID, jobs[2].ID
	binary := "\x7fELF\x00\xff"
	el.Service = model.Service{
		Start: []string{"cat /etc/app/app.conf /srv/tool | tr -d '\\000' > /root/seen"},
		Run:   "cat /etc/app/app.conf; echo \"as $$\"; exec sleep 1000",
		Contents: map[string]model.File{"/etc/app/app.conf": {Text: "first\n"}, "/srv/tool": model.FileOf([]byte(binary), "0755"),
			"/etc/hosts": {Text: "192.0.2.1 mine\n"}, "/etc/bash.bashrc": {Text: "true\n", Mode: "0600"}}}
	// Those that run nothing have files as well, and routing software is not disturbed by them.
	jobs[1].Element.Service = model.Service{Contents: map[string]model.File{"/root/notes": {Text: "notes\n"}}}
	jobs[2].Element.Software, jobs[2].Element.Config = model.SoftwareBIRD, map[string]string{"bird.conf": "protocol device {}\n"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	cat := func(id model.ID, path string) string {
		t.Helper()
		return n.run(t, id, "sh", "-c", "cat "+path+"; stat -c ' %a %u %g' "+path)
	}
	for path, want := range map[string]string{"/etc/app/app.conf": "first\n 644 0 0", "/etc/hosts": "192.0.2.1 mine\n 644 0 0",
		"/srv/tool": binary + " 755 0 0", "/root/seen": "first\n\x7fELF\xff 644 0 0", "/etc/bash.bashrc": "true\n 600 0 0"} {
		if got := strings.TrimSuffix(cat(id, path), "\n"); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := cat(plain, "/root/notes"); got != "notes\n 644 0 0\n" {
		t.Errorf("an element that runs nothing has %q", got)
	}
	apply := func(what string, want ...string) (kept string) {
		t.Helper()
		said := slices.DeleteFunc(n.awaitPhases(t, jobs, model.PhaseRunning), func(words string) bool {
			return strings.Contains(words, "link-local address") // the kernel makes them a moment after the carrier has come
		})
		if !slices.Equal(said, want) {
			t.Errorf("%s was told as %q, want %q", what, said, want)
		}
		for _, r := range n.apply(t, jobs) {
			if r.Warning != (control.Warning{}) {
				kept += r.Warning.Message + "\n"
			}
		}
		return kept
	}
	pid := func(name string) string { t.Helper(); return n.pidIn(t, id, name) }
	give := func(path, text string) {
		el.Contents = maps.Clone(el.Contents)
		el.Contents[path] = model.File{Text: text}
	}

	// Another content is there at once: the service is started again with it, and nothing else is.
	was, service := n.state(t), pid("sleep")
	supervisor := n.elements[id].process.pid
	give("/etc/app/app.conf", "second\n")
	if kept := apply("another content", "r0: what is run in it changed"); kept != "" {
		t.Errorf("nothing was edited, and told is %q", kept)
	}
	if log := n.logs(t, id); !strings.Contains(log, "\nsecond\nas ") && !strings.Contains(log, "second\nas ") {
		t.Errorf("its service has seen\n%s", log)
	}
	if now := n.elements[id].process.pid; pid("sleep") == service || now != supervisor {
		t.Errorf("its service is %s as before, or its processes are others: %d, %d", service, now, supervisor)
	}
	if got := cat(id, "/root/seen"); !strings.HasPrefix(got, "first") {
		t.Errorf("its start command was run again: %q", got)
	}
	bird := n.pidIn(t, routed, "bird")
	jobs[2].Element.Contents = map[string]model.File{"/root/x": {Text: "x"}}
	if apply("a file in a router"); n.pidIn(t, routed, "bird") != bird || cat(routed, "/root/x") != "x 644 0 0\n" {
		t.Error("a file in a router has disturbed its routing software, or is not there")
	}
	n.untouched(t, was)

	// What was edited inside stays, and is told of once the document's has changed as well; the others are written.
	n.run(t, id, "sh", "-c", "echo edited > /etc/app/app.conf")
	if kept := apply("nothing"); kept != "" {
		t.Errorf("the document has not changed, and told is %q", kept)
	}
	give("/etc/app/app.conf", "third\n")
	give("/etc/app/other.conf", "other\n")
	for range 2 {
		n.restart(t)
		n.awaitPhases(t, jobs, model.PhaseRunning)
		if kept := apply("nothing"); !strings.Contains(kept, "keeps its own files: /etc/app/app.conf was edited inside") {
			t.Errorf("what was kept is told as %q", kept)
		}
	}
	if cat(id, "/etc/app/app.conf") != "edited\n 644 0 0\n" || cat(id, "/etc/app/other.conf") != "other\n 644 0 0\n" {
		t.Errorf("the edited one is %q, the other one %q", cat(id, "/etc/app/app.conf"), cat(id, "/etc/app/other.conf"))
	}
	el.Restarts++
	if apply("a restart", "r0: restarted: as requested"); cat(id, "/etc/app/app.conf") != "edited\n 644 0 0\n" {
		t.Error("a restart has overwritten what was edited")
	}
	service = pid("sleep")
	el.Overwrites++
	apply("an overwrite", "r0: its service is started again, since files of it were overwritten")
	if got := cat(id, "/etc/app/app.conf"); got != "third\n 644 0 0\n" {
		t.Errorf("overwritten, it is %q", got)
	}
	another := pid("sleep") // the one before may still be ending
	for end := time.Now().Add(3 * time.Minute); (another == "" || another == service) && time.Now().Before(end); {
		another = pid("sleep")
	}
	if another == "" || another == service {
		t.Errorf("the service was process %s and is %q", service, another)
	}

	// Whoever wrote files and ended before it had the service started again leaves that to the next.
	seeds, err := n.readSeeds(id)
	if seeds.Planted++; err != nil || seeds.Planted < 2 {
		t.Fatalf("noted is that files were written %d times while it ran (%v)", seeds.Planted, err)
	}
	if err := n.writeSeeds(id, seeds); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	apply("what another had begun", "r0: its service is started again, since files of it were overwritten")
	// A file that a program has made its own by writing zeros into it is an edited one, at a start as well.
	n.run(t, id, "sh", "-c", "printf 'page\\0one' > /etc/app/other.conf")
	el.Restarts++
	apply("a restart", "r0: restarted: as requested")
	if got := cat(id, "/etc/app/other.conf"); got != "page\x00one 644 0 0\n" {
		t.Errorf("what a program wrote is %q", got)
	}

	// What is in the way is kept as well, and so is what was made before; what is no more in the document goes unless edited.
	n.run(t, id, "sh", "-c", "echo x > /root/way; echo mine > /root/mine; ln -s /etc/shadow /root/link; mkdir /root/dir; "+
		"echo edited > /etc/app/other.conf")
	give("/root/way/file", "f\n")
	give("/root/mine", "f\n")
	give("/root/link", "f\n")
	give("/root/dir", "f\n")
	el.Contents = maps.Clone(el.Contents)
	delete(el.Contents, "/etc/app/other.conf")
	delete(el.Contents, "/srv/tool")
	apply("what cannot be written", "r0: what is run in it changed")
	if kept := apply("nothing"); !strings.Contains(kept, "/root/dir, /root/link, /root/mine, /root/way/file was edited") {
		t.Errorf("what is in the way is told as %q", kept)
	}
	if got := n.run(t, id, "sh", "-c", "cat /root/mine /root/way /etc/app/other.conf; ls /srv; readlink /root/link"); got !=
		"mine\nx\nedited\n/etc/shadow\n" {
		t.Errorf("there is %q", got)
	}
	el.Overwrites++
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for _, path := range []string{"/root/way/file", "/root/mine", "/root/link", "/root/dir"} {
		if got := cat(id, path); got != "f\n 644 0 0\n" {
			t.Errorf("overwritten, %s is %q", path, got)
		}
	}
	if shadow, err := os.ReadFile("/etc/shadow"); err == nil && string(shadow) == "f\n" {
		t.Fatal("a link of the element's has led to the machine's own files")
	}
	// Given files are no work of the element's owner; edited ones are.
	r, err := n.Running(t.Context(), id)
	for _, f := range r.Files {
		if _, given := el.Contents[f.Path]; given || err != nil {
			t.Errorf("%s was given to it, and is told as its own (%v)", f.Path, err)
		}
	}
	if !slices.ContainsFunc(r.Files, func(f model.OwnFile) bool { return f.Path == "/etc/app/other.conf" }) {
		t.Errorf("its own files are %v", r.Files)
	}
	// What was deleted inside comes back at the next start.
	n.run(t, id, "rm", "/root/mine")
	el.Restarts++
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if got := cat(id, "/root/mine"); got != "f\n 644 0 0\n" {
		t.Errorf("what was deleted inside is %q", got)
	}
	if _, err := os.Stat(filepath.Join(n.rootfs(id), "root/mine")); err != nil {
		t.Error(err)
	}
}

// TestGivenFilesAreNotHalfNoted: where writing fails in the middle, what was written before is noted as written, and
// nothing is left of what was not.
func TestGivenFilesAreNotHalfNoted(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := &elementFiles{root: root}
	long := "/" + strings.Repeat("x", 250) // too long with what is added while it is written
	plan := software.Plan{Contents: contentsOf("/a/b", "second", "/c", "second", long, "second", "/z", "second")}
	s := seeding{seeds: seeds{Given: map[string]string{}}}
	for _, file := range contentsOf("/a/b", "first", "/z", "first", "/gone", "first") {
		if err := f.writeGiven(&file); err != nil {
			t.Fatal(err)
		}
		s.seeds.Given[file.Path] = markOf(&file)
	}
	before := maps.Clone(s.seeds.Given)
	p, err := f.plant(t.Context(), &plan, &s, &treesOf{}, true)
	if err != nil || len(p.write) != 4 || !slices.Equal(p.remove, []string{"/gone"}) || p.kept != nil {
		t.Fatalf("to be done is %+v (%v)", p, err)
	}
	if err := f.carryOut(&p, s.seeds.Given); err == nil || !strings.Contains(err.Error(), "write /xxx") {
		t.Fatalf("it has ended with %v", err)
	}
	want := map[string]string{"/a/b": markOf(&plan.Contents[0]), "/c": markOf(&plan.Contents[1]), "/z": before["/z"]}
	if !maps.Equal(s.seeds.Given, want) {
		t.Errorf("noted is %v, want %v", s.seeds.Given, want)
	}
	// With a third content, nothing of it counts as edited inside.
	plan.Contents = contentsOf("/a/b", "third", "/c", "third", "/z", "third")
	if p, err := f.plant(t.Context(), &plan, &s, &treesOf{}, true); err != nil || p.kept != nil || len(p.write) != 3 {
		t.Errorf("to be done then is %+v (%v)", p, err)
	} else if err := f.carryOut(&p, s.seeds.Given); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(root.Name())
	if names := fmt.Sprint(entries); err != nil || len(entries) != 3 {
		t.Errorf("left is %s (%v)", names, err)
	}
}

// contentsOf are files by path and content.
func contentsOf(all ...string) (files []software.File) {
	for pair := range slices.Chunk(all, 2) {
		files = append(files, software.File{Path: pair[0], Content: pair[1], Mode: 0o644, Owner: "root", Group: "root"})
	}
	return files
}
