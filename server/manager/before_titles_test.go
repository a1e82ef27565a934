package manager

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// Testdata has what a polyplane of before owners had names of their own left: a backup, and what it told node n1, which
// had joined. There were networks duo (alice's; r1 stopped, r2 cut off by an administrator, who also had a policy for
// all of it), other (bob's) and lab (nobody's). alice had deleted gone, of which an administrator had cut off r2.

// beforeTitles is a manager on a store that was restored from that backup.
func beforeTitles(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	b, err := store.ReadBackup("testdata/before-titles.backup")
	if err != nil {
		t.Fatal(err)
	}
	identity := b.Identity
	identity.Generation++
	if err := store.FillEmbedded(t.Context(), store.EmbeddedOptions{Dir: filepath.Join(dir, "etcd")}, b,
		identity); err != nil {
		t.Fatal(err)
	}
	putAuthority(t, dir, b)
	return start(t, dir, model.Substrate{})
}

func putAuthority(t *testing.T, dir string, b *store.Backup) {
	t.Helper()
	for name, content := range b.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestABackupOfBeforeTitles: a backup of before owners had names of their own is restored as it was, and owners find
// their networks by their names. What administrators have decided counts for what comes anew as well.
func TestABackupOfBeforeTitles(t *testing.T) {
	f := beforeTitles(t)
	root := t.Context()
	alice := api.AsOwner(root, "alice")
	for owner, title := range map[string]string{"alice": "duo", "bob": "other", "": "lab"} {
		if key := f.keyOf(t, owner, title); key != title {
			t.Errorf("%q's %s has the key %q", owner, title, key)
		}
	}
	cutOff := func(network string) {
		t.Helper()
		r, err := f.Network(network)
		if o := r.Overrides["r2"]; err != nil || !o.Quarantined || !o.Held {
			t.Errorf("%s/r2: %+v, %v", network, o, err)
		}
	}
	cutOff("duo")
	r, err := f.Network("duo")
	if err != nil || !r.Overrides["r1"].Stopped || r.Policies[""] != model.AttackStop || r.WhoseItIs() != "alice" {
		t.Errorf("duo is %+v, %v", r, err)
	}
	if q := f.Allowed("alice"); q.Elements != 50 {
		t.Errorf("alice may have %+v", q)
	}
	if all := f.ListTokens(); len(all) != 1 || all[0].User != "alice" {
		t.Errorf("the tokens are %+v", all)
	}
	make := func(title string) string {
		t.Helper()
		net := line(title, 3)
		net.Owner = "alice"
		if _, err := f.Apply(alice, net, model.ApplyOptions{Owner: "alice"}); err != nil {
			t.Fatal(err)
		}
		return f.keyOf(t, "alice", title)
	}
	remove := func(key string) {
		t.Helper()
		before := f.seq()
		if err := f.Delete(alice, key, false); err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			_, end := f.watch(t, n)
			defer end()
			f.obey(t, n, nil)
		}
		f.await(t, before, key, "NetworkDeleted")
	}
	// What is made anew keeps its key, now that its deletion says whose it was.
	remove("duo")
	if key := make("duo"); key != "duo" {
		t.Errorf("made anew, alice's duo has the key %q", key)
	}
	cutOff("duo")
	if r, err = f.Network("duo"); err != nil || r.Policies[""] != model.AttackStop {
		t.Errorf("made anew, duo's policies are %v, %v", r.Policies, err)
	}
	// Of what was deleted before, nobody noted whose it was: it has another key.
	key := make("gone")
	if key == "gone" {
		t.Error("made anew, what was deleted before titles has its title for a key")
	}
	cutOff(key)
	if _, err := f.Act(alice, model.ID{Network: key, Element: "r2"}, model.ActionRelease); err == nil {
		t.Error("alice released what an administrator had cut off")
	}
	if _, err := f.Act(root, model.ID{Network: key, Element: "r2"}, model.ActionRelease); err != nil {
		t.Error(err)
	}
	remove(key)
	if r, err := f.Network(make("gone")); err != nil || r.Overrides["r2"].Quarantined {
		t.Errorf("released, and made anew: %+v, %v", r.Overrides, err)
	}
}

// TestRecoverFromANodeOfBeforeTitles: with the store lost, a node that joined shows by its seals what an earlier
// polyplane told it, and the networks are put together with their owners.
func TestRecoverFromANodeOfBeforeTitles(t *testing.T) {
	b, err := store.ReadBackup("testdata/before-titles.backup")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/before-titles.node.json")
	if err != nil {
		t.Fatal(err)
	}
	var was model.NodeState
	if err := json.Unmarshal(text, &was); err != nil || len(was.Networks) != 3 {
		t.Fatal(len(was.Networks), err)
	}
	dir := t.TempDir()
	putAuthority(t, dir, b)
	f := start(t, dir, substrateOf(3))
	f.mu.Lock()
	f.substrate.Nodes[0].Joined, f.nodes["n1"].Joined = true, true
	f.mu.Unlock()
	for _, n := range was.Networks {
		h := n.Held()
		h.Why = "this is another store"
		lie := h
		lie.Owner = "mallory"
		f.hold(t, "n1", lie)
		if on := f.nodes.heldOn(n.Name); len(on) != 0 {
			t.Errorf("%s is believed to be mallory's", n.Name)
		}
		f.hold(t, "n1", h)
		if on := f.nodes.heldOn(n.Name); len(on) != 1 {
			t.Errorf("%s was told by an earlier polyplane, and is not believed", n.Name)
		}
		r, err := rebuild(n.Name, map[string]model.NodeNetwork{"n1": n}, false, resolve.NewNumbers())
		want := map[string]string{"duo": "alice", "other": "bob", "lab": ""}[n.Name]
		if err != nil || r.record.WhoseItIs() != want || r.record.Network.Called() != n.Name {
			t.Errorf("%s is %q's %s: %v", n.Name, r.record.WhoseItIs(), r.record.Network.Called(), err)
		}
	}
}
