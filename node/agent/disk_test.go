package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

func TestDiskIsLow(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		disk, free uint64
		want       bool
	}{
		{300 * mib, 76 * mib, false}, {300 * mib, 74 * mib, true}, // a fourth of a small disk
		{2 * gib, 257 * mib, false}, {2 * gib, 255 * mib, true},
		{100 * gib, 11 * gib, false}, {100 * gib, 9 * gib, true},
		{1000 * gib, 21 * gib, false}, {1000 * gib, 19 * gib, true},
	} {
		if got := isLow(c.disk, c.free); got != c.want {
			t.Errorf("disk %d, free %d: low is %v", c.disk, c.free, got)
		}
	}
}

// takers is a driver whose elements take room.
type takers struct {
	control.Driver
	takes map[model.ID]model.Bytes
}

func (x *takers) Takes(context.Context) map[model.ID]model.Bytes { return x.takes }

// Before a disk is full, an event names who takes most of it. Each time half of what is left is used up there is
// another, and none while it stays as it is or gets a little better.
func TestLowDiskIsTold(t *testing.T) {
	x := &takers{takes: map[model.ID]model.Bytes{{Network: "atk", Element: "a"}: 234 << 20,
		{Network: "duo", Element: "h1"}: 3 << 20}}
	a := &Agent{Config: Config{Dirs: instance.NodeDirs{Node: "n1", Data: "/data"},
		Drivers: Drivers{Controls: map[model.Control]control.Driver{"x": x}}},
		reporter: newReporter(nil, "n1", slog.Default())}
	var told lowDisk
	now := time.Now()
	for _, c := range []struct {
		free   uint64 // MiB
		events int
	}{
		{200, 0}, {74, 1}, {60, 1}, {80, 1}, {70, 1}, {36, 2}, {1, 3}, {0, 4}, {0, 4}, {100, 4}, {70, 5},
	} {
		now = now.Add(diskLook)
		a.tellDisk(t.Context(), &told, 300<<20, c.free<<20, now)
		if got := len(a.reporter.events); got != c.events {
			t.Fatalf("at %d MiB: %d events, want %d: %v", c.free, got, c.events, a.reporter.events)
		}
	}
	e := a.reporter.events[0]
	for _, words := range []string{"74MiB of 300MiB are free", "/data", "atk/a takes most of it, 234MiB"} {
		if !strings.Contains(e.Message, words) {
			t.Errorf("%q is missing in %q", words, e.Message)
		}
	}
	if e.Object != "n1" || e.Reason != "DiskLow" || e.Severity != model.Warning {
		t.Errorf("%+v", e)
	}
}

// What is thrown away while the disk is nearly full is deleted at the next look at the disk, and not only at that at
// the trash.
func TestTrashGivesWayToAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, "size=20m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // a temporary directory of this test's
	if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 19<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	x := &thrown{items: []model.TrashItem{{ID: "atk/a", Time: time.Now(), Size: 1 << 20}}}
	a := &Agent{Config: Config{Dirs: instance.NodeDirs{Node: "n1", Data: disk}, Log: slog.Default(),
		Drivers: Drivers{Controls: map[model.Control]control.Driver{"x": &thrower{thrown: x,
			emptied: make(chan struct{})}}}}, reporter: newReporter(nil, "n1", slog.Default())}
	driver := a.Drivers.Controls["x"].(*thrower)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	began := time.Now()
	go func() { ended <- a.tendDisk(ctx) }()
	<-driver.emptied // with what was there when the agent began
	driver.mu.Lock()
	driver.emptied = make(chan struct{})
	again := driver.emptied
	x.items = []model.TrashItem{{ID: "atk/b", Time: time.Now(), Size: 1 << 20}}
	driver.mu.Unlock()
	<-again
	if took := time.Since(began); took >= trashLook {
		t.Errorf("it took %v", took)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// thrower is a driver with a trash, which tells when it was emptied.
type thrower struct {
	control.Driver
	*thrown
	mu      sync.Mutex
	emptied chan struct{}
}

func (x *thrower) Trashed(ctx context.Context) ([]model.TrashItem, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.items), nil
}

func (x *thrower) EmptyTrash(ctx context.Context, ids []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.emptied)
	return x.thrown.EmptyTrash(ctx, ids)
}
