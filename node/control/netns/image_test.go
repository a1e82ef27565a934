package netns

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/polyplane/polyplane/image"
	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/images"
)

// registry gives images to a test's node, and counts how often.
type registry struct {
	kept map[string][]byte
	gave atomic.Int32
	away atomic.Bool
}

func (r *registry) add(t testing.TB, run model.ImageRun, layers ...[]byte) string {
	t.Helper()
	config := Config(t, run, layers...)
	img, err := image.Open(Write(t, "i", Saved(t, "", config, layers...)))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	if r.kept == nil {
		r.kept = map[string][]byte{}
	}
	r.kept[string(img.ID)] = b.Bytes()
	return string(img.ID)
}

func (r *registry) fetch(_ context.Context, id string) (io.ReadCloser, int64, error) {
	if r.away.Load() {
		return nil, 0, errors.New("nobody is there")
	}
	r.gave.Add(1)
	return io.NopCloser(bytes.NewReader(r.kept[id])), int64(len(r.kept[id])), nil
}

// serveImages has a test's node take its images from a registry.
func (n *testNode) serveImages(t testing.TB, r *registry) {
	t.Helper()
	n.images = images.New(filepath.Join(n.dirs.Data, "images"), filepath.Join(n.dirs.Run, "images"), n.rooms, nil)
	n.images.Serve(r.fetch, n.wake)
	store := n.images
	t.Cleanup(func() {
		store.Close()
		if n.images == store {
			if err := store.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

// toolLayer is a layer with nothing but one program and its friends.
func toolLayer(t testing.TB) []byte {
	return Layer(t, File{Name: "bin/tool", Content: string(Program(t, Tool))},
		File{Name: "bin/sh", Kind: tar.TypeLink, Link: "bin/tool"},
		File{Name: "bin/su", Mode: 0o4755, Content: "x"},
		File{Name: "etc/passwd", Content: "root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/home/web:/bin/sh\n", Mode: 0o644},
		File{Name: "etc/group", Content: "root:x:0:\nstaff:x:50:web\n", Mode: 0o644},
		File{Name: "srv", Kind: tar.TypeDir, UID: 1000, GID: 1001},
		File{Name: "srv/index", Content: "first", Mode: 0o640, UID: 1000, GID: 1001},
		File{Name: "run/app", Kind: tar.TypeDir, UID: 1000})
}

// TestImages: what elements made from images are, in all of their lives.
func TestImages(t *testing.T) {
	n := newNode(t)
	var r registry
	base := toolLayer(t)
	run := model.ImageRun{User: "web", Env: []string{"GREETING=from the image", "PATH=/bin"}, WorkingDir: "/srv",
		Entrypoint: []string{"tool", "serve"}, Cmd: []string{"8080", "a b", ""}, StopSignal: "SIGQUIT"}
	first := r.add(t, run, base)
	second := r.add(t, run, base, Layer(t, File{Name: "srv/.wh.index"}, File{Name: "srv/other", Content: "second"}))
	bare := r.add(t, model.ImageRun{Cmd: []string{"/bin/tool", "serve", "80"}},
		Layer(t, File{Name: "bin/tool", Content: string(Program(t, Tool))}))
	n.serveImages(t, &r)

	jobs := append(lineOf("lab", 61, 3), lineOf("red", 62, 1)...)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software = model.Host, ""
		jobs[i].Element.Image = "lab/web:1@" + first
	}
	jobs[0].Element.Ready = &model.Readiness{TCP: 8080}
	jobs[2].Element.Image = "bare@" + bare
	id := jobs[0].ID
	r.away.Store(true)
	for _, res := range n.Apply(t.Context(), jobs) {
		if res.Err != nil && strings.Contains(res.Err.Error(), "nobody is there") {
			continue // it was found out meanwhile
		}
		if res.Phase != model.PhaseStarting || !strings.Contains(res.Message, "waits for its image") {
			t.Errorf("%s is %s: %s %v", res.ID, res.Phase, res.Message, res.Err)
		}
	}
	for { // why there is none is told, and it is tried again
		res := n.Apply(t.Context(), jobs)[0]
		if res.Err != nil {
			if !strings.Contains(res.Err.Error(), "its image lab/web:1@sha256:") ||
				!strings.Contains(res.Err.Error(), "nobody is there") {
				t.Error(res.Err)
			}
			break
		}
	}
	r.away.Store(false)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if gave := r.gave.Load(); gave != 2 {
		t.Errorf("two images were sent %d times", gave)
	}
	for _, job := range []control.Job{jobs[0], jobs[3]} { // numbers are the image's in every network
		if out := n.run(t, job.ID, "tool", "owner", "/srv/index"); out != "1000 1001 -rw-r-----\n" {
			t.Errorf("in %s a file of the image is %s", job.ID, out)
		}
	}
	if log := n.logs(t, id); !strings.Contains(log, "serving as 1000 at /srv with a b+ from the image") {
		t.Errorf("its log is\n%s", log)
	}
	if out := n.run(t, id, "tool", "id"); out != "0 0 [] /root\n" {
		t.Errorf("exec is %s", out)
	}
	if out := n.run(t, id, "tool", "env", "GREETING"); out != "from the image\n" {
		t.Errorf("exec's environment has %s", out)
	}
	if out := n.run(t, id, "tool", "owner", "/bin/su"); strings.Contains(out, "u") {
		t.Errorf("a set-user-ID program is %s", out)
	}
	if out := n.run(t, id, "tool", "owner", "/run/app"); !strings.HasPrefix(out, "1000") {
		t.Errorf("the image's /run is hidden: %s", out)
	}
	for _, gone := range []string{"/usr", "/etc/shadow", "/var/log"} {
		if status, out, _ := n.try(id, "tool", "list", gone); status == 0 {
			t.Errorf("it sees the machine's %s: %s", gone, out)
		}
	}
	if status, out, err := n.try(id, "no-such-program"); status != 127 || err != nil {
		t.Errorf("a program that is not there: status %d, %v %s", status, err, out)
	}
	for _, ro := range []string{"/run/polyplane/supervise", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"} {
		if status, _, _ := n.try(id, "tool", "write", ro, "x"); status == 0 {
			t.Errorf("it writes %s", ro)
		}
	}
	// What one writes, nobody else sees.
	n.run(t, id, "tool", "write", "/srv/index", "mine")
	n.run(t, id, "tool", "write", "/root/kept", "kept")
	if out := n.run(t, jobs[1].ID, "tool", "read", "/srv/index"); out != "first" {
		t.Errorf("another element reads %q", out)
	}
	if own, err := n.Running(t.Context(), id); err != nil || len(own.Files) != 2 || own.Files[0].Path != "/root/kept" ||
		own.Files[1].Path != "/srv/index" {
		t.Errorf("its own files are %+v, %v", own.Files, err)
	}

	// An agent that begins anew leaves all of it alone, and needs no image again.
	n.images.Close()
	n.restart(t)
	n.serveImages(t, &r)
	for _, res := range n.apply(t, jobs) {
		if res.Phase != model.PhaseRunning || len(res.Changed) > 0 {
			t.Errorf("for a new agent %s is %s (%s), having done %q", res.ID, res.Phase, res.Message, res.Changed)
		}
	}
	// What is run can be another, without a restart of the element.
	jobs[0].Element.Service = model.Service{Image: "lab/web:1@" + first, Run: "tool serve 9090 run", Start: []string{"tool write /root/began yes"},
		Env: model.Variables{"GREETING": "own"}, Ready: &model.Readiness{TCP: 9090, Command: "tool read /root/began"}}
	if said := n.awaitPhases(t, jobs, model.PhaseRunning); !slices.Equal(said, []string{"r0: what is run in it changed"}) {
		t.Errorf("another command was told as %q", said)
	}
	if log := n.logs(t, id); !strings.Contains(log, "serving as 1000 at /srv with run own") {
		t.Errorf("its log is\n%s", log)
	}
	// Commands need a shell, and an image may have none.
	jobs[2].Element.Start = []string{"tool id"}
	n.awaitPhases(t, jobs[2:3], model.PhaseFailed)
	if res := n.Apply(t.Context(), jobs)[2]; res.Err == nil || !strings.Contains(res.Err.Error(), "has no /bin/sh") {
		t.Errorf("without a shell: %v", res.Err)
	}
	jobs[2].Element.Start = nil
	// Another image: what was written inside stays, above it.
	jobs[0].Element.Image = "lab/web:2@" + second
	if said := n.awaitPhases(t, jobs, model.PhaseRunning); !slices.Contains(said,
		"r0: restarted: its command or its surroundings changed") {
		t.Errorf("another image was told as %q", said)
	}
	if out := n.run(t, id, "tool", "list", "/srv"); out != "index\nother\n" {
		t.Errorf("with another image there is %s", out)
	}
	if out := n.run(t, id, "tool", "read", "/root/kept"); out != "kept" {
		t.Errorf("what was written is %q", out)
	}
	// No image: the machine's programs, and the files that it had with these. And back.
	jobs[0].Element.Service = model.Service{Run: "sleep 1000"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if out := n.run(t, id, "sh", "-c", "ls /srv /usr/bin/env; ls /root"); out != "/usr/bin/env\n\n/srv:\n" {
		t.Errorf("without the image there is %q", out)
	}
	jobs[0].Element.Service = model.Service{Image: "lab/web:2@" + second}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if out := n.run(t, id, "tool", "read", "/root/kept"); out != "kept" {
		t.Errorf("what was written is %q", out)
	}
	// An element whose processes have ended is reached all the same.
	jobs[1].Element.Stopped = true
	n.awaitPhases(t, jobs[1:2], model.PhaseStopped)
	if linux.IsMount(n.rootfs(jobs[1].ID)) && !linux.IsMount(n.dirs.Files(jobs[1].ID)) {
		t.Error("its root is mounted without its disk")
	}
	jobs[1].Element.Stopped = false
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestHostileImage: an image whose directories are links out of it, files and pipes reaches nothing but itself, and
// neither do files that the network puts into it.
func TestHostileImage(t *testing.T) {
	n := newNode(t)
	var r registry
	n.serveImages(t, &r)
	id := r.add(t, model.ImageRun{Cmd: []string{"/bin/tool", "serve", "8080"}}, Layer(t,
		File{Name: "bin/tool", Content: string(Program(t, Tool))},
		File{Name: "etc", Kind: tar.TypeSymlink, Link: "/../../../../../../../etc"},
		File{Name: "run", Kind: tar.TypeSymlink, Link: "../../../../../../run"},
		File{Name: "tmp", Kind: tar.TypeSymlink, Link: "/proc/self/root/tmp"},
		File{Name: "var", Kind: tar.TypeSymlink, Link: "../../../../../../../../var"},
		File{Name: "proc", Content: "a file"}, File{Name: "sys", Kind: tar.TypeSymlink, Link: "nowhere"},
		File{Name: "dev", Kind: tar.TypeFifo}, File{Name: "root", Kind: tar.TypeSymlink, Link: "/etc"},
		File{Name: "srv", Kind: tar.TypeSymlink, Link: "../../../../../../../../etc"}))
	machine := func() (all []string) {
		for _, dir := range []string{"/etc", "/run/polyplane", "/var", "/tmp"} {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for _, e := range entries {
				if name := e.Name(); strings.HasPrefix(name, "given") || strings.Contains(name, "replaced") ||
					strings.Contains(name, "supervise") {
					all = append(all, dir+"/"+name)
				}
			}
		}
		name, err := os.ReadFile("/etc/hostname")
		return append(all, string(name), fmt.Sprint(err != nil))
	}
	before := machine()
	jobs := lineOf("lab", 63, 2)
	jobs[0].Element.Image, jobs[0].Element.Ready = "bad@"+id, &model.Readiness{TCP: 8080}
	jobs[0].Element.Contents = map[string]model.File{"/etc/given": {Text: "x"}, "/var/given": {Text: "x"},
		"/srv/given": {Text: "x"}, "/tmp/given": {Text: "x"}}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if now := machine(); !slices.Equal(now, before) {
		t.Errorf("on the machine there is %q, and was %q", now, before)
	}
	for _, path := range []string{"/etc/given", "/var/given"} {
		if out := n.run(t, jobs[0].ID, "tool", "read", path); out != "x" {
			t.Errorf("%s is %q", path, out)
		}
	}
	if out := n.run(t, jobs[0].ID, "tool", "read", "/etc/hostname"); out != "r0\n" {
		t.Errorf("its name is %q", out)
	}
	// What was not put anywhere, since a link is in its way, is told.
	if w := n.apply(t, jobs)[0].Warning.Message; !strings.Contains(w, "/srv/given") {
		t.Errorf("what is in the way is told as %q", w)
	}
}
