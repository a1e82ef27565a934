package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
)

// How often the manager checks whether the store has changed since the last automatic backup, and how old that backup
// must be at least.
const (
	backupLook  = 30 * time.Second
	backupEvery = 10 * time.Minute
)

// Backup writes a backup of everything that the instance cannot do without: the store, and the files beside it.
func (m *Manager) Backup(ctx context.Context, w io.Writer) (int64, error) {
	files := map[string][]byte{}
	for _, name := range m.dirs.Kept() {
		b, err := os.ReadFile(filepath.Join(m.dirs.Data, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("make a backup: %w", err)
		}
		files[name] = b
	}
	return m.store.WriteBackup(ctx, w, store.BackupHeader{Instance: m.dirs.Name, Time: time.Now().UTC()}, files)
}

// backups makes automatic backups of a store that has changed.
type backups struct {
	m      *Manager
	dir    string
	at     int64 // the store's revision in the newest
	failed string
	lacks  string     // networks that the newest is without
	mu     sync.Mutex // held over a look; guards what stands above. The manager's is taken under it.
}

// run looks again and again until the context ends.
func (b *backups) run(ctx context.Context) {
	tick := time.Tick(backupLook)
	for {
		b.look(ctx, time.Now(), backupEvery)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// look makes a backup if there are networks, something has changed, and the newest backup is old enough.
func (b *backups) look(ctx context.Context, now time.Time, age time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m.mu.RLock()
	revision, networks := b.m.revision, len(b.m.networks)
	b.m.mu.RUnlock()
	if networks == 0 || revision == b.at {
		return
	}
	if newest := store.StoredBackups(b.dir); len(newest) > 0 {
		// A backup with a time in the future was made while the clock was wrong, and says nothing.
		if info, err := os.Stat(newest[0]); err == nil && !info.ModTime().After(now) && now.Sub(info.ModTime()) < age {
			return
		}
	}
	err := b.make(ctx, now)
	switch {
	case err == nil:
		b.at, b.failed = revision, ""
	case ctx.Err() == nil && err.Error() != b.failed:
		b.failed = err.Error()
		slog.Warn("no backup was made", "error", err)
		b.m.event(model.Warning, "manager", "BackupFailed", "no backup was made: "+b.failed, "")
	}
}

// make makes a backup, and removes those that need not be kept any longer.
func (b *backups) make(ctx context.Context, now time.Time) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	if err := store.Room(b.dir); err != nil {
		return err
	}
	path := store.NextBackup(b.dir, now)
	err := store.WriteFile(path, func(w io.Writer) error {
		_, err := b.m.Backup(ctx, w)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	is, err := store.ReadBackup(path)
	if err != nil {
		return err
	}
	if lacks := strings.Join(is.Lacks, ", "); lacks != b.lacks {
		if b.lacks = lacks; lacks != "" {
			b.m.event(model.Warning, "manager", "BackupIncomplete", "backups are made without "+lacks+
				", since their records in the store are damaged; the newest backup that has all is kept", "")
		}
	}
	return store.PruneBackups(b.dir)
}
