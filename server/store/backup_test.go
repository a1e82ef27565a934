package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// recordOf is a network's record with something in it.
func recordOf(name string, revision int64, elements int) model.Record {
	r := model.Record{Network: model.Network{Name: name}, Revision: revision, Assigned: model.Assigned{Index: 7}}
	for i := range elements {
		r.Network.Elements = append(r.Network.Elements, model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router})
	}
	return r
}

// backupOf writes a backup of a store into a file and reads it.
func backupOf(t *testing.T, s *Store, path string) *Backup {
	t.Helper()
	err := WriteFile(path, func(w io.Writer) error {
		_, err := s.WriteBackup(t.Context(), w, BackupHeader{Instance: "test", Time: time.Now()},
			map[string][]byte{"settings.json": []byte("{}")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadBackup(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Backups are of one moment while others write, and a store made out of one has all of it and the next generation.
func TestBackupUnderWritesAndBack(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: dir + "/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutQuotas(t.Context(), model.Quotas{}); err != nil {
		t.Fatal(err)
	}
	// Two networks are always written together, so that they are of one revision at every moment.
	stop, done := make(chan struct{}), sync.WaitGroup{}
	writes := 0
	done.Go(func() {
		for revision := int64(1); ; revision++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Put(context.Background(), recordOf("one", revision, int(revision%50)),
				recordOf("two", revision, int(revision%70))); err != nil {
				t.Error(err)
				return
			}
			writes++
		}
	})
	var last *Backup
	for i := range 20 {
		b := backupOf(t, s, filepath.Join(dir, fmt.Sprintf("b%d", i)))
		if len(b.Networks) == 0 {
			continue
		}
		last = b
		one, two := string(b.Keys["networks/one"]), string(b.Keys["networks/two"])
		if at := func(p string) string {
			_, rest, _ := strings.Cut(p, `"revision":`)
			n, _, _ := strings.Cut(rest, ",")
			return n
		}; at(one) != at(two) {
			t.Fatalf("a backup of two moments: %s, %s", one, two)
		}
	}
	close(stop)
	done.Wait()
	if writes < 20 || last == nil {
		t.Fatalf("only %d writes", writes)
	}
	identity := last.Identity.Restored(last.Revision)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := FillEmbedded(t.Context(), EmbeddedOptions{Dir: dir + "/back"}, last, identity); err != nil {
		t.Fatal(err)
	}
	back, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: dir + "/back"})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	records, damaged, _, err := back.Load(t.Context())
	if err != nil || len(records) != 2 || len(damaged) != 0 {
		t.Fatalf("%d records, %v, %v", len(records), damaged, err)
	}
	is := back.Identity()
	if is.ID != last.Identity.ID || is.Generation != 2 || len(is.Ended) != 1 || is.Ended[0] != last.Revision {
		t.Fatalf("%+v out of %+v at %d", is, last.Identity, last.Revision)
	}
	again := backupOf(t, back, filepath.Join(dir, "again"))
	delete(again.Keys, "documents/identity")
	delete(last.Keys, "documents/identity")
	if !again.Equal(last) {
		t.Error("a backup of the restored store is not what it was made out of")
	}
}

// A backup that is damaged anywhere is refused.
func TestDamagedBackupIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: dir + "/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), recordOf("net", 1, 200)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "b")
	backupOf(t, s, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for i := range 400 {
		spoilt := bytes.Clone(whole)
		switch {
		case i%4 == 0:
			spoilt = spoilt[:random.IntN(len(spoilt))]
		case i%4 == 1:
			clear(spoilt[random.IntN(len(spoilt)):])
		default:
			spoilt[random.IntN(len(spoilt))] ^= 1 << random.IntN(8)
		}
		b, err := readBackup(bytes.NewReader(spoilt))
		if err == nil && !bytes.Equal(spoilt, whole) { // a bit of gzip's header that says nothing
			good, _ := readBackup(bytes.NewReader(whole))
			if !b.Equal(good) {
				t.Fatalf("%d: a damaged backup was accepted", i)
			}
			accepted++
		}
	}
	if accepted > 20 {
		t.Errorf("%d of 400 were accepted", accepted)
	}
}

// A disk that is full, or a store that fails, leaves no backup and takes none away.
func TestBackupThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "small", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer exec.Command("umount", dir).Run()
	path := filepath.Join(dir, "b")
	if err := os.WriteFile(path, []byte("the one before"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir() + "/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noise := make([]byte, 200<<10)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range noise {
		noise[i] = byte('a' + random.IntN(26))
	}
	big := recordOf("net", 1, 1)
	big.Network.Elements[0].Config = map[string]string{"frr.conf": string(noise)}
	if _, err := s.Put(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(io.Writer) error{
		func(w io.Writer) error { _, err := s.WriteBackup(t.Context(), w, BackupHeader{}, nil); return err },
		func(w io.Writer) error {
			_, err := w.Write([]byte("half"))
			return errors.Join(err, errors.New("gone"))
		},
		func(w io.Writer) error { _, err := w.Write([]byte("not a backup")); return err },
	} {
		if err := WriteFile(path, f); err == nil {
			t.Error("a backup was written that cannot be")
		}
		entries, _ := os.ReadDir(dir)
		if b, _ := os.ReadFile(path); string(b) != "the one before" || len(entries) != 1 {
			t.Errorf("what was there is %q, beside it %d files", b, len(entries)-1)
		}
	}
}

func TestBackupsThatAreKept(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for hours := range 24 * 12 {
		if err := os.WriteFile(NextBackup(dir, now.Add(-time.Duration(hours)*time.Hour)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "mine.backup")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := PruneBackups(dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range StoredBackups(dir) {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(p), "auto-202611"), "0000Z.backup"))
	}
	want := "22T12 22T11 22T10 22T09 22T08 21T23 20T23 19T23 18T23 17T23 16T23"
	if strings.Join(got, " ") != want {
		t.Errorf("kept %v, want %s", got, want)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("somebody's own file was removed")
	}
}

// While backups lack networks, the newest one that lacks nothing stays.
func TestTheLastCompleteBackupStays(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var complete []string
	for hours := range 10 {
		path := NextBackup(dir, now.Add(-time.Duration(hours)*time.Minute))
		var lacks []string
		if hours < 7 {
			lacks = []string{"lab"}
		} else {
			complete = append(complete, path)
		}
		if err := WriteFile(path, func(w io.Writer) error {
			out := newBackupWriter(w)
			out.line(BackupHeader{Format: backupFormat, Layout: backupLayout, Lacks: lacks})
			return out.end()
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := PruneBackups(dir); err != nil {
			t.Fatal(err)
		}
		all := StoredBackups(dir)
		if len(all) != 6 || all[5] != complete[0] {
			t.Fatalf("kept %v, want five and %s", all, complete[0])
		}
	}
}

// Whoever begins with an empty store does not lose the backups of the one before, however many are made of the new one;
// of many stores the last ones' are kept.
func TestBackupsOfOtherStoresStay(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().UTC().Truncate(time.Second).Add(-48 * time.Hour)
	of := map[string]string{} // by path
	write := func(id string, count int) {
		t.Helper()
		for range count {
			now = now.Add(10 * time.Minute)
			path := NextBackup(dir, now)
			if err := WriteFile(path, func(w io.Writer) error {
				out := newBackupWriter(w)
				out.line(BackupHeader{Format: backupFormat, Layout: backupLayout, Identity: model.StoreIdentity{ID: id}})
				return out.end()
			}); err != nil {
				t.Fatal(err)
			}
			of[path] = id
			if err := PruneBackups(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func() map[string]int {
		counts := map[string]int{}
		for _, path := range StoredBackups(dir) {
			counts[of[path]]++
		}
		return counts
	}
	write("old", 8)
	write("new", 20)
	if got := kept(); got["old"] != lastBackups || got["new"] < lastBackups {
		t.Errorf("kept are %v", got)
	}
	for i := range 6 {
		write(fmt.Sprint(i), 1)
	}
	if got := kept(); len(got) != 1+otherStores || got["old"] != 0 || got["1"] != 1 {
		t.Errorf("of seven later stores kept are %v", got)
	}
}

// Backups of a time that has not come, made while the clock went wrong, neither push out newer ones nor count as the
// newest.
func TestBackupsOfTheFuture(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().UTC().Truncate(time.Second)
	make := func(at time.Time) string {
		path := NextBackup(dir, at)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for hours := range 12 {
		make(now.Add(time.Duration(24*365+hours) * time.Hour))
	}
	make(now.Add(-3 * time.Hour))
	newest := make(now)
	left := filepath.Join(dir, "auto-20260101T000000Z.backup.part")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := PruneBackups(dir); err != nil {
		t.Fatal(err)
	}
	all := StoredBackups(dir)
	if len(all) < 2 || all[0] != newest {
		t.Errorf("the newest is not first of %v", all)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what is left of a backup that was cut short stays for ever")
	}
}

// TestExamineChild is the child of TestDamagedStoreIsTold: what is damaged may end it.
func TestExamineChild(t *testing.T) {
	dir := os.Getenv("EXAMINE_STORE")
	if dir == "" {
		return // only as a child
	}
	if err := Examine(t.Context(), dir, func(string) {}); err != nil {
		fmt.Println("damaged:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

// TestDamagedStoreIsTold spoils stores at random places: whenever what etcd would serve is not what was written, or it
// serves nothing, the examination says so (or dies of it, which says the same).
func TestDamagedStoreIsTold(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: dir + "/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if _, err := s.Put(t.Context(), recordOf(fmt.Sprintf("net%d", i%6), int64(i+1), 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	child := func(at string) (told bool, words string) {
		c := exec.Command(os.Args[0], "-test.run", "^TestExamineChild$")
		c.Env = append(os.Environ(), "EXAMINE_STORE="+at)
		out, err := c.CombinedOutput()
		return err != nil, string(out)
	}
	if told, words := child(dir + "/etcd"); told {
		t.Fatalf("a sound store is said to be damaged: %s", words)
	}
	wal := func(at string) string { f, _ := filepath.Glob(at + "/member/wal/*.wal"); return f[len(f)-1] }
	db := func(at string) string { return at + "/member/snap/db" }
	edit := func(path func(string) string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, at string) {
			b, err := os.ReadFile(path(at))
			if err == nil {
				err = os.WriteFile(path(at), f(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	random := rand.New(rand.NewPCG(11, 22))
	spoil := map[string]func(*testing.T, string){
		"no wal":        func(_ *testing.T, at string) { os.RemoveAll(at + "/member/wal") },
		"no db":         func(_ *testing.T, at string) { os.Remove(db(at)) },
		"no member":     func(_ *testing.T, at string) { os.RemoveAll(at + "/member") },
		"empty db":      edit(db, func([]byte) []byte { return nil }),
		"db cut":        edit(db, func(b []byte) []byte { return b[:len(b)/3] }),
		"db zeroed":     edit(db, func(b []byte) []byte { clear(b); return b }),
		"db half zero":  edit(db, func(b []byte) []byte { clear(b[len(b)/2:]); return b }),
		"wal zeroed":    edit(wal, func(b []byte) []byte { clear(b); return b }),
		"wal bit early": edit(wal, func(b []byte) []byte { b[200] ^= 4; return b }),
	}
	for i := range 6 {
		at := random.IntN(4096)
		spoil[fmt.Sprintf("wal bit %d", i)] = edit(wal, func(b []byte) []byte { b[at] ^= 1 << (i % 8); return b })
		page := random.IntN(8)
		spoil[fmt.Sprintf("db page %d", i)] = edit(db,
			func(b []byte) []byte { b[4096*page+random.IntN(64)] ^= 0xff; return b })
	}
	for name, f := range spoil {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir() + "/etcd"
			if out, err := exec.Command("cp", "-a", dir+"/etcd", at).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			f(t, at)
			told, words := child(at)
			if told {
				t.Logf("told: %.160s", words)
				return
			}
			// What passes must serve all, or tell which network is damaged.
			s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: at})
			if err != nil {
				t.Fatalf("not told, and: %v", err)
			}
			defer s.Close()
			records, damaged, _, err := s.Load(t.Context())
			if err != nil || len(records)+len(damaged) != 6 {
				t.Fatalf("not told, and there are %d networks, %d damaged, %v", len(records), len(damaged), err)
			}
		})
	}
}
