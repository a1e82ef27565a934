package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// Whoever restores a backup learns what of other people's decisions it takes back.
func TestBackupTellsWhatItTakesBack(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	record := func(name, owner string, change func(*model.Record)) {
		t.Helper()
		r := recordOf(name, 1, 3)
		r.Owner = owner
		if change != nil {
			change(&r)
		}
		_, err := s.Put(context.Background(), r)
		must(err)
	}
	member := func(names ...string) (m []model.Member) {
		for _, n := range names {
			m = append(m, model.Member{Machine: model.Machine{Name: n}})
		}
		return m
	}
	record("lab", "ann", nil)
	record("own", "ben", nil)
	record("gone.1234", "ben", func(r *model.Record) { r.Network.Title = "gone" })
	version, err := s.PutAccess(t.Context(), model.Access{Members: member("n2", "n3")}, 0)
	must(err, s.PutQuotas(t.Context(), model.Quotas{Owners: map[string]model.Quota{"ann": {Elements: 50}}}))
	then := backupOf(t, s, filepath.Join(dir, "then"))
	if lines := then.Undone(then); len(lines) > 0 {
		t.Errorf("against itself it takes back %q", lines)
	}

	record("lab", "ann", func(r *model.Record) {
		r.Network.Owner = "ben"
		r.Overrides = map[string]model.Override{"h1": {Quarantined: true}}
		r.Policies = model.Policies{"": model.AttackStop}
	})
	record("new", "ann", nil) // which nodes hold; that is not for this list
	_, err = s.PutAccess(t.Context(), model.Access{Members: member("n2", "n4")}, version)
	must(err, s.PutQuotas(t.Context(), model.Quotas{Owners: map[string]model.Quota{"ann": {Elements: 20},
		"eve": {Elements: 1, Networks: 1}}}))
	must(s.PutRestraints(t.Context(), []model.Restraint{{Owner: "eve", ID: model.ID{Network: "bad", Element: "h7"},
		Quarantined: true}}))
	_, err = s.Delete(t.Context(), "gone.1234", model.Deleted{})
	must(err, s.Close())
	store := filepath.Join(dir, "etcd")
	before, err := os.ReadFile(filepath.Join(store, "member", "snap", "db"))
	must(err, BackupUnused(t.Context(), store, filepath.Join(dir, "now")))
	after, err := os.ReadFile(filepath.Join(store, "member", "snap", "db"))
	must(err)
	if !slices.Equal(before, after) {
		t.Error("reading the store for a backup has changed it")
	}
	now, err := ReadBackup(filepath.Join(dir, "now"))
	must(err)
	want := []string{
		"Nodes that were removed since are members again: n3",
		"Networks that were deleted since are back: ben/gone",
		"Networks that have their earlier owner again: lab (now ann, before ben)",
		"Quotas that are as they were: owner ann (now elements:50, before elements:20), " +
			"owner eve (now none of its own, before networks:1 elements:1)",
		"Elements that were cut off since and no longer are: bad/h7, lab/h1",
		"Policies for attacks that were set since and are gone: lab stop",
	}
	if is := then.Undone(now); !slices.Equal(is, want) {
		t.Errorf("it says\n%s\nwant\n%s", strings.Join(is, "\n"), strings.Join(want, "\n"))
	}
	if err := os.Truncate(filepath.Join(store, "member", "snap", "db"), 0); err != nil {
		t.Fatal(err)
	}
	if err := BackupUnused(t.Context(), store, filepath.Join(dir, "damaged")); err == nil {
		t.Error("a damaged store gave a backup")
	}
}
