package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// Restore is one call of `polyplane restore`.
type Restore struct {
	Dirs instance.Dirs
	File string // the backup; empty: no store at all, the next start makes an empty one
	// Before reads the store that is there, and returns what it holds; nil where it cannot be read.
	Before func(context.Context) *store.Backup
	Out    io.Writer
}

// aside begins the name of a store that was replaced. unfinished marks a store that is being made.
const (
	aside      = "etcd.aside-"
	unfinished = "unfinished"
	// mostAside is how many replaced stores are kept: the newest ones, and the oldest, which is the first that somebody
	// found reason to replace.
	mostAside = 5
)

// Run puts a backup in the place of the store. It reads and verifies the backup before it changes anything, and sets
// the old store aside. What runs goes on running. It may be cut short at any moment: then one of the two stores is in
// place, whole.
func (r *Restore) Run(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("polyplane replaces its store: run it as root")
	}
	if err := CheckName(r.Dirs.Name); err != nil {
		return err
	}
	var backup *store.Backup
	if r.File != "" {
		var err error
		if backup, err = store.ReadBackup(r.File); err != nil {
			return err
		}
	}
	s, remembered, err := readSettings(r.Dirs)
	switch {
	case err != nil && (backup == nil || backup.Files[instance.SettingsFile] == nil):
		return err
	case s.Joined != nil:
		return &RefusedError{fmt.Sprintf("polyplane '%s' is a node of another instance: it has no store", r.Dirs.Name)}
	case s.URLs != "":
		return &RefusedError{fmt.Sprintf("polyplane '%s' keeps its networks in the etcd cluster %s, which others may "+
			"use: restore it by etcd's own "+
			"means (`etcdutl snapshot restore`); nodes notice that it is older and remove nothing",
			r.Dirs.Name, s.URLs)}
	}
	if !remembered {
		if err := checkAway(r.Dirs); err != nil {
			return err
		}
	}
	if _, err := instance.ReadRevoked(r.Dirs); err != nil {
		return err
	}
	if _, err := stopUnit(r.Dirs); err != nil {
		return err
	}
	l, stopped, err := takeOver(r.Dirs, politeness+5*time.Second)
	if err != nil {
		return err
	}
	defer l.release()
	if err := os.MkdirAll(r.Dirs.Data, 0o700); err != nil {
		return err
	}
	var before *store.Backup
	_, err = os.Stat(r.Dirs.Store())
	there := err == nil
	if backup != nil && there {
		before = r.Before(ctx)
	}
	kept, err := r.replace(ctx, backup)
	if err != nil {
		return err
	}
	if backup != nil {
		if err := r.putFiles(backup, remembered); err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "The store is now as it was at %s: %s.\n", backup.Time.Local().Format(time.DateTime),
			count(len(backup.Networks), "network"))
		if len(backup.Lacks) > 0 {
			fmt.Fprintf(r.Out, "It lacks %s, whose records were damaged when it was made: what nodes have of them "+
				"is held, and not removed.\n", strings.Join(backup.Lacks, ", "))
		}
		if err := r.tellTokens(backup); err != nil {
			return err
		}
		if there {
			r.tellUndone(backup, before)
		}
	} else {
		fmt.Fprintln(r.Out, "There is no store now; the next start makes an empty one.")
	}
	if kept != "" {
		fmt.Fprintf(r.Out, "The one before is kept: %s\n", kept)
	}
	if err := r.bound(); err != nil {
		fmt.Fprintf(r.Out, "Not all earlier ones that are too many could be deleted: %v\n", err)
	}
	if stopped {
		fmt.Fprintln(r.Out, "The platform's processes were ended for it. What runs goes on running.")
	}
	fmt.Fprintf(r.Out, "  %s\n", instance.Command(r.Dirs.Name, "up -d"))
	if backup == nil {
		fmt.Fprintf(r.Out, "  %s\n", instance.Command(r.Dirs.Name, "recover --from-nodes"))
	}
	return nil
}

// tellTokens tells of the backup's tokens that were revoked since: the next start of the manager takes none of them.
func (r *Restore) tellTokens(b *store.Backup) error {
	revoked, err := instance.ReadRevoked(r.Dirs)
	if err != nil {
		return err
	}
	tokens := b.Tokens()
	var names []string
	for _, t := range revoked.Apply(tokens) {
		whose := "for a host"
		if t.User != "" {
			whose = fmt.Sprintf("user %s, %s", t.User, t.Role)
		}
		names = append(names, fmt.Sprintf("%s (%s)", t.ID, whose))
	}
	if len(names) > 0 {
		fmt.Fprintf(r.Out, "Tokens that were revoked since stay revoked: %s.\n", strings.Join(names, ", "))
	}
	return nil
}

// tellUndone tells what else the backup takes back of what was decided since. Nobody can tell whether that is wanted.
func (r *Restore) tellUndone(backup, before *store.Backup) {
	if before == nil {
		fmt.Fprintln(r.Out, "The store before cannot be read, so nobody can tell what was decided since the backup. "+
			"See whether nodes are members that were removed, and look at networks, their owners, quotas, and "+
			"elements that were cut off (`node remove`, `delete`, `set owner=`, `quota`, `quarantine`).")
		return
	}
	for _, line := range backup.Undone(before) {
		fmt.Fprintf(r.Out, "%s.\n", line)
	}
}

// replace makes the new store beside the old one, and exchanges the two in one step. It returns where the old one is
// now.
func (r *Restore) replace(ctx context.Context, backup *store.Backup) (string, error) {
	at := r.Dirs.Store()
	r.sweep()
	_, err := os.Stat(at)
	there := err == nil
	beside := filepath.Join(r.Dirs.Data, aside+time.Now().UTC().Format("20060102T150405.000Z"))
	if backup == nil {
		if !there {
			return "", nil
		}
		return beside, errors.Join(os.Rename(at, beside), durable.Sync(r.Dirs.Data))
	}
	if err := store.Room(r.Dirs.Data); err != nil {
		return "", err
	}
	if err := os.Mkdir(beside, 0o700); err != nil {
		return "", err
	}
	mark := filepath.Join(beside, unfinished)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return "", err
	}
	identity := backup.Identity.Restored(backup.Revision, r.generations(backup.Identity.ID)...)
	err = store.FillEmbedded(ctx, store.EmbeddedOptions{Dir: filepath.Join(beside, "etcd"),
		Log: filepath.Join(r.Dirs.Data, "restore.log")}, backup, identity)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(beside))
	}
	fresh := filepath.Join(beside, "etcd")
	unix.Sync() // every file of it
	if !there {
		err = os.Rename(fresh, at)
	} else {
		err = unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("put the new store in its place: %w", err), os.RemoveAll(beside))
	}
	// From here on the store beside is the old one.
	err = errors.Join(os.Remove(mark), durable.Sync(r.Dirs.Data), durable.Sync(beside))
	if !there {
		return "", errors.Join(err, os.Remove(beside))
	}
	return fresh, err
}

// sweep removes stores that an interrupted call had begun to make. The mark goes only after the exchange. So a marked
// store of another generation than the store in place may also be the old one. Where that cannot be told, it is kept.
func (r *Restore) sweep() {
	marks, _ := filepath.Glob(filepath.Join(r.Dirs.Data, aside+"*", unfinished))
	for _, m := range marks {
		dir := filepath.Dir(m)
		if r.exchanged(dir) {
			os.Remove(m) //nolint:errcheck // it is only told apart again
			continue
		}
		os.RemoveAll(dir) //nolint:errcheck // it takes room and does no harm
	}
}

// bound deletes the surplus of stores that were set aside earlier. Their names are their times.
func (r *Restore) bound() error {
	paths, err := filepath.Glob(filepath.Join(r.Dirs.Data, aside+"*"))
	if err != nil || len(paths) <= mostAside {
		return err
	}
	slices.Sort(paths)
	many := paths[1 : 1+len(paths)-mostAside]
	for _, path := range many {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err == nil {
		fmt.Fprintf(r.Out, "Of stores that were set aside, the oldest and the newest %d are kept; deleted: %s\n",
			mostAside-1, strings.Join(many, ", "))
	}
	return err
}

// exchanged tells whether the store in a directory was in place before. If so, the store that is in place now was made
// later.
func (r *Restore) exchanged(dir string) bool {
	made, err := os.Stat(filepath.Join(dir, unfinished))
	if err != nil {
		return true
	}
	inside, err := birth(filepath.Join(dir, "etcd", "member"))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return err != nil || inside.Before(made.ModTime())
}

// birth is when a file was made.
func birth(path string) (time.Time, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &s); err != nil {
		return time.Time{}, err
	}
	if s.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}, errors.New("the file system does not say when files were made")
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)), nil
}

// generations returns the store's generations that this machine's nodes know.
func (r *Restore) generations(id string) []int64 {
	var all []int64
	paths, _ := filepath.Glob(filepath.Join(r.Dirs.Data, "nodes", "*", "store.json"))
	for _, path := range paths {
		var m model.StoreMemory
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &m) == nil && m.ID == id {
			all = append(all, m.Generation)
		}
	}
	return all
}

// putFiles puts back those of the backup's files that are missing, or cannot be read.
func (r *Restore) putFiles(b *store.Backup, remembered bool) error {
	_, damaged := trust.ReadAuthority(filepath.Join(r.Dirs.Data, filepath.Dir(instance.AuthorityFile)))
	sound := map[string]bool{instance.SettingsFile: remembered, instance.AuthorityFile: damaged == nil}
	for _, name := range r.Dirs.Kept() {
		content, held := b.Files[name]
		path := filepath.Join(r.Dirs.Data, name)
		_, err := os.Stat(path)
		if !held || err == nil && sound[name] {
			continue
		}
		if err := putBack(path, content); err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "%s was put back from the backup.\n", path)
	}
	return nil
}

// putBack writes a file of a backup where it was. What is there is kept beside it. It is written in one step: if a full
// disk or a power cut left half of a file, it would count as there the next time.
func putBack(path string, content []byte) error {
	if err := os.Rename(path, path+".damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, content, 0o600)
}

// examine tells in words that the store is damaged, and what to do. It returns nil if that is not what is wrong.
func (u *Up) examine(ctx context.Context) error {
	problem := u.Examine(ctx)
	if problem == nil || ctx.Err() != nil {
		return nil
	}
	d := u.Dirs
	var b strings.Builder
	fmt.Fprintf(&b, "polyplane '%s' cannot start, since its store is damaged: %s.\nWhat runs goes on running, and "+
		"nothing was changed.\n", d.Name, problem)
	if path, backup := store.NewestGood(d.Backups()); backup != nil {
		fmt.Fprintf(&b, "The newest good backup is of %s, with %s:\n  %s\n", backup.Time.Local().Format(time.DateTime),
			count(len(backup.Networks), "network"), instance.Command(d.Name, "restore "+path))
		fmt.Fprint(&b, "What it does not know is held, and not removed. Without a backup, networks can be put "+
			"together from what nodes know:\n")
	} else {
		fmt.Fprintf(&b, "There is no good backup in %s. If you have none elsewhere (`%s`), networks can be put "+
			"together from what nodes know:\n", d.Backups(), instance.Command(d.Name, "restore FILE"))
	}
	fmt.Fprintf(&b, "  %s\n  %s\n  %s", instance.Command(d.Name, "restore --empty"), instance.Command(d.Name, "up -d"),
		instance.Command(d.Name, "recover --from-nodes"))
	return errors.New(b.String())
}
