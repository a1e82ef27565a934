package manager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// TestFullDiskStopsNobodyWhoStops: on a disk that an element has filled to its last byte, administrators and owners
// stop, suspend, cut off and delete elements, and administrators set policies. Nobody makes or changes more.
func TestFullDiskStopsNobodyWhoStops(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, "size=300m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // a temporary directory of this test's
	dirs := instance.Dirs{Name: "test", Run: t.TempDir(), Data: disk}
	st, err := openStore(t.Context(), Config{Dirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m, err := New(t.Context(), dirs, st, substrateOf(1))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Manager: m, dir: dirs.Run}
	if err := f.Register("n1", model.Registration{Socket: dirs.Run + "/none.sock"}); err != nil {
		t.Fatal(err)
	}
	bob := api.AsOwner(t.Context(), "bob")
	for _, name := range []string{"atk", "duo"} {
		net := line(name, 4)
		net.Owner = "bob"
		if _, err := f.Apply(t.Context(), net, model.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.changeAccess(t.Context(), func(a *model.Access) error {
		a.Tokens = append(a.Tokens, model.StoredToken{Token: model.Token{ID: "x", User: "bob", Role: model.RoleOwner}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	atk := f.keyOf(t, "bob", "atk")
	fillDisk(t, disk)

	act := func(ctx context.Context, element string, action model.Action) error {
		_, err := m.Act(ctx, model.ID{Network: atk, Element: element}, action)
		return err
	}
	set := func(ctx context.Context, object, key, value string) error {
		_, err := m.Set(ctx, atk, model.SetRequest{Object: object,
			Values: []model.Assignment{{Key: key, Value: value}}})
		return err
	}
	apply := func(context.Context) error {
		_, err := f.Apply(t.Context(), line("more", 2), model.ApplyOptions{})
		return err
	}
	for _, c := range []struct {
		what string
		do   func(context.Context) error
		full bool
	}{
		{"apply", apply, true},
		{"set", func(ctx context.Context) error { return set(ctx, "r1", "memory", "128MiB") }, true},
		{"stop", func(ctx context.Context) error { return act(ctx, "r1", model.ActionStop) }, false},
		{"suspend", func(ctx context.Context) error { return act(ctx, "r2", model.ActionSuspend) }, false},
		{"quarantine", func(ctx context.Context) error { return act(ctx, "r3", model.ActionQuarantine) }, false},
		{"stop of a link", func(ctx context.Context) error { return set(ctx, "r1--r2", "state", "down") }, false},
		{"set attack", func(ctx context.Context) error { return set(ctx, "", "attack", "stop") }, false},
		{"start", func(ctx context.Context) error { return act(ctx, "r1", model.ActionStart) }, true},
		{"apply again", apply, true},
	} {
		err := c.do(bob)
		if c.full && (err == nil || problem(t, err).Kind != api.KindFull) || !c.full && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, element := range []string{"", "r4"} {
		if _, err := m.SetPolicy(t.Context(), atk, model.PolicyRequest{Element: element,
			Attack: model.AttackQuarantine}); err != nil {
			t.Errorf("policy of %q: %v", element, err)
		}
	}
	quota := model.QuotaRequest{Values: []model.Assignment{{Key: "networks", Value: "1"}}}
	if _, err := m.SetQuota(t.Context(), model.QuotaOfOwner, "bob", quota); err != nil {
		t.Errorf("quota: %v", err)
	}
	if _, err := m.RevokeToken(t.Context(), "x"); err != nil {
		t.Errorf("token: %v", err)
	}
	if err := m.Delete(bob, atk, false); err != nil {
		t.Error(err)
	}
	// All of it is in the store, the mark that the network goes and the administrator's policy included.
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err = openStore(t.Context(), Config{Dirs: dirs}); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	records, damaged, _, err := st.Load(t.Context())
	if err != nil || len(damaged) > 0 {
		t.Fatal(err, damaged)
	}
	for _, r := range records {
		if o := r.Overrides; r.Network.Called() == "atk" && !(r.Deleting && o["r1"].Stopped && o["r2"].Suspended &&
			o["r3"].Quarantined && r.Policies[""] == model.AttackQuarantine) {
			t.Errorf("stored is %+v, deleting %v", o, r.Deleting)
		}
	}
	if q, err := st.Quotas(t.Context()); err != nil || q.Owners["bob"].Networks != 1 {
		t.Errorf("the quotas are %+v, %v", q, err)
	}
	if a, _, err := st.Access(t.Context()); err != nil || len(a.Tokens) != 1 || a.Tokens[0].Revoked.IsZero() {
		t.Errorf("the tokens are %+v, %v", a, err)
	}
	if revoked, err := instance.ReadRevoked(dirs); err != nil ||
		len(revoked.Apply([]model.StoredToken{{Token: model.Token{ID: "x"}}})) != 1 {
		t.Errorf("the list of revoked tokens lacks one (%v)", err)
	}
	if kept, err := st.Restraints(t.Context()); err != nil || len(kept) != 2 {
		t.Errorf("kept is %v, %v", kept, err)
	}
	if held := store.Reserved(dirs.Reserve()); held < 32<<20 {
		t.Errorf("the reserve has %d bytes left", held)
	}
}

// fillDisk fills a disk to its last byte.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		switch _, err := f.Write(piece); {
		case err == nil:
		case errors.Is(err, unix.ENOSPC):
			piece = piece[:len(piece)/2]
		default:
			t.Fatal(err)
		}
	}
}
