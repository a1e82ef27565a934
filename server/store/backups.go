package store

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Backups that are made by themselves: the last few, and the last of each of the last days.
const (
	lastBackups  = 5
	dailyBackups = 7
	backupName   = "auto-"
	backupSuffix = ".backup"
	backupTime   = "20060102T150405Z"
)

// NextBackup is the path of a backup that is made by itself now.
func NextBackup(dir string, now time.Time) string {
	return filepath.Join(dir, backupName+now.UTC().Format(backupTime)+backupSuffix)
}

// futureBackup is how far before now's a backup's time may be.
const futureBackup = time.Minute

// StoredBackups lists the backups in a directory, the newest first. Those of a time that has not come are the last:
// they were made while the clock went wrong, and those since then are newer.
func StoredBackups(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, backupName+"*"+backupSuffix)) // the pattern is right
	slices.Sort(paths)
	slices.Reverse(paths)
	soon := time.Now().Add(futureBackup)
	slices.SortStableFunc(paths, func(a, b string) int {
		x, _ := timeOfBackup(a)
		y, _ := timeOfBackup(b)
		switch {
		case x.After(soon) == y.After(soon):
			return 0
		case x.After(soon):
			return 1
		}
		return -1
	})
	return paths
}

// timeOfBackup is when one was made, by its name.
func timeOfBackup(path string) (time.Time, bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), backupName), backupSuffix)
	t, err := time.Parse(backupTime, name)
	return t, err == nil
}

// otherStores is of how many other stores than the newest backup's the last few backups are kept: whoever began with an
// empty store may want the one before back.
const otherStores = 4

// PruneBackups removes those that are no longer kept, and what is left of those that were cut short. If the newest lack
// networks whose records were damaged, the newest of those that lack nothing stays. What is kept of a store does not
// depend on what others have. Nobody makes one meanwhile.
func PruneBackups(dir string) error {
	parts, _ := filepath.Glob(filepath.Join(dir, backupName+"*"+backupSuffix+partSuffix)) // the pattern is right
	for _, path := range parts {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove what is left of a backup: %w", err)
		}
	}
	stores := map[string]*keptOf{} // by identity
	for _, path := range StoredBackups(dir) {
		t, ok := timeOfBackup(path)
		if !ok {
			continue // not ours
		}
		header, err := headerOf(path)
		of := stores[header.Identity.ID]
		if of == nil {
			of = &keptOf{number: len(stores), days: map[string]bool{}}
			stores[header.Identity.ID] = of
		}
		if of.keep(t, err == nil && len(header.Lacks) == 0) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}

// keptOf is what is kept of one store's backups.
type keptOf struct {
	number   int // of other stores whose newest is newer
	count    int
	days     map[string]bool
	complete bool // one that lacks nothing is kept
}

// keep tells whether the next older one stays.
func (k *keptOf) keep(t time.Time, complete bool) bool {
	day := t.Format(time.DateOnly)
	keep := k.count < lastBackups || k.number == 0 && !k.days[day] && len(k.days) < dailyBackups ||
		complete && !k.complete
	k.count++
	k.days[day], k.complete = true, k.complete || complete
	return keep && k.number <= otherStores
}

// NewestGood is the newest backup in a directory that is whole; nil where there is none.
func NewestGood(dir string) (path string, b *Backup) {
	return newestGood(dir, func(*Backup) bool { return true })
}

// NewestGoodOf is the newest backup in a directory that is whole and has a network; nil where there is none.
func NewestGoodOf(dir, network string) (path string, b *Backup) {
	return newestGood(dir, func(b *Backup) bool { return slices.Contains(b.Networks, network) })
}

func newestGood(dir string, serves func(*Backup) bool) (path string, b *Backup) {
	for _, path := range StoredBackups(dir) {
		if b, err := ReadBackup(path); err == nil && serves(b) {
			return path, b
		}
	}
	return "", nil
}

// headerOf reads only the beginning of a backup.
func headerOf(path string) (h BackupHeader, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return h, err
	}
	return h, json.NewDecoder(io.LimitReader(z, mostInBackup)).Decode(&h)
}
