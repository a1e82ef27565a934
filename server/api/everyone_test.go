package api_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
	"github.com/polyplane/polyplane/trust"
)

// Everybody asks for everything that the API's own document says there is, of a whole manager, over TLS and over its
// socket. An operation that is added to the API fails this test until somebody has written down here who may use it.

// whoMayUse are the callers that are let through, by the operation's ID; all others must be refused. "owner" is the one
// whose network it is, "other" another owner, "n1" the node that is named and "n2" another one.
var whoMayUse = map[string]string{
	"authority": "everybody", "join": "everybody",

	"ping": "users", "whoami": "users", "substrate": "users", "substrate-links": "users", "nodes": "users",
	"networks": "users", "elements": "users", "links": "users", "dump": "users", "events": "users", "quotas": "users",
	"policies": "users", "images": "users", "kept-tree": "users", "trash": "users", "names": "users",
	"what-if": "users",
	"moves":   "users",

	"network": "root admin viewer owner", "logs": "root admin viewer owner", "running": "root admin viewer owner",
	"fib": "root admin viewer owner", "trace": "root admin viewer owner", "tree": "root admin viewer owner",

	"files": "root admin owner", "put-files": "root admin owner", "keep": "root admin owner", "disk": "root admin owner",
	"set": "root admin owner", "delete": "root admin owner", "check": "root admin owner", "faults": "root admin owner",
	"act": "root admin owner", "move": "root admin owner", "exec": "root admin owner", "console": "root admin owner", "capture": "root admin owner",

	// Whose the networks, images and files are that these name, the manager looks at.
	"apply": "root admin owner other", "apply-all": "root admin owner other", "put-image": "root admin owner other",
	"remove-image": "root admin owner other", "restore-trash": "root admin owner other",

	"forget": "root admin", "set-policy": "root admin", "recover": "root admin", "backup": "root admin",
	"empty-trash": "root admin", "set-quota": "root admin", "tokens": "root admin", "create-token": "root admin",
	"revoke-token": "root admin", "remove-node": "root admin",

	"register": "root n1", "desired": "root n1", "report": "root n1", "measures": "root n1", "beat": "root n1",
	"discovery":  "root n1",
	"node-image": "root n1", "renew": "n1", "tunnel": "n1", "node": "users n1",
}

// apiOperation is one of the API's document.
type apiOperation struct {
	ID           string          `json:"operationId"`
	RequestBody  json.RawMessage `json:"requestBody"`
	method, path string
}

// operations are those of the API's document, which anybody may read.
func (e *everyone) operations(t *testing.T) (all []apiOperation) {
	t.Helper()
	resp, err := e.callers[0].client.Get("http://polyplane/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op := apiOperation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(doc.Paths[path][method], &op); err != nil || op.ID == "" {
				t.Fatalf("%s %s: an operation without an ID: %v", method, path, err)
			}
			all = append(all, op)
		}
	}
	return all
}

// state is everything that a refused request could have changed.
func (e *everyone) state(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	d, err := e.root.Dump(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := e.root.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := e.root.Quotas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := e.root.Policies(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	images, err := e.root.Images(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, n := range d.Nodes { // what they report changes by itself
		nodes = append(nodes, n.Name)
	}
	b, err := json.Marshal([]any{d.Networks, d.Elements, d.Links, nodes, tokens, quotas, policies, images})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEverybodyAsksForEverything(t *testing.T) {
	attack.Tell(t, "everybody – without a token, with one that is revoked, expired, for a host or somebody "+
		"else's, with a node's certificate, a removed node's, another authority's – asks for every operation of the API",
		"whoever may not is refused, nothing changes, and nothing of it reaches a node")
	e := letIn(t)
	operations := e.operations(t)
	described := map[string]bool{}
	for _, op := range operations {
		if described[op.ID] = true; whoMayUse[op.ID] == "" {
			t.Errorf("%s (%s %s) is new: say in whoMayUse who may use it", op.ID, op.method, op.path)
		}
	}
	for id := range whoMayUse {
		if !described[id] {
			t.Errorf("whoMayUse tells of %s, and there is no such operation", id)
		}
	}
	fill := func(path, network string) string {
		return strings.NewReplacer("{network}", network, "{element}", "h1", "{node}", "n1", "{kind}", "owner",
			"{name}", "owner", "{id}", "nothing", "{image}", "sha256:"+strings.Repeat("0", 64)).Replace(path)
	}
	// Nothing that is understood is sent, so that whoever is let through does nothing either.
	body := func(op apiOperation) []byte {
		if op.RequestBody != nil {
			return []byte(`"nonsense"`)
		}
		return nil
	}
	before := e.state(t)
	for _, op := range operations {
		for _, c := range e.callers {
			if c.mayUse(whoMayUse[op.ID]) {
				continue
			}
			status, words := e.ask(t, c, op.method, fill(op.path, ownersNetwork), body(op))
			// Of others' networks an owner does not learn that there are any.
			hidden := c.name == "other" && status == http.StatusNotFound &&
				strings.Contains(words, "user other has no network "+ownersNetwork)
			if !hidden && status != http.StatusUnauthorized && status != http.StatusForbidden &&
				!(c.strange && status == 0) {
				t.Errorf("%s %s by %s: status %d, want a refusal: %s", op.method, op.path, c.name, status, words)
			}
			if strings.Contains(words, "nonsense") {
				t.Errorf("%s %s by %s: the request was looked at before who asks: %s", op.method, op.path, c.name, words)
			}
		}
	}
	if after := e.state(t); after != before {
		t.Errorf("requests that were refused have changed something: before\n%s\nafter\n%s", before, after)
	}
	if n := e.asked.Load(); n > 0 {
		t.Errorf("%d requests that were refused have reached the node", n)
	}
	// What whoever may gets is anything else than a refusal of who asks. What deletes comes last, on something that is
	// not there but for the owner.
	late := []apiOperation{}
	let := func(op apiOperation) {
		for _, c := range e.callers {
			if !c.mayUse(whoMayUse[op.ID]) {
				continue
			}
			network := ownersNetwork
			if op.ID == "delete" && c.name != "owner" || op.ID == "forget" {
				network = "nothing"
			}
			path := fill(op.path, network)
			if op.ID == "remove-node" {
				path = strings.Replace(path, "n1", "nothing", 1)
			}
			status, words := e.ask(t, c, op.method, path, body(op))
			refused := status == http.StatusForbidden || status == 0 || strings.Contains(words, "has no network")
			// A join is asked for with the token in it.
			if status == http.StatusUnauthorized && op.ID != "join" || refused {
				t.Errorf("%s %s by %s: status %d: %s", op.method, op.path, c.name, status, words)
			}
		}
	}
	for _, op := range operations {
		if op.ID == "delete" {
			late = append(late, op)
			continue
		}
		let(op)
	}
	if e.asked.Load() == 0 {
		t.Error("nothing has reached the node")
	}
	for _, op := range late {
		let(op)
	}
	// What is not in the document.
	for path, who := range map[string]string{"/metrics": "root admin viewer", "/v1/nonsense": "everybody",
		"/openapi.json": "everybody"} {
		for _, c := range e.callers {
			status, words := e.ask(t, c, http.MethodGet, path, nil)
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden || status == 0
			if refused == c.mayUse(who) {
				t.Errorf("GET %s by %s: status %d: %s", path, c.name, status, words)
			}
		}
	}
}

// Whatever is asked for, nobody learns of another owner's network, nor a node of one that is not placed on it: not its
// name, nor those of its elements and images. Nobody at all learns a token's secret.
func TestNobodyReadsWhatIsOthers(t *testing.T) {
	attack.Tell(t, "an owner and a node ask for all that the API tells", "nothing of it is of others")
	e := letIn(t)
	ctx := t.Context()
	set := func(kind model.QuotaKind, name string) {
		t.Helper()
		if _, err := e.root.SetQuota(ctx, kind, name,
			model.QuotaRequest{Values: []model.Assignment{{Key: "elements", Value: "9"}}}); err != nil {
			t.Fatal(err)
		}
	}
	set(model.QuotaOfNetwork, ownersNetwork)
	set(model.QuotaOfOwner, ownersNetwork+"-lover")
	if _, err := e.root.SetPolicy(ctx, ownersNetwork, model.PolicyRequest{Attack: model.AttackStop}); err != nil {
		t.Fatal(err)
	}
	secret := e.token(model.TokenRequest{User: ownersNetwork + "-lover", Role: model.RoleOwner})
	parsed, err := trust.ParseToken(secret.Text)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{} // by caller, how many answers tell of the owner's network
	for _, op := range e.operations(t) {
		if op.method != http.MethodGet {
			continue
		}
		path := strings.NewReplacer("{network}", ownersNetwork, "{element}", "h1", "{image}", e.image).Replace(op.path)
		for _, c := range e.callers {
			for _, node := range []string{"n1", "n2"} {
				if node == "n2" && !strings.Contains(path, "{node}") {
					continue
				}
				status, answer := e.read(t, c, strings.Replace(path, "{node}", node, 1))
				if strings.Contains(answer, parsed.Secret) {
					t.Errorf("%s by %s: a token's secret is told", path, c.name)
				}
				if status >= http.StatusBadRequest || !strings.Contains(answer, ownersNetwork) {
					continue
				}
				told[c.name]++
				if c.name == "other" || c.name == "n2" {
					t.Errorf("%s %s: %s is told of the owner's network: %.2000s", op.ID, path, c.name, answer)
				}
			}
		}
	}
	for _, c := range []string{"root", "admin", "viewer", "owner", "n1"} {
		if told[c] == 0 {
			t.Errorf("%s is told nothing of the owner's network either: this test sees nothing (%v)", c, told)
		}
	}
	// Images, which tell no name.
	for node, want := range map[string]int{"n1": http.StatusOK, "n2": http.StatusNotFound} {
		for _, c := range e.callers {
			if c.name != node {
				continue
			}
			status, answer := e.read(t, c, "/v1/nodes/"+node+"/images/"+e.image)
			if status != want || want == http.StatusNotFound && !strings.Contains(answer, "no element that is placed") {
				t.Errorf("%s asks for the image of an element on n1: status %d: %.300s", node, status, answer)
			}
		}
	}
}

// read reads what is answered within half a second: streams go on.
func (e *everyone) read(t *testing.T, c *caller, path string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.scheme+"://"+e.server+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	time.AfterFunc(500*time.Millisecond, cancel)
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b)
}
