package store

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/polyplane/polyplane/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// record makes a record of n elements whose content compresses badly when noise is set.
func record(name string, revision int64, n int) model.Record {
	r := model.Record{Network: model.Network{Name: name}, Revision: revision,
		Created: time.Unix(1e9, 0).UTC(), Modified: time.Unix(1e9+revision, 0).UTC(),
		Assigned: model.Assigned{Index: uint32(len(name))}}
	for i := range n {
		r.Network.Elements = append(r.Network.Elements, model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router,
			Config: map[string]string{"frr.conf": sum(fmt.Appendf(nil, "%s %d %d", name, revision, i))}})
	}
	return r
}

func load(t *testing.T, s *Store) map[string]model.Record {
	t.Helper()
	records, damaged, _, err := s.Load(t.Context())
	if err != nil || len(damaged) != 0 {
		t.Fatalf("load: %v, damaged %v", err, damaged)
	}
	m := map[string]model.Record{}
	for _, r := range records {
		m[r.Network.Name] = r
	}
	return m
}

func equal(t *testing.T, got, want model.Record) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("network %s came back changed", want.Network.Name)
	}
}

func TestRestartComesBackWithTheSameRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := map[string]model.Record{}
	var last int64
	// big spans several chunks: 40,000 random digests are 2.6 MB that no compression halves twice.
	for _, r := range []model.Record{record("a", 1, 3), record("big", 1, 40_000), record("a", 2, 5)} {
		revision, err := s.Put(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if revision <= last {
			t.Fatalf("the store's revision went from %d to %d", last, revision)
		}
		last = revision
		want[r.Network.Name] = r
	}
	substrate := model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1", CPU: 4000, Memory: 1 << 30}}}
	if err := s.PutSubstrate(t.Context(), substrate); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir)
	got := load(t, s)
	if len(got) != len(want) {
		t.Fatalf("%d networks came back, %d were stored", len(got), len(want))
	}
	for name, r := range want {
		equal(t, got[name], r)
	}
	if sub, found, err := s.Substrate(t.Context()); err != nil || !found || fmt.Sprint(sub) != fmt.Sprint(substrate) {
		t.Fatalf("substrate: %v %v %v", sub, found, err)
	}
	// What was current before is gone, chunk by chunk.
	if keys := keysOf(t, s, s.chunksKey("a")); len(keys) != 1 {
		t.Fatalf("chunks of a: %v", keys)
	}
	if keys := keysOf(t, s, s.chunksKey("big")); len(keys) < 2 {
		t.Fatalf("big is meant to span several chunks, it has %v", keys)
	}
	if _, err := s.Delete(t.Context(), "big", model.Deleted{}); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, s, s.chunksKey("big")); len(keys) != 0 {
		t.Fatalf("chunks of a deleted network remain: %v", keys)
	}
	if got := load(t, s); len(got) != 1 {
		t.Fatalf("after deleting big: %d networks", len(got))
	}
}

func keysOf(t *testing.T, s *Store, prefix string) []string {
	t.Helper()
	resp, err := s.kv.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func TestSecondWriterIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Put(t.Context(), record("net", 1, 2)); err != nil {
		t.Fatal(err)
	}
	stale := &Store{kv: s.kv, prefix: s.prefix, place: s.place, moved: map[string]int64{}, unsure: map[string][]string{},
		versions: map[string]version{}}
	if _, err := stale.Put(t.Context(), record("net", 7, 2)); !errors.Is(err, ErrConflict) {
		t.Fatalf("a second writer got %v", err)
	}
	if _, err := stale.Delete(t.Context(), "net", model.Deleted{}); !errors.Is(err, ErrConflict) {
		t.Fatalf("a second deleter got %v", err)
	}
	equal(t, load(t, s)["net"], record("net", 1, 2))
}

func TestDamagedRecordsNeverLoseOthers(t *testing.T) {
	s := open(t, t.TempDir())
	names := []string{"flip", "good", "missing", "newer", "pointer"}
	for _, n := range names {
		if _, err := s.Put(t.Context(), record(n, 1, 3)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	get := func(key string) string {
		resp, err := s.kv.Get(ctx, key)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatal(key, err)
		}
		return string(resp.Kvs[0].Value)
	}
	put := func(key, value string) {
		if _, err := s.kv.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	chunk := keysOf(t, s, s.chunksKey("flip"))[0]
	b := []byte(get(chunk))
	b[len(b)/2] ^= 1
	put(chunk, string(b))
	if _, err := s.kv.Delete(ctx, keysOf(t, s, s.chunksKey("missing"))[0]); err != nil {
		t.Fatal(err)
	}
	put(s.pointerKey("newer"), strings.Replace(get(s.pointerKey("newer")), `"layout":1`, `"layout":2`, 1))
	put(s.pointerKey("pointer"), "\x00\x01")

	backup := filepath.Join(t.TempDir(), "auto-20261122T120000Z.backup")
	if err := WriteFile(backup, func(w io.Writer) error {
		_, err := s.WriteBackup(ctx, w, BackupHeader{}, nil)
		return err
	}); err != nil {
		t.Fatalf("damaged records keep all others from being backed up: %v", err)
	}
	if b, err := ReadBackup(backup); err != nil || strings.Join(b.Networks, " ") != "good" ||
		strings.Join(b.Lacks, " ") != "flip missing newer pointer" {
		t.Errorf("the backup: %+v, %v", b, err)
	} else if keys := slices.Sorted(maps.Keys(b.Keys)); slices.ContainsFunc(keys,
		func(k string) bool { return strings.Contains(k, "flip") || strings.Contains(k, "missing") }) {
		t.Errorf("it has %v", keys)
	}
	if path, _ := NewestGoodOf(filepath.Dir(backup), "good"); path != backup {
		t.Errorf("the newest good backup of good is %q", path)
	}
	if path, _ := NewestGoodOf(filepath.Dir(backup), "flip"); path != "" {
		t.Errorf("the newest good backup of flip, which it lacks, is %q", path)
	}

	records, damaged, _, err := s.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 {
		t.Fatalf("%d networks can be read, 1 is undamaged", len(records))
	}
	equal(t, records[0], record("good", 1, 3))
	want := map[string]string{
		"flip":    "the stored record of network flip cannot be read: its checksum does not match",
		"missing": "the stored record of network missing cannot be read: part 1 of 1 is missing",
		"newer": "the stored record of network newer cannot be read: it was written by a newer polyplane " +
			"(layout 2, this one knows up to 1): use that version or a later one",
		"pointer": "the stored record of network pointer cannot be read: its entry is damaged: " +
			"invalid character '\\x00' looking for beginning of value",
	}
	for _, d := range damaged {
		if d.Err.Error() != want[d.Name] {
			t.Errorf("%s: %q, want %q", d.Name, d.Err, want[d.Name])
		}
		if d.Name != "pointer" && d.Index != uint32(len(d.Name)) {
			t.Errorf("%s: the network's index is lost", d.Name)
		}
		delete(want, d.Name)
	}
	if len(want) > 0 {
		t.Errorf("not reported as damaged: %v", want)
	}
	// A damaged network can be deleted, and written anew.
	if _, err := s.Delete(ctx, "flip", model.Deleted{}); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(ctx, record("pointer", 2, 3)); err != nil {
		t.Error(err)
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.kv.Put(t.Context(), s.layoutKey(), "2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(dir, "etcd")})
	want := "open the store (embedded): it was written by a newer polyplane (layout 2, this one knows up to 1): use " +
		"that version or a later one"
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestFullStoreSaysSoAndRecovers(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(dir, "etcd"), Quota: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	small := record("small", 1, 3)
	if _, err := s.Put(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	full := ""
	for i := range 20 {
		name := fmt.Sprintf("big%d", i)
		if _, err = s.Put(t.Context(), record(name, 1, 30_000)); err != nil {
			full = name
			break
		}
	}
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "delete networks that are no longer needed") {
		t.Fatalf("a full store said: %v", err)
	}
	if got := load(t, s); got["small"].Revision != 1 || got[full].Revision != 0 {
		t.Fatal("a full store lost or made up a network")
	}
	if keys := keysOf(t, s, s.chunksKey(full)); len(keys) != 0 {
		t.Fatalf("the refused write left %v", keys)
	}
	for name := range load(t, s) {
		if name != "small" {
			if _, err := s.Delete(t.Context(), name, model.Deleted{}); err != nil {
				t.Fatal("delete from a full store:", err)
			}
		}
	}
	if _, err := s.Put(t.Context(), record(full, 1, 30_000)); err != nil {
		t.Fatal("after making room:", err)
	}
	equal(t, load(t, s)["small"], small)
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
}

// TestOverwritingForeverNeedsNoRoom writes one network far more often than the quota holds it.
func TestOverwritingForeverNeedsNoRoom(t *testing.T) {
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(t.TempDir(), "etcd"), Quota: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for i := range int64(30) {
		if _, err := s.Put(t.Context(), record("net", i+1, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b, err := encode(record("net", 1, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"layout":1,"write":"1-x","chunks":1,"size":9,"sum":""}`), b)
	f.Add([]byte(`{}`), []byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, p, b []byte) {
		if r, err := decode(b); err == nil {
			again, err := encode(r)
			if err != nil {
				t.Fatalf("a record that was read cannot be written: %v", err)
			}
			if _, err := decode(again); err != nil {
				t.Fatalf("a record that was read and written cannot be read: %v", err)
			}
		}
		if p, err := decodePointer(p); err == nil {
			p.Size, p.Chunks, p.Sum = len(b), 1, sum(b)
			if r, err := assemble("net", p, [][]byte{b}); err == nil && r.Network.Name != "net" {
				t.Fatal("another network's record was taken")
			}
		}
	})
}

// Of two who change the tokens at once, one comes too late.
func TestAccessIsComparedBeforeItIsReplaced(t *testing.T) {
	s := open(t, t.TempDir())
	empty, version, err := s.Access(t.Context())
	if err != nil || version != 0 || len(empty.Tokens) != 0 {
		t.Fatalf("%+v, version %d: %v", empty, version, err)
	}
	token := func(id string) model.Access {
		return model.Access{Tokens: []model.StoredToken{{Token: model.Token{ID: id}, Hash: "h"}}}
	}
	first, err := s.PutAccess(t.Context(), token("a"), version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutAccess(t.Context(), token("b"), version); !errors.Is(err, ErrMoved) {
		t.Errorf("written from what was there before: %v", err)
	}
	if _, err := s.PutAccess(t.Context(), token("c"), first); err != nil {
		t.Error(err)
	}
	if got, _, err := s.Access(t.Context()); err != nil || len(got.Tokens) != 1 || got.Tokens[0].ID != "c" ||
		got.Tokens[0].Hash != "h" {
		t.Errorf("%+v: %v", got, err)
	}
}

// What is kept of deleted elements may be more than etcd takes in one value: each owner's is a value of its own. The
// one value that earlier versions had for all is read, and goes with the first change, cut short at any moment.
func TestRestraintsOfManyOwners(t *testing.T) {
	s := open(t, t.TempDir())
	of := func(owner int) (all []model.Restraint) {
		for i := range 128 {
			all = append(all, model.Restraint{Owner: fmt.Sprintf("owner%d", owner),
				ID:          model.ID{Network: "lab", Element: fmt.Sprintf("h%d", i)},
				Quarantined: true, Reason: strings.Repeat("\x01", 256)})
		}
		return all
	}
	check := func(want int) {
		t.Helper()
		all, err := s.Restraints(t.Context())
		if err != nil || len(all) != want {
			t.Fatalf("%d are kept, want %d (%v)", len(all), want, err)
		}
	}
	old := slices.Concat(of(0)[:100], of(1)[:3])
	if err := s.putDocument(t.Context(), restraintsDocument, old); err != nil {
		t.Fatal(err)
	}
	check(103)
	// A change was cut short behind the first owner's value.
	if err := s.putDocument(t.Context(), restraintsOf("owner1"), of(1)[:1]); err != nil {
		t.Fatal(err)
	}
	check(101)
	var all []model.Restraint
	for owner := range 20 {
		all = append(all, of(owner)...)
	}
	if err := s.PutRestraints(t.Context(), all); err != nil {
		t.Fatalf("%d of 20 owners: %v", len(all), err)
	}
	check(len(all))
	if err := s.PutRestraints(t.Context(), of(7)[:1]); err != nil {
		t.Fatal(err)
	}
	check(1)
	if keys := keysOf(t, s, s.documentKey(restraintsDocument)); len(keys) != 1 {
		t.Errorf("left are %q", keys)
	}
}
