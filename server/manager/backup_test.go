package manager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
)

// Backups are made by themselves: the first once there is something to lose, the next when something has changed since
// and the newest is old enough, and not otherwise; what was made can be read and says what is there. One that cannot be
// made is told, once.
func TestBackupsAreMade(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	b := &backups{m: f.Manager, dir: filepath.Join(f.dir, "backups")}
	look := func(want int, what string) {
		t.Helper()
		b.look(t.Context(), time.Now(), backupEvery)
		if got := store.StoredBackups(b.dir); len(got) != want {
			t.Fatalf("%s: there are the backups %v, want %d", what, got, want)
		}
	}
	pass := func(age time.Duration) { // the newest is so old by now
		t.Helper()
		then := time.Now().Add(-age)
		path := store.StoredBackups(b.dir)[0]
		if err := errors.Join(os.Chtimes(path, then, then),
			os.Rename(path, store.NextBackup(b.dir, then))); err != nil {
			t.Fatal(err)
		}
	}
	look(0, "nothing to lose")
	f.apply(t, line("one", 2), model.ApplyOptions{})
	look(1, "a first network")
	f.apply(t, line("two", 2), model.ApplyOptions{})
	look(1, "a change, a moment later")
	pass(2 * backupEvery)
	look(2, "that change, when the newest is old enough")
	if newest, read := store.NewestGood(b.dir); read == nil || len(read.Networks) != 2 {
		t.Errorf("%s has the networks %+v", newest, read)
	}
	pass(backupEvery)
	look(2, "nothing has changed")
	// Their directory is not one any more.
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.apply(t, line("three", 2), model.ApplyOptions{})
	for range 3 {
		b.look(t.Context(), time.Now(), backupEvery)
	}
	if n := eventsOf(f, "BackupFailed"); n != 1 {
		t.Errorf("that no backup was made is told %d times", n)
	}
}
