package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// Examine tells what is wrong with an embedded store that nobody uses: an error that names the file, or nil. It changes
// nothing in the store. A damaged store may end the process that reads it. So call it in a child, whose last words say
// what it was doing.
func Examine(ctx context.Context, dir string, doing func(string)) error {
	if err := examineFiles(dir, doing); err != nil {
		return err
	}
	doing("start etcd on a copy of " + dir)
	return examineCopy(ctx, dir)
}

// examineFiles reads the files as etcd and bbolt do when they open them.
func examineFiles(dir string, doing func(string)) error {
	member := filepath.Join(dir, "member")
	db, logs := filepath.Join(member, "snap", "db"), filepath.Join(member, "wal")
	for _, path := range []string{member, db, logs} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is missing", path)
		}
	}
	doing("read the write-ahead log " + logs)
	if err := examineLog(member, logs); err != nil {
		return err
	}
	doing("read the database " + db)
	if err := examineDatabase(db); err != nil {
		return fmt.Errorf("the database %s is damaged: %w", db, err)
	}
	return nil
}

// examineLog checks the sums of the write-ahead log from the newest snapshot on, which is where etcd begins to read it.
func examineLog(member, logs string) error {
	segments, _ := filepath.Glob(filepath.Join(logs, "*.wal"))
	if len(segments) == 0 {
		return fmt.Errorf("the write-ahead log %s is empty", logs)
	}
	quiet := zap.NewNop()
	known, err := wal.ValidSnapshotEntries(quiet, logs)
	if err != nil {
		return fmt.Errorf("the write-ahead log %s is damaged: %w", logs, err)
	}
	newest, err := snap.New(quiet, filepath.Join(member, "snap")).LoadNewestAvailable(known)
	if err != nil && !errors.Is(err, snap.ErrNoSnapshot) {
		return fmt.Errorf("the snapshots in %s are damaged: %w", filepath.Join(member, "snap"), err)
	}
	from := known[0]
	for _, k := range known {
		if newest != nil && k.GetIndex() == newest.GetMetadata().GetIndex() {
			from = k
		}
	}
	if _, err := wal.Verify(quiet, logs, from); err != nil {
		return fmt.Errorf("the write-ahead log %s is damaged: %w", logs, err)
	}
	return nil
}

// examineDatabase has bbolt check each page. bbolt panics where a page makes no sense.
func examineDatabase(path string) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errors.New("it is empty")
	}
	debug.SetPanicOnFault(true) // what was cut off is read from beyond the file's end
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		var first error
		for problem := range tx.Check() {
			if first == nil {
				first = problem
			}
		}
		if first == nil && tx.Bucket([]byte("key")) == nil {
			first = errors.New("it has no keys")
		}
		return first
	})
}

// examineCopy starts etcd, as the manager does, and reads everything.
func examineCopy(ctx context.Context, dir string) error {
	return withCopy(ctx, dir, func(s *Store) error {
		_, _, _, err := s.Load(ctx)
		return err
	})
}

// BackupUnused writes a backup of an embedded store that nobody uses, and changes nothing in the store. A damaged store
// may end the process that reads it. So call it in a child.
func BackupUnused(ctx context.Context, dir, path string) error {
	if err := examineFiles(dir, func(string) {}); err != nil { // etcd would make some of it anew, and be empty
		return err
	}
	return withCopy(ctx, dir, func(s *Store) error {
		if _, _, _, err := s.Load(ctx); err != nil {
			return err
		}
		return WriteFile(path, func(w io.Writer) error {
			_, err := s.WriteBackup(ctx, w, BackupHeader{Time: time.Now()}, nil)
			return err
		})
	})
}

// withCopy starts etcd on a copy of a store.
func withCopy(ctx context.Context, dir string, f func(*Store) error) error {
	SweepExamined(dir)
	copied, err := os.MkdirTemp(filepath.Dir(dir), examinedName)
	if err != nil {
		return err
	}
	defer os.RemoveAll(copied)
	at := filepath.Join(copied, "etcd")
	if out, err := exec.Command("cp", "-a", "--sparse=always", dir, at).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the store: %w: %s", err, strings.TrimSpace(string(out)))
	}
	s, err := OpenEmbedded(ctx, EmbeddedOptions{Dir: at})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// examinedName is what copies of stores begin with.
const examinedName = "examined-"

// ExaminedBackup is where a backup of a store can be for a moment: SweepExamined removes it.
func ExaminedBackup(dir string) string {
	return filepath.Join(filepath.Dir(dir), examinedName+"backup")
}

// SweepExamined removes the copies of a store that examinations have left which ended with their process.
func SweepExamined(dir string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), examinedName+"*")) // the pattern is right
	for _, path := range left {
		os.RemoveAll(path) //nolint:errcheck // it takes room and does no harm
	}
}
