package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// namesakes are an instance in which alice, bob and root have a network duo each, and bob has one that nobody else has.
type namesakes struct {
	*open
	tokens map[string]string // by user
	keys   map[string]string // by owner/title
}

func openNamesakes(t *testing.T) *namesakes {
	t.Helper()
	n := &namesakes{openTo(t, openDirs(t), ground), map[string]string{}, map[string]string{}}
	if err := n.root.Register(t.Context(), "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	for user, role := range map[string]model.Role{"alice": model.RoleOwner, "bob": model.RoleOwner,
		"zoe": model.RoleOwner, "ada": model.RoleAdmin, "vic": model.RoleViewer} {
		n.tokens[user] = n.token(model.TokenRequest{User: user, Role: role}).Text
	}
	for _, is := range []struct {
		c     *client.Client
		title string
	}{{n.with(n.tokens["bob"]), "duo"}, {n.with(n.tokens["bob"]), "secret"}, {n.with(n.tokens["alice"]), "duo"},
		{n.root, "duo"}} {
		options := model.ApplyOptions{Owner: "root"}
		r, err := is.c.Apply(t.Context(), duo(is.title), options)
		if is.c == n.root {
			refusedWith(t, "one of three", err, http.StatusConflict, "alice/duo or bob/duo or root/duo, which would be new")
			r, err = is.c.Apply(t.Context(), duo("root/"+is.title), options)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Record.Network.Name; got != is.title || r.Record.Network.Title != "" {
			t.Errorf("its owner is told %q of %s", got, is.title)
		}
	}
	list, err := n.root.NetworkNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range list.Networks {
		n.keys[is.Owner+"/"+is.Title] = is.Key
	}
	if len(n.keys) != 4 || n.keys["root/duo"] != "duo" {
		t.Fatalf("the keys are %v", n.keys)
	}
	return n
}

// ask makes a request as it is, and returns status and body.
func (n *namesakes) ask(user, method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, "https://"+n.server+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+n.tokens[user])
	r.Header.Set("Content-Type", "application/json")
	c := insecure()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer c.CloseIdleConnections()
	answer, err := c.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// operation is one that is about a network.
type operation struct{ method, path, body string }

// operations are all that have a network in their path or their query, by the API's own description.
func (n *namesakes) operations() (all []operation) {
	n.t.Helper()
	_, text := n.ask("ada", http.MethodGet, "/openapi.json", "")
	var described struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal([]byte(text), &described); err != nil {
		n.t.Fatal(err)
	}
	bodies := map[string]string{"PATCH /v1/networks/{network}": `{"values":[{"key":"packets","value":"100"}]}`,
		"PATCH /v1/networks/{network}/policy":                    `{"attack":"tell"}`,
		"POST /v1/networks/{network}/check":                      `{}`,
		"POST /v1/networks/{network}/faults":                     `{"action":"start"}`,
		"POST /v1/networks/{network}/elements/{element}/actions": `{"action":"start"}`,
		"PATCH /v1/quotas/{kind}/{name}":                         `{"values":[{"key":"elements","value":"100"}]}`,
	}
	for path, methods := range described.Paths {
		for method, o := range methods {
			method = strings.ToUpper(method)
			is := operation{method, path, bodies[method+" "+path]}
			for _, p := range o.Parameters {
				if p.Name == "network" && p.In == "query" {
					is.path += "?network={network}"
				}
			}
			if path == "/v1/quotas/{kind}/{name}" {
				is.path = "/v1/quotas/network/{network}"
			}
			if strings.Contains(is.path, "{network}") && method != http.MethodPut {
				all = append(all, is)
			}
		}
	}
	// What destroys comes last.
	slices.SortFunc(all, func(a, b operation) int {
		last := func(o operation) string {
			if o.method == http.MethodDelete {
				return "~"
			}
			return o.path + o.method
		}
		return strings.Compare(last(a), last(b))
	})
	if len(all) < 20 {
		n.t.Fatalf("only %d operations are about a network: %v", len(all), all)
	}
	return all
}

func (o operation) of(reference string) string {
	return strings.NewReplacer("{network}", url.PathEscape(reference), "{element}", "h1").Replace(o.path)
}

// Whatever an owner guesses of others' titles and keys, the answer is the very same as for what is not there.
func TestOwnersGuessNothing(t *testing.T) {
	n := openNamesakes(t)
	guesses := []string{"bob/duo", "bob/secret", "root/duo", "secret", n.keys["bob/duo"], n.keys["bob/secret"],
		"bob/" + n.keys["bob/duo"], "/duo", "alice/secret"}
	for _, o := range n.operations() {
		for _, user := range []string{"alice", "zoe"} {
			status, want := n.ask(user, o.method, o.of("nothing"), o.body)
			if status < 400 {
				t.Errorf("%s %s of nothing is answered: %d %s", o.method, o.path, status, want)
			}
			all := guesses
			if user == "zoe" { // who has none at all
				all = append(slices.Clone(all), "duo", n.keys["alice/duo"])
			}
			for _, guess := range all {
				got, text := n.ask(user, o.method, o.of(guess), o.body)
				if text = strings.ReplaceAll(text, guess, "nothing"); got != status || text != want {
					t.Errorf("%s %s of %s by %s: %d %s\nand of nothing: %d %s", o.method, o.path, guess, user, got, text,
						status, want)
				}
			}
		}
	}
	for _, name := range []string{"a/b", "a:b"} { // so that it is clear whose a network is
		if _, err := n.root.CreateToken(n.t.Context(), model.TokenRequest{User: name, Role: model.RoleOwner}); err == nil {
			t.Errorf("there is a user %s", name)
		}
	}
	// Nor from what they make: whatever others have, it is as if nobody had anything.
	for _, title := range []string{"duo", "secret", n.keys["bob/duo"], "nothing"} {
		status, text := n.ask("zoe", http.MethodPut, "/v1/networks/"+title+"?dryRun=true", `{"name":"`+title+`"}`)
		if status != http.StatusOK || !strings.Contains(text, `"name":"`+title+`"`) {
			t.Errorf("zoe tries %s: %d %s", title, status, text)
		}
	}
	for _, title := range []string{"bob/duo", "bob/secret", "bob/nothing", "root/duo"} {
		status, text := n.ask("zoe", http.MethodPut, "/v1/networks/"+url.PathEscape(title), `{"name":"`+title+`"}`)
		if status != http.StatusForbidden || strings.ReplaceAll(text, title, "x/x") !=
			func() string {
				_, other := n.ask("zoe", http.MethodPut, "/v1/networks/bob%2Fnothing", `{"name":"bob/nothing"}`)
				return strings.ReplaceAll(strings.ReplaceAll(other, "bob/nothing", "x/x"), "bob's",
					title[:strings.IndexByte(title, '/')]+"'s")
			}() {
			t.Errorf("zoe applies %s: %d %s", title, status, text)
		}
	}
}

// What an owner is told has no key in it, and nothing of others'.
func TestOwnersAreToldTitles(t *testing.T) {
	n := openNamesakes(t)
	for _, o := range append(n.operations(), operation{http.MethodGet, "/v1/networks", ""},
		operation{http.MethodGet, "/v1/names", ""}, operation{http.MethodGet, "/v1/elements", ""},
		operation{http.MethodGet, "/v1/links", ""}, operation{http.MethodGet, "/v1/dump", ""},
		operation{http.MethodGet, "/v1/events", ""}, operation{http.MethodGet, "/v1/policies", ""},
		operation{http.MethodGet, "/v1/quotas", ""}, operation{http.MethodGet, "/v1/nodes", ""},
		operation{http.MethodGet, "/v1/trash", ""}, operation{http.MethodGet, "/v1/images", ""}) {
		for _, reference := range []string{"duo", "alice/duo", n.keys["alice/duo"]} {
			if o.method == http.MethodDelete && reference != n.keys["alice/duo"] {
				continue
			}
			status, text := n.ask("alice", o.method, o.of(reference), o.body)
			if status == http.StatusNotFound {
				t.Errorf("%s %s: alice does not find %s: %s", o.method, o.path, reference, text)
			}
			for _, key := range []string{n.keys["alice/duo"], n.keys["bob/duo"], "bob", "secret"} {
				if strings.Contains(text, key) {
					t.Errorf("%s %s of %s: alice is told of %s: %s", o.method, o.path, reference, key, text)
				}
			}
		}
	}
	_, text := n.ask("alice", http.MethodGet, "/v1/networks/duo", "")
	if !strings.Contains(text, `"name":"duo"`) || !strings.Contains(text, `"owner":"alice"`) {
		t.Errorf("alice is told %s", text)
	}
}

// Whoever sees everything names all, and is told whose they are; what is ambiguous is refused with the choices.
func TestEverybodysNetworksAreNamed(t *testing.T) {
	n := openNamesakes(t)
	ctx := t.Context()
	called := func(c *client.Client) string {
		t.Helper()
		networks, err := c.Networks(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, is := range networks {
			all = append(all, fmt.Sprintf("%s=%s/%s", is.Name, is.Owner, is.Title))
			if is.Key != "" && is.Key != n.keys[is.Owner+"/"+is.Title] {
				t.Errorf("the key of %s/%s is told as %s", is.Owner, is.Title, is.Key)
			}
		}
		elements, err := c.Elements(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			if !strings.Contains(strings.Join(all, " ")+" ", e.ID.Network+"="+e.Owner+"/"+e.Title+" ") {
				t.Errorf("of an element's network is told %+v %s %s", e.ID, e.Owner, e.Title)
			}
		}
		return strings.Join(all, " ")
	}
	const named = "alice/duo=alice/duo bob/duo=bob/duo bob/secret=bob/secret "
	ada, vic := n.with(n.tokens["ada"]).Naming(""), n.with(n.tokens["vic"]).Naming("")
	for who, is := range map[string]struct {
		c    *client.Client
		want string
	}{
		"root": {client.New(n.dirs).Naming("root"), named + "duo=root/duo"}, "ada": {ada, named + "root/duo=root/duo"},
		"vic": {vic, named + "root/duo=root/duo"},
		"a program of before": {n.root, strings.Join([]string{"duo=root/duo", n.keys["alice/duo"] + "=alice/duo",
			n.keys["bob/duo"] + "=bob/duo", n.keys["bob/secret"] + "=bob/secret"}, " ")},
	} {
		got := strings.Fields(called(is.c))
		want := strings.Fields(is.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s is told\n%s\nwant\n%s", who, got, want)
		}
	}
	for _, c := range []*client.Client{ada, vic} {
		_, err := c.Network(ctx, "duo")
		refusedWith(t, "one of three", err, http.StatusConflict, "alice/duo or bob/duo or root/duo")
		for reference, owner := range map[string]string{"alice/duo": "alice", "secret": "bob", "bob/secret": "bob",
			n.keys["bob/duo"]: "bob", "root/duo": "root"} {
			r, err := c.Network(ctx, reference)
			if err != nil || r.WhoseItIs() != owner {
				t.Errorf("%s is %s's, %v", reference, r.WhoseItIs(), err)
			}
		}
		_, err = c.Network(ctx, "alice/secret")
		refusedWith(t, "what is not there", err, http.StatusNotFound)
	}
	// An administrator's own comes first, and is another.
	r, err := ada.Apply(ctx, duo("ada/duo"), model.ApplyOptions{})
	if err != nil || r.Before != nil || r.Record.Network.Name != "duo" || r.Record.Owner != "ada" {
		t.Fatalf("%+v, %v", r.Record, err)
	}
	changed := duo("bob/duo")
	changed.Slice.Packets = 777
	if r, err = ada.Apply(ctx, changed, model.ApplyOptions{}); err != nil || r.Before == nil ||
		r.Record.WhoseItIs() != "bob" || r.Record.Network.Name != "bob/duo" {
		t.Errorf("%+v, %v", r.Record, err)
	}
	if r, err := n.with(n.tokens["bob"]).Network(ctx, "duo"); err != nil || r.Network.Slice.Packets != 777 {
		t.Errorf("%+v, %v", r.Network.Slice, err)
	}
	// What is given away must not be the second of its title there.
	give := func(of, to string) error {
		_, err := ada.Set(ctx, of, model.SetRequest{Values: []model.Assignment{{Key: "owner", Value: to}}})
		return err
	}
	refusedWith(t, "a second duo", give("bob/duo", "alice"), http.StatusConflict, "alice has a network duo already")
	if err := give("bob/duo", "zoe"); err != nil {
		t.Fatal(err)
	}
	if is, err := ada.Network(ctx, "zoe/duo"); err != nil || is.WhoseItIs() != "zoe" {
		t.Errorf("%+v, %v", is, err)
	}
	// Bob may have another by now, under another key.
	bob := n.with(n.tokens["bob"])
	if _, err := bob.Network(ctx, "duo"); !client.IsNotFound(err) {
		t.Errorf("what was given away is bob's still: %v", err)
	}
	if r, err := bob.Apply(ctx, duo("duo"), model.ApplyOptions{}); err != nil || r.Before != nil {
		t.Errorf("%+v, %v", r, err)
	}
	list, err := n.root.NetworkNames(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range list.Networks {
		if is.Owner == "zoe" && is.Key != n.keys["bob/duo"] || is.Owner == "bob" && is.Key == n.keys["bob/duo"] {
			t.Errorf("the key of %s's %s is %s by now", is.Owner, is.Title, is.Key)
		}
	}
}
