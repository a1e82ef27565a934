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

// PruneBackups removes those that are no longer kept, and what is left of those that were cut short. If the newest lack
// networks whose records were damaged, the newest of those that lack nothing stays. Nobody makes one meanwhile.
func PruneBackups(dir string) error {
	parts, _ := filepath.Glob(filepath.Join(dir, backupName+"*"+backupSuffix+partSuffix)) // the pattern is right
	for _, path := range parts {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove what is left of a backup: %w", err)
		}
	}
	days, complete := map[string]bool{}, false
	for i, path := range StoredBackups(dir) {
		t, ok := timeOfBackup(path)
		if !ok {
			continue // not ours
		}
		day := t.Format(time.DateOnly)
		keep := i < lastBackups || !days[day] && len(days) < dailyBackups
		days[day] = true
		if !complete {
			header, err := headerOf(path)
			complete = err == nil && len(header.Lacks) == 0
			keep = keep || complete
		}
		if keep {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
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
