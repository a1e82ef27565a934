package netns

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// TestMachineDiskStaysFree: three elements get files at the same time that the machine's disk has room for twice. What
// is to stay free of it does. The third says what is missing, in words that do not change, and gets them by itself once
// there is room.
func TestMachineDiskStaysFree(t *testing.T) {
	n := newNodeWith(t, "300m")
	var r registry
	n.serveImages(t, &r)
	data := make([]byte, 60<<20)
	rand.NewChaCha8([32]byte{1}).Read(data) //nolint:errcheck // never fails
	tree := r.addFiles(t, map[string]string{"data": string(data)})
	jobs := lineOf("lab", 64, 3)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
		jobs[i].Element.Disk = 200 << 20
		jobs[i].Element.Service = model.Service{Contents: map[string]model.File{"/srv": tree}}
	}
	running, said := 0, map[string]bool{}
	for rounds := 0; running < 2 || rounds < 5; rounds++ {
		running = 0
		for _, res := range n.Apply(t.Context(), jobs) {
			if res.Phase == model.PhaseRunning {
				running++
			}
			if res.Err != nil {
				said[res.Err.Error()] = true
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d run: %v", running, said)
		}
		if running < 2 {
			rounds = 0
		}
	}
	room, err := linux.RoomAt(n.dirs.Data)
	if err != nil || running != 2 || room.Free < room.Spare() {
		t.Errorf("%d run, and %d MiB of %d are free; %v", running, room.Free>>20, room.Size>>20, err)
	}
	if len(said) == 0 {
		t.Error("nothing tells what is missing")
	}
	for words := range said {
		if !strings.Contains(words, "the machine's disk is too full: the files that are put into it take 60MiB, and 75MiB must "+
			"stay free: make room in "+n.dirs.Data) {
			t.Errorf("what is missing is told as %q", words)
		}
	}
	if err := unix.Mount("", filepath.Dir(filepath.Dir(n.dirs.Data)), "", unix.MS_REMOUNT, "size=500m"); err != nil {
		t.Fatal(err)
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
}
