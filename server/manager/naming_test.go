package manager

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
)

// Keys stay with what is left of a network: its owner's next one of that title has the same, nobody else's has, and
// that is so after a restart of the manager, too.
func TestKeysAreNotGivenAnew(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	apply := func(ctx context.Context, title, owner string) string {
		t.Helper()
		r, err := f.Apply(ctx, line(title, 1), model.ApplyOptions{Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		_, want, _ := model.SplitReference(title)
		if is := r.Record.NetworkName(); is.Owner != owner || is.Title != want {
			t.Errorf("applied is %+v, not %s's %s", is, owner, want)
		}
		return r.Record.Network.Name
	}
	remove := func(key string) {
		t.Helper()
		if err := f.Delete(t.Context(), key, false); err != nil {
			t.Fatal(err)
		}
		f.obey(t, "n1", nil)
		f.finishDeletions(t.Context())
		if _, err := f.Network(key); err == nil {
			t.Fatalf("%s is there still", key)
		}
	}
	root := t.Context()
	ann, ben := api.AsOwner(root, "ann"), api.AsOwner(root, "ben")
	hers, his, roots := apply(ann, "duo", "ann"), apply(ben, "duo", "ben"), apply(root, "root/duo", "root")
	if roots != "duo" || hers == his || !strings.HasPrefix(hers, "duo.") || !strings.HasPrefix(his, "duo.") {
		t.Fatalf("the keys are %s, %s and %s", hers, his, roots)
	}
	again := func(how string) {
		t.Helper()
		if key := apply(ann, "duo", "ann"); key != hers {
			t.Errorf("%s ann's duo has the key %s, and had %s", how, key, hers)
		}
		if key := apply(root, "root/duo", "root"); key != roots {
			t.Errorf("%s root's duo has the key %s, and had %s", how, key, roots)
		}
	}
	again("there,")
	remove(hers)
	remove(roots)
	if key := apply(root, "eve/duo", "eve"); key == hers || key == roots {
		t.Errorf("what root and ann had is eve's: %s", key)
	}
	dir := f.dir
	f.stop()
	f = start(t, dir, substrateOf(1))
	again("after a restart")
	// What was given away keeps its key, and so does not free it.
	if _, err := f.Set(root, hers, model.SetRequest{Values: []model.Assignment{{Key: "owner", Value: "zoe"}}}); err != nil {
		t.Fatal(err)
	}
	if key := apply(ann, "duo", "ann"); key == hers {
		t.Error("ann's new duo is the one that was given away")
	}
	// Where quotas or quarantines of others' are left, it is taken.
	for try := range 3 {
		key := model.NumberedKey(f.identity.ID, "max", "duo", try)
		if try < 2 {
			if _, err := f.SetQuota(root, model.QuotaOfNetwork, key,
				model.QuotaRequest{Values: []model.Assignment{{Key: "elements", Value: "1"}}}); err != nil {
				t.Fatal(err)
			}
		} else if got := apply(api.AsOwner(root, "max"), "duo", "max"); got != key {
			t.Errorf("the key is %s, not %s", got, key)
		}
	}
}

// Titles are told to nodes, and so come back from them.
func TestTitlesOutliveTheStore(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	if _, err := f.Apply(api.AsOwner(t.Context(), "ann"), line("duo", 2), model.ApplyOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	told := f.desired(t, "n1").Networks[0]
	if told.Title != "duo" || told.Owner != "ann" || told.Name == "duo" {
		t.Fatalf("the node is told of %s's %s, %s", told.Owner, told.Title, told.Name)
	}
	earlier := told // as a node of an earlier version keeps it
	earlier.Title, earlier.Elements, earlier.Edges = "", nil, nil
	r, err := rebuild(told.Name, map[string]model.NodeNetwork{"n0": earlier, "n1": told}, false, resolve.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	if is := r.record.NetworkName(); is != (model.NetworkName{Key: told.Name, Owner: "ann", Title: "duo"}) {
		t.Errorf("put together it is %+v", is)
	}
	if err := titled(&r.record, []model.Record{{Owner: "ann", Network: model.Network{Name: "duo.1", Title: "duo"}}}); err == nil {
		t.Error("ann gets two of one title")
	}
	if err := titled(&r.record, []model.Record{{Owner: "ben", Network: model.Network{Name: "duo"}}}); err != nil {
		t.Error(err)
	}
	// What only nodes have is called as it was, and nobody else is kept from the name.
	g := start(t, t.TempDir(), substrateOf(1))
	h := told.Held()
	h.Why = "another store"
	g.hold(t, "n1", h)
	status := g.heldStatus(told.Name)
	if status.Owner != "ann" || status.Title != "duo" {
		t.Errorf("held is %s's %s", status.Owner, status.Title)
	}
	_, err = g.Apply(t.Context(), line("ann/duo", 2), model.ApplyOptions{Owner: "root"})
	if err == nil || !strings.Contains(err.Error(), "is unknown to this store") {
		t.Errorf("a second one of ann's: %v", err)
	}
	named, err := newNamer(g.Manager).name(t.Context(), []model.Document{{Network: line("ben/duo", 1)}}, "root")
	if err != nil || named.documents[0].Network.Name == told.Name {
		t.Errorf("ben's is %+v, %v", named.documents, err)
	}
}

// Many make networks of one title at the same time: each owner has one in the end, and no two have one key.
func TestNamesakesAtOnce(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	var wg sync.WaitGroup
	for i := range 24 {
		owner := fmt.Sprintf("u%d", i%8)
		wg.Go(func() {
			if _, err := f.Apply(api.AsOwner(t.Context(), owner), line("duo", 1),
				model.ApplyOptions{Owner: owner}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	owners, keys := map[string]bool{}, map[string]bool{}
	for _, is := range f.Names("") {
		if owners[is.Owner] || keys[is.Key] || is.Title != "duo" {
			t.Errorf("there is %+v, too", is)
		}
		owners[is.Owner], keys[is.Key] = true, true
	}
	if len(owners) != 8 {
		t.Errorf("owners are %v", owners)
	}
}

// Networks of one file are each others', or refused before anything is made.
func TestNamesOfOneFile(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	documents := func(names ...string) (all []model.Document) {
		for _, name := range names {
			name, owner, _ := strings.Cut(name, "=")
			net := line(name, 1)
			net.Owner = owner
			all = append(all, model.Document{Network: net})
		}
		return all
	}
	for _, c := range []struct{ names, says string }{
		{"duo duo", "network duo is there twice"}, {"duo duo=root", "there twice"}, {"ann/duo duo=ann", "there twice"},
		{"ann/duo=ben", "cannot both own it"}, {"ann/du/", "is refused"},
		{"duo ann/duo duo=ben", ""}, {"duo ann/duo duo=ben", ""},
	} {
		_, err := f.Manager.Apply(t.Context(), documents(strings.Fields(c.names)...), model.ApplyOptions{Owner: "root"})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.names, err, c.says)
		}
	}
	// What a program has read where the network has another key.
	elsewhere := line("duo.9", 1)
	elsewhere.Title = "duo"
	for _, known := range []bool{true, false} {
		r, err := f.Apply(t.Context(), elsewhere, model.ApplyOptions{Owner: "root"})
		if err != nil || (r.Before != nil) != known || r.Record.Network.Called() != elsewhere.Title {
			t.Errorf("from elsewhere comes %+v, %v", r.Record.NetworkName(), err)
		}
		elsewhere.Title = "other"
	}
	if all := f.Names(""); len(all) != 4 {
		t.Errorf("there are %+v", all)
	}
}
