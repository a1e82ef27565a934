package api_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/system/attack"
)

// What owners may do, and see, through all that lists things.
func TestOwnersHaveTheirOwn(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	if err := o.root.Register(ctx, "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.root.Apply(ctx, duo("theirs"), model.ApplyOptions{Owner: "bob"}); err != nil {
		t.Fatal(err)
	}
	alice, viewer := o.user("alice", model.RoleOwner), o.user("vic", model.RoleViewer)
	applied, err := alice.Apply(ctx, duo("mine"), model.ApplyOptions{Owner: "bob"})
	if err != nil || applied.Record.Owner != "alice" {
		t.Fatalf("applied by alice it is %q's: %v", applied.Record.Owner, err)
	}
	_, err = alice.Apply(ctx, duo("bob/theirs"), model.ApplyOptions{})
	refusedWith(t, "bob's network", err, http.StatusForbidden, "theirs", "alice")
	_, err = alice.ApplyAll(ctx, []model.Document{{Network: duo("mine")}, {Network: duo("bob/theirs")}},
		model.ApplyOptions{})
	refusedWith(t, "bob's network among others", err, http.StatusForbidden, "theirs")
	given := duo("gift")
	given.Owner = "bob"
	_, err = alice.Apply(ctx, given, model.ApplyOptions{})
	refusedWith(t, "a network in bob's name", err, http.StatusForbidden, "bob")
	_, err = alice.Set(ctx, "mine", model.SetRequest{Values: []model.Assignment{{Key: "owner", Value: "bob"}}})
	refusedWith(t, "giving it to bob", err, http.StatusForbidden, "give")
	_, err = alice.Network(ctx, "theirs")
	refusedWith(t, "reading bob's", err, http.StatusNotFound)
	refusedWith(t, "deleting bob's", alice.Delete(ctx, "theirs", false), http.StatusNotFound)
	_, err = viewer.Apply(ctx, duo("vics"), model.ApplyOptions{})
	refusedWith(t, "a viewer's apply", err, http.StatusForbidden, "a viewer")

	sees := func(c *client.Client, want string) {
		t.Helper()
		var seen []string
		networks, err := c.Networks(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range networks {
			seen = append(seen, n.Name)
		}
		elements, err := c.Elements(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			seen = append(seen, e.ID.String())
		}
		links, err := c.Links(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			seen = append(seen, "link of "+l.Network)
		}
		d, err := c.Dump(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprintf("dumped %d,%d,%d", len(d.Networks), len(d.Elements), len(d.Links)))
		quotas, err := c.Quotas(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range quotas {
			seen = append(seen, string(q.Kind)+" "+q.Name)
		}
		events := map[string]bool{}
		if err := c.Events(ctx, 0, false, func(e model.Event) error {
			if e.Reason == "NetworkApplied" {
				events[e.Object] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprint(events))
		// Whoever sees all of them sees keys, which have numbers.
		if got := regexp.MustCompile(`\.\d{4}`).ReplaceAllString(strings.Join(seen, "; "), ".N"); got != want {
			t.Errorf("sees\n%s\nwant\n%s", got, want)
		}
	}
	sees(alice, "mine; mine/h1; mine/h2; link of mine; dumped 1,2,1; owner alice; network mine; map[mine:true]")
	sees(viewer, "mine.N; theirs; mine.N/h1; mine.N/h2; theirs/h1; theirs/h2; link of mine.N; link of theirs; "+
		"dumped 2,4,2; owner alice; owner bob; network mine.N; network theirs; map[mine.N:true theirs:true]")
	if _, err := alice.Dump(ctx, "theirs"); !client.IsNotFound(err) {
		t.Errorf("a dump of bob's: %v", err)
	}
	// What is made anew under a name has no past of others'.
	if err := viewer.Metrics(ctx, io.Discard); err != nil {
		t.Errorf("metrics over TLS: %v", err)
	}
	refusedWith(t, "everybody's metrics", alice.Metrics(ctx, io.Discard), http.StatusForbidden)

	// A token that is revoked ends what goes on with it.
	token := o.token(model.TokenRequest{User: "carol", Role: model.RoleViewer})
	carol := o.with(token.Text)
	begun, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- carol.WatchDump(ctx, "", func(model.Dump) error {
			select {
			case begun <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	<-begun
	if _, err := o.root.RevokeToken(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil {
		t.Error("the watch has ended as if all had been told")
	}
	_, err = carol.Whoami(ctx)
	refusedWith(t, "a revoked token", err, http.StatusUnauthorized, "revoked")
}

// What is a node's own, its devices and its uplink, only an admin gives away.
func TestOwnersTakeNothingOfTheMachine(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	if err := o.root.Register(ctx, "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	alice := o.user("alice", model.RoleOwner)
	out := duo("out")
	out.Edges = []model.Edge{{Name: "internet", End: model.End{Element: "h1", Interface: "internet"},
		Internet: &model.Internet{}}}
	_, err := alice.Apply(ctx, out, model.ApplyOptions{})
	refusedWith(t, "the machine's uplink", err, http.StatusForbidden, "uplink of node base")
	out.Owner = "alice"
	if _, err := o.root.Apply(ctx, out, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	out.Owner = ""
	if r, err := alice.Apply(ctx, out, model.ApplyOptions{}); err != nil || r.Record.Network.Owner != "alice" {
		t.Errorf("what an admin gave her: %q, %v", r.Record.Network.Owner, err)
	}
	out.Edges[0].Internet.Forwards = []model.Forward{{Port: 22, Element: "h1", To: 22}}
	_, err = alice.Apply(ctx, out, model.ApplyOptions{})
	refusedWith(t, "a port of the machine", err, http.StatusForbidden, "uplink")
	roomy := host("far")
	roomy.CPU = 16000
	far, _, _, err := o.join(o.token(model.TokenRequest{}).Text, roomy)
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Register(ctx, "far", model.Registration{}); err != nil {
		t.Fatal(err)
	}
	// When the node of an element has gone, what is set places it anew.
	out.Name, out.Owner, out.Edges[0].Internet.Forwards = "away", "alice", nil
	out.Elements[0].CPU = 8000 // more than base has
	if _, err := o.root.Apply(ctx, out, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := o.root.RemoveNode(ctx, "far"); err != nil {
		t.Fatal(err)
	}
	smaller := model.SetRequest{Object: "h1", Values: []model.Assignment{{Key: "cpu", Value: "1"}}}
	_, err = alice.Set(ctx, "away", smaller)
	refusedWith(t, "another machine's uplink", err, http.StatusForbidden, "uplink of node base")
	if _, err := o.root.Set(ctx, "away", smaller); err != nil {
		t.Errorf("by an admin: %v", err)
	}
}

// Whatever an owner calls a network, its events are all that the owner sees.
func TestOwnersSeeNoEventsOfThePlatform(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	if err := o.root.Register(ctx, "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	alice := o.user("alice", model.RoleOwner)
	for _, name := range []string{"token", "manager", "base", "n1", "carol"} {
		if _, err := alice.Apply(ctx, duo(name), model.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n1, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("n1"))
	if err != nil {
		t.Fatal(err)
	}
	// A node does not say whose an event is.
	if err := n1.Report(ctx,
		model.Report{Node: "n1",
			Events: []model.Event{{Object: "n1", Network: "n1", Reason: "FabricChanged"}}}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []model.QuotaKind{model.QuotaOfOwner, model.QuotaOfNetwork} {
		if _, err := o.root.SetQuota(ctx, kind, "carol",
			model.QuotaRequest{Values: []model.Assignment{{Key: "elements", Value: "9"}}}); err != nil {
			t.Fatal(err)
		}
	}
	told := func(c *client.Client) map[string]int {
		t.Helper()
		reasons := map[string]int{}
		if err := c.Events(ctx, 0, false, func(e model.Event) error {
			reasons[e.Reason]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return reasons
	}
	all := told(o.root)
	for _, reason := range []string{"TokenCreated", "NodeJoined", "FabricChanged", "ManagerStarted"} {
		if all[reason] == 0 {
			t.Errorf("root is told of no %s: %v", reason, all)
		}
	}
	if hers := told(alice); all["QuotaSet"] != 2 || hers["QuotaSet"] != 1 ||
		hers["NetworkApplied"] != 5 || len(hers) != 2 {
		t.Errorf("alice is told of %v, root of %v", hers, all)
	}
}

// What an owner has begun with a network ends when it is somebody else's.
func TestWhatIsOpenEndsWithTheOwnership(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	n1, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("n1"))
	if err != nil {
		t.Fatal(err)
	}
	states, _ := agentOf(t, n1, "n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet { // a check's
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "begun")
		http.NewResponseController(w).Flush() //nolint:errcheck // the reader waits for it
		<-r.Context().Done()
	}))
	<-states
	lab := duo("lab")
	lab.Owner, lab.Elements[0].Node, lab.Elements[1].Node = "alice", "n1", "n1"
	if _, err := o.root.Apply(ctx, lab, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n1.Report(ctx, model.Report{Node: "n1", Revision: (<-states).Revision}); err != nil {
		t.Fatal(err)
	}
	follow := func(c *client.Client) (ended <-chan error) {
		t.Helper()
		logs, err := c.Logs(ctx, model.ID{Network: "lab", Element: "h1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { logs.Close() })
		if _, err := io.ReadFull(logs, make([]byte, len("begun"))); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(logs)
			over <- err
		}()
		return over
	}
	set := func(key, value string) {
		t.Helper()
		if _, err := o.root.Set(ctx, "lab",
			model.SetRequest{Values: []model.Assignment{{Key: key, Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
	alice, boss := o.user("alice", model.RoleOwner), o.user("boss", model.RoleAdmin)
	hers, admins := follow(alice), follow(boss)
	checked := make(chan error, 1)
	go func() {
		_, err := alice.Check(ctx, "lab", model.CheckRequest{Mesh: true, Wait: time.Hour})
		checked <- err
	}()
	set("owner", "bob")
	if err := <-hers; err == nil {
		t.Error("alice's logs have ended as if they were all")
	}
	refusedWith(t, "alice's check", <-checked, http.StatusNotFound, "alice has no network lab")
	_, err = alice.Logs(ctx, model.ID{Network: "lab", Element: "h1"}, false)
	refusedWith(t, "bob's logs", err, http.StatusNotFound)
	// Changes of other kinds end nothing.
	bobs := follow(o.user("bob", model.RoleOwner))
	set("cpu", "1")
	select {
	case err := <-admins:
		t.Errorf("an admin's logs end: %v", err)
	case err := <-bobs:
		t.Errorf("bob's logs end although the network stays his: %v", err)
	default:
	}
	if err := o.root.Delete(ctx, "lab", false); err != nil {
		t.Fatal(err)
	}
	if err := n1.Report(ctx, model.Report{Node: "n1", Revision: (<-states).Revision + 100}); err != nil {
		t.Fatal(err)
	}
	if err := <-bobs; err == nil {
		t.Error("the logs of a deleted network have ended as if they were all")
	}
}

// What an administrator cut off, and an administrator's policy, no owner gets rid of by deleting and making anew.
func TestOwnersDoNotEscapeQuarantine(t *testing.T) {
	attack.Tell(t, "an owner deletes what is in quarantine and makes it anew",
		"it is in quarantine again")
	dirs := openDirs(t)
	o := openTo(t, dirs, ground)
	ctx := t.Context()
	if err := o.root.Register(ctx, "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	alice, bob := o.user("alice", model.RoleOwner), o.user("bob", model.RoleOwner)
	h1 := model.ID{Network: "lab", Element: "h1"}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(c *client.Client, doc model.Network) {
		t.Helper()
		_, err := c.Apply(ctx, doc, model.ApplyOptions{})
		ok(err)
	}
	remove := func(c *client.Client) {
		t.Helper()
		ok(c.Delete(ctx, "lab", false))
		for range 2000 {
			o.root.Report(ctx, model.Report{Node: "base", Revision: 1 << 40}) //nolint:errcheck // it is tried again
			if _, err := o.root.Network(ctx, "lab"); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatal("the network does not go")
	}
	// listed is what is said of h1, to somebody.
	listed := func(c *client.Client) (v model.PolicyView) {
		t.Helper()
		all, err := c.Policies(ctx, "")
		ok(err)
		for _, is := range all {
			if is.ID.Element == h1.Element && is.Title == h1.Network {
				return is
			}
		}
		return v
	}
	cutOff := func(want bool) {
		t.Helper()
		r, err := o.root.Network(ctx, "lab")
		ok(err)
		if is := r.Overrides["h1"]; is.Quarantined != want || is.Held != want {
			t.Errorf("h1 is %+v; cut off by an administrator: want %v", is, want)
		}
	}
	without := duo("lab")
	without.Elements[0].Name = "h9"
	for i := range without.Links {
		for k := range without.Links[i].Ends {
			if without.Links[i].Ends[k].Element == "h1" {
				without.Links[i].Ends[k].Element = "h9"
			}
		}
		without.Links[i].Name = "h9--h2"
	}

	apply(alice, duo("lab"))
	_, err := o.root.Quarantine(ctx, h1, "scans the others")
	ok(err)
	_, err = o.root.SetPolicy(ctx, "lab", model.PolicyRequest{Attack: model.AttackStop})
	ok(err)
	remove(alice)
	if v := listed(o.root); !v.Quarantined || !strings.Contains(v.Reason, "scans the others") ||
		!strings.Contains(v.Reason, "alice") {
		t.Errorf("of what alice deleted is listed %+v", v)
	}
	if v := listed(alice); !v.Quarantined {
		t.Errorf("alice sees %+v", v)
	}
	if v := listed(bob); v.Quarantined {
		t.Errorf("bob sees %+v", v)
	}
	_, err = alice.Act(ctx, h1, model.ActionRelease)
	refusedWith(t, "a release of what is deleted", err, http.StatusNotFound)

	// Bob's of the same name is another.
	apply(bob, duo("lab"))
	cutOff(false)
	remove(bob)
	apply(alice, duo("lab"))
	cutOff(true)
	if v := listed(alice); v.Attack != model.AttackStop || !v.Administrator || strings.Contains(v.Reason, "kept") {
		t.Errorf("made anew it is listed as %+v", v)
	}
	_, err = alice.Act(ctx, h1, model.ActionRelease)
	refusedWith(t, "a release of what is made anew", err, http.StatusForbidden, "administrator")

	// Nor by a file without it in between.
	apply(alice, without)
	if v := listed(o.root); !v.Quarantined {
		t.Errorf("of what alice took out is listed %+v", v)
	}
	apply(alice, duo("lab"))
	cutOff(true)

	// An administrator releases it: what is there and what is kept.
	remove(alice)
	hers := model.ID{Network: "alice/lab", Element: "h1"} // bob's was deleted, too
	if r, err := o.root.Act(ctx, hers, model.ActionRelease); err != nil || !r.Changed {
		t.Errorf("released: %+v, %v", r, err)
	}
	if _, err := o.root.Act(ctx, hers, model.ActionRelease); err == nil {
		t.Error("what is released and deleted is released once more")
	}
	_, err = o.root.SetPolicy(ctx, hers.Network, model.PolicyRequest{})
	ok(err)
	apply(alice, duo("lab"))
	cutOff(false)
	if v := listed(alice); v.Administrator {
		t.Errorf("the policy that was taken back counts: %+v", v)
	}

	// Nor does it help to have cut it off oneself before an administrator does.
	if _, err := alice.Quarantine(ctx, h1, "to be safe"); err != nil {
		t.Fatal(err)
	}
	if r, err := o.root.Quarantine(ctx, h1, "scans again"); err != nil || !r.Changed {
		t.Errorf("an administrator's quarantine after the owner's: %+v, %v", r, err)
	}
	cutOff(true)
	_, err = alice.Act(ctx, h1, model.ActionRelease)
	refusedWith(t, "a release of what both cut off", err, http.StatusForbidden, "scans again")
	_, err = o.root.Act(ctx, h1, model.ActionRelease)
	ok(err)

	// And whoever deletes as an administrator ends it.
	_, err = o.root.Quarantine(ctx, h1, "again")
	ok(err)
	remove(o.root)
	apply(alice, duo("lab"))
	cutOff(false)
}

// Owners learn no names of others' networks: not from what is refused to them, nor from what nodes hold.
func TestOwnersLearnNoNames(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	if err := o.root.Register(ctx, "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.root.Apply(ctx, duo("secret"), model.ApplyOptions{Owner: "bob"}); err != nil {
		t.Fatal(err)
	}
	err := o.root.Report(ctx,
		model.Report{Node: "base",
			Held: []model.HeldNetwork{{Name: "lost", Index: 77, Elements: 1, Why: "another store"}}})
	if err != nil {
		t.Fatal(err)
	}
	alice, viewer := o.user("alice", model.RoleOwner), o.user("vic", model.RoleViewer)
	for _, name := range []string{"secret", "lost", "nothing"} {
		_, err := alice.Policies(ctx, name)
		refusedWith(t, "policies of "+name, err, http.StatusNotFound, "user alice has no network "+name)
		if name == "nothing" && strings.Contains(err.Error(), "secret") {
			t.Errorf("a refusal tells of others' networks: %v", err)
		}
	}
	for who, c := range map[string]*client.Client{"alice": alice, "vic": viewer} {
		nodes, err := c.Nodes(ctx)
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%+v, %v", nodes, err)
		}
		if held := len(nodes[0].Held) > 0; held != (who == "vic") {
			t.Errorf("%s is told that the node holds %v", who, nodes[0].Held)
		}
	}
	_, err = alice.Apply(ctx, duo("mine"), model.ApplyOptions{})
	refusedWith(t, "a network on a node that holds another", err, http.StatusConflict, "administrator")
	if strings.Contains(err.Error(), "lost") {
		t.Errorf("a refusal tells what the node holds: %v", err)
	}
}

// What an owner may have whom nobody has given a quota: the defaults bind who asks with an owner's token, what an
// administrator says of all owners comes before them, and what is said of this one before that.
func TestOwnersHaveDefaultQuotas(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	if err := o.root.Register(t.Context(), "base", model.Registration{Socket: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	alice := o.user("alice", model.RoleOwner)
	hosts := func(name string, n int) model.Network {
		net := model.Network{Name: name}
		for i := range n {
			net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("h%d", i), Kind: model.Host})
		}
		return net
	}
	apply := func(net model.Network) error {
		_, err := alice.Apply(t.Context(), net, model.ApplyOptions{})
		return err
	}
	quota := func(name, key, value string) {
		t.Helper()
		if _, err := o.root.SetQuota(t.Context(), model.QuotaOfOwner, name,
			model.QuotaRequest{Values: []model.Assignment{{Key: key, Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
	refusedWith(t, "one element too many", apply(hosts("big", model.Quotas{}.OfOwner("").Elements+1)),
		http.StatusUnprocessableEntity, "quota of elements is 2000")
	routers := func(name string) model.Network {
		net := model.Network{Name: name}
		for i := range 11 {
			net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router,
				Software: model.SoftwareBIRD, Node: "base", Amounts: model.Amounts{Memory: 16 << 20},
				Config: map[string]string{"bird.conf": "#" + strings.Repeat(name, 1<<20-1)}})
		}
		return net
	}
	for _, name := range []string{"a", "b"} {
		if err := apply(routers(name)); err != nil {
			t.Fatal(err)
		}
	}
	refusedWith(t, "more configuration than may be stored", apply(routers("c")), http.StatusUnprocessableEntity,
		"quota of stored bytes is 32MiB")
	for i := range (model.Quotas{}).OfOwner("").Networks - 2 {
		if err := apply(hosts(fmt.Sprintf("n%d", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	refusedWith(t, "one network too many", apply(hosts("more", 1)), http.StatusUnprocessableEntity,
		"quota of networks is 100")
	quota(model.EveryOwner, "networks", "102")
	if err := apply(hosts("more", 1)); err != nil {
		t.Errorf("with more for every owner: %v", err)
	}
	quota("alice", "networks", "101")
	refusedWith(t, "less for this one", apply(hosts("most", 1)), http.StatusUnprocessableEntity,
		"quota of networks is 101")
}
