package manager

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// What a node says is in its trash is shown to people, so only what nodes can have there is taken.
func TestOnlyRealTrashIsListed(t *testing.T) {
	id := model.ID{Network: "lab", Element: "r1"}
	for item, want := range map[string]bool{
		"lab/r1@20261123T034654.454543Z": true,
		"lab/r2@20261123T034654.454543Z": false, // another's name
		"lab/r1@2026\x1b[2J":             false,
		"lab/r1@":                        false,
		"lab/r1":                         false,
	} {
		if got := listable(model.TrashItem{ID: item, Element: id}); got != want {
			t.Errorf("%q: taken is %v, want %v", item, got, want)
		}
	}
	if listable(model.TrashItem{ID: "a\x1bb/r1@1Z", Element: model.ID{Network: "a\x1bb", Element: "r1"}}) {
		t.Error("a network whose name no network has is taken")
	}
}

// trashNode is an agent with a trash; it notes what it is asked to give back.
type trashNode struct {
	items    []model.TrashItem
	restored []model.TrashOrder
	heir     func(model.TrashItem) model.ID // the element of the item's name when nil
}

func (n *trashNode) agents(t *testing.T) agents {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/trash", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(model.TrashList{Items: n.items})
	})
	mux.HandleFunc("POST /v1/trash/restore", func(w http.ResponseWriter, r *http.Request) {
		var request model.TrashOrder
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		n.restored = append(n.restored, request)
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if n.heir == nil {
		n.heir = func(i model.TrashItem) model.ID { return i.Element }
	}
	return newAgents(func() (map[string]api.Dial, map[string]string) {
		return map[string]api.Dial{"n1": func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
		}}, map[string]string{}
	}, n.heir)
}

// An owner sees, and gets back, what was the owner's. Only an administrator gets back what nobody noted the owner of,
// and what was somebody else's, and says so.
func TestTrashIsItsOwners(t *testing.T) {
	item := func(element, owner string) model.TrashItem {
		return model.TrashItem{ID: "lab/" + element + "@20261123T034654.454543Z", Owner: owner,
			Element: model.ID{Network: "lab", Element: element}}
	}
	n := &trashNode{items: []model.TrashItem{item("a", "alice"), item("b", "bob"), item("old", ""),
		item("odd", "a\x1b[2Jb")}}
	a := n.agents(t)
	root := t.Context()
	alice := api.AsOwner(root, "alice")
	for _, c := range []struct {
		as   context.Context
		want string
	}{{root, "a:alice b:bob old: odd:"}, {alice, "a:alice"}, {api.AsOwner(root, "carol"), ""}} {
		list, err := a.Trash(c.as)
		var seen []string
		for _, i := range list.Items {
			seen = append(seen, i.Element.Element+":"+i.Owner)
		}
		slices.Sort(seen)
		want := strings.Fields(c.want)
		slices.Sort(want)
		if err != nil || !slices.Equal(seen, want) {
			t.Errorf("seen are %q (%v), want %q", seen, err, want)
		}
	}
	for _, c := range []struct {
		as      context.Context
		element string
		any     bool
		want    string // why not
	}{
		{alice, "a", false, ""}, {alice, "b", false, "there is no lab/b@"}, {alice, "old", false, "there is no lab/old@"},
		{alice, "b", true, "user alice is an owner"}, {alice, "a", true, "user alice is an owner"},
		{root, "b", false, ""}, // its node knows whether the element is bob's
		{root, "old", false, "nobody noted whose lab/old@"}, {root, "old", true, ""}, {root, "a", true, ""},
	} {
		n.restored = nil
		err := a.RestoreTrash(c.as, model.TrashRequest{Items: []string{item(c.element, "").ID}, AnyOwner: c.any})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || len(n.restored) > 0 {
				t.Errorf("%s: %v, and the node was asked %v; want %q", c.element, err, n.restored, c.want)
			}
		case err != nil || len(n.restored) != 1 || n.restored[0].AnyOwner != c.any:
			t.Errorf("%s: %v, and the node was asked %v", c.element, err, n.restored)
		}
	}
}

// TestTrashOfBeforeOwnersNames: an owner's network of before owners had names of their own was called by its title
// everywhere. What was thrown away of it goes into the network that the owner has made anew, which has another key. It
// goes to nobody else's, and where the network of the item's name is there, to that.
func TestTrashOfBeforeOwnersNames(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	if err := f.Register("n1", model.Registration{Socket: f.dir + "/none.sock"}); err != nil {
		t.Fatal(err)
	}
	root := t.Context()
	for _, owner := range []string{"alice", "bob"} {
		net := line("duo", 2)
		net.Owner = owner
		if _, err := f.Apply(api.AsOwner(root, owner), net, model.ApplyOptions{Owner: owner}); err != nil {
			t.Fatal(err)
		}
	}
	key := f.keyOf(t, "alice", "duo")
	if key == "duo" {
		t.Fatal("alice's network has its title for a key: the test tests nothing")
	}
	item := func(network, element, owner string) model.TrashItem {
		return model.TrashItem{ID: network + "/" + element + "@20261123T034654.454543Z", Owner: owner,
			Element: model.ID{Network: network, Element: element}}
	}
	hers, nobodys, carols := item("duo", "r1", "alice"), item("duo", "r2", ""), item("duo", "r3", "carol")
	now := item(key, "r1", "alice")
	n := &trashNode{items: []model.TrashItem{hers, nobodys, carols, now}, heir: f.heir}
	a := n.agents(t)
	for _, c := range []struct {
		item model.TrashItem
		any  bool
		want model.ID // zero is the item's own
	}{{hers, false, model.ID{Network: key, Element: "r1"}}, {nobodys, true, model.ID{}}, {carols, true, model.ID{}},
		{now, false, model.ID{}}} {
		n.restored = nil
		err := a.RestoreTrash(root, model.TrashRequest{Items: []string{c.item.ID}, AnyOwner: c.any})
		if err != nil || len(n.restored) != 1 || n.restored[0].Into[c.item.ID] != c.want {
			t.Errorf("%s: %v, and the node was told %+v", c.item.ID, err, n.restored)
		}
	}
	if err := a.RestoreTrash(api.AsOwner(root, "bob"), model.TrashRequest{Items: []string{hers.ID}}); err == nil {
		t.Error("bob gets what was alice's")
	}
	roots := line("duo", 2)
	roots.Name = "/duo" // its key is its title
	if _, err := f.Apply(root, roots, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	n.restored = nil
	if err := a.RestoreTrash(root, model.TrashRequest{Items: []string{hers.ID}}); err != nil || n.restored[0].Into != nil {
		t.Errorf("somebody has the key now: %v, and the node was told %+v", err, n.restored)
	}
}
