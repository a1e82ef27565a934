package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api/client"
)

var update = flag.Bool("update", false, "write the golden files anew")

// now is the instant at which all tests take place.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fake is an instance in memory.
type fake struct {
	images   []model.Image
	cut      int             // so many times the manager ends while an image is sent
	stuck    bool            // images are taken for ever
	sent     []model.Network // what was applied
	down     bool            // the instance does not run
	dump     model.Dump
	records  map[string]model.Record
	events   []model.Event
	dumps    []model.Dump // what a watch sees, one after the other
	checked  model.CheckResult
	capture  []byte
	policies []model.PolicyView
	refusals map[string]error // of Apply, by network
	late     int              // so many questions for nodes until the agent of n2 has reported
	edited   []string         // elements that keep their own configuration once something is applied
	slow     int              // so many polls until an applied network runs
	fails    bool             // an applied network fails
	never    bool             // an applied network stays pending
	trouble  int              // so many questions for elements until r1 has failed no more
	mute     time.Time        // until then nothing is heard of an applied network's nodes

	applied  []model.ApplyOptions // real ones, not dry runs
	acted    []string
	deleted  []string
	inside   func(control.Command, control.Stdio) (int, error) // does what commands do
	commands []control.Command
	exit     int
	requests int
	revision int64 // the nodes' desired state's
	// conflicts is how often somebody else changes a network between plan and apply.
	conflicts int
	quotas    []model.QuotaStatus
	trash     model.TrashList
	restored  []model.TrashRequest
	patience  time.Duration // of apply and plan with agents
	tokens    []model.Token
	fib       func(model.FIBRequest) model.FIB
	tree      *model.Tree
	traced    map[string]model.Trace
	running   map[string]model.Running // by element
	trees     map[string][]byte        // likewise
	keptTrees map[string][]byte        // by ID
	unpacked  map[model.ID][]byte
	kept      []string
	full      string        // the element whose disk is full
	who       *model.Whoami // who asks; alice when nil
	me        string        // whose own networks are called by their titles
	requested []model.TokenRequest
}

func (f *fake) up() error {
	f.requests++
	if f.down {
		// The real client's own error, from a socket that does not exist.
		_, err := client.NewSocket("/nonexistent/polyplane.sock", "default").Ping(context.Background())
		return err
	}
	return nil
}

func (f *fake) Ping(context.Context) (model.Pong, error) {
	return model.Pong{Instance: "default", Started: now.Add(-time.Hour), Networks: len(f.dump.Networks), Nodes: 2,
		Ready: 2, Revision: f.revision}, f.up()
}

func (f *fake) Networks(context.Context) ([]model.NetworkStatus, error) {
	if err := f.up(); err != nil {
		return nil, err
	}
	for i := range f.dump.Networks {
		n := &f.dump.Networks[i]
		if n.Phase == model.PhasePending && len(f.applied) > 0 && !f.never {
			if f.slow--; f.slow <= 0 {
				n.Phase, n.Running = model.PhaseRunning, n.Elements
				if f.fails {
					n.Phase, n.Running, n.Failed = model.PhaseFailed, 0, n.Elements
				}
			}
		}
	}
	if len(f.applied) > 0 && time.Now().Before(f.mute) {
		unknown := slices.Clone(f.dump.Networks)
		for i := range unknown {
			unknown[i].Phase = model.PhaseUnknown
		}
		return unknown, nil
	}
	return f.dump.Networks, nil
}

// NetworkNames are those of the dump; nobody owns those that say nothing of it.
func (f *fake) NetworkNames(context.Context) (model.NameList, error) {
	list := model.NameList{User: f.me}
	for _, n := range f.dump.Networks {
		is := model.CalledNetwork{Name: n.Name, Title: n.Name}
		if n.Title != "" {
			is.Owner, is.Title = n.Owner, n.Title
		}
		list.Networks = append(list.Networks, is)
	}
	return list, nil
}

func (f *fake) Nodes(context.Context) ([]model.NodeStatus, error) {
	if f.late > 0 {
		if f.late--; f.late == 0 {
			f.dump.Nodes[1].LastSeen = now
		}
	}
	return f.dump.Nodes, f.up()
}

func (f *fake) Elements(_ context.Context, network string) ([]model.ElementView, error) {
	var out []model.ElementView
	for _, e := range f.dump.Elements {
		if e.ID.Element == "r1" && f.trouble > 0 {
			f.trouble--
			e.Phase, e.Message = model.PhaseFailed, "the next try mends it"
		}
		if len(f.applied) > 0 && slices.Contains(f.edited, e.ID.Element) {
			e.Message = "keeps its own configuration; `polyplane apply --overwrite`\nreplaces it"
		}
		if network == "" || e.ID.Network == network {
			out = append(out, e)
		}
	}
	return out, f.up()
}

func (f *fake) Links(_ context.Context, network string) ([]model.LinkStatus, error) {
	var out []model.LinkStatus
	for _, l := range f.dump.Links {
		if network == "" || l.Network == network {
			out = append(out, l)
		}
	}
	return out, f.up()
}

func (f *fake) SubstrateLinks(context.Context) ([]model.SubstrateLinkStatus, error) {
	return f.dump.Substrate, f.up()
}

func (f *fake) Metrics(_ context.Context, w io.Writer) error {
	if err := f.up(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "polyplane_info 1\n")
	return err
}

func (f *fake) Whoami(context.Context) (model.Whoami, error) {
	if f.who != nil {
		return *f.who, f.up()
	}
	return model.Whoami{Instance: "default", User: "alice", Role: model.RoleOwner}, f.up()
}

func (f *fake) Authority(context.Context) ([]byte, error) { return []byte("-----BEGIN\n"), f.up() }

func (f *fake) Tokens(context.Context) ([]model.Token, error) { return f.tokens, f.up() }

func (f *fake) CreateToken(_ context.Context, r model.TokenRequest) (model.TokenResult, error) {
	f.requested = append(f.requested, r)
	t := model.Token{ID: "k3v7qmz2ab", User: r.User, Role: r.Role, Node: r.Node, Created: now,
		Expires: now.Add(time.Hour)}
	return model.TokenResult{Token: t, Text: "pp1.text", Servers: []string{"192.0.2.1:7455", "server1:7455"}}, f.up()
}

func (f *fake) RevokeToken(_ context.Context, id string) (model.Token, error) {
	for _, t := range f.tokens {
		if t.ID == id {
			return t, nil
		}
	}
	return model.Token{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no token " + id}
}

func (f *fake) RemoveNode(_ context.Context, node string) error {
	f.deleted = append(f.deleted, "node/"+node)
	return f.up()
}

func (f *fake) Dump(context.Context, string) (model.Dump, error) {
	if len(f.dumps) > 0 {
		d := f.dumps[0]
		f.dumps = f.dumps[1:]
		return d, f.up()
	}
	return f.dump, f.up()
}

func (f *fake) Network(_ context.Context, name string) (model.Record, error) {
	if err := f.up(); err != nil {
		return model.Record{}, err
	}
	r, ok := f.records[name]
	if !ok {
		return r, &client.Error{Status: http.StatusNotFound, Detail: "there is no network " + name}
	}
	return r, nil
}

func (f *fake) ApplyAll(_ context.Context, documents []model.Document,
	o model.ApplyOptions) ([]model.ApplyResult, error) {
	if err := f.up(); err != nil {
		return nil, err
	}
	for _, n := range f.dump.Nodes {
		if n.LastSeen.IsZero() {
			return nil, &client.Error{Status: http.StatusServiceUnavailable, Detail: "the agent of node " + n.Name +
				" has not reported"}
		}
	}
	for _, d := range documents {
		if err := f.refusals[d.Network.Name]; err != nil {
			return nil, err
		}
	}
	if !o.DryRun && f.conflicts > 0 {
		f.conflicts--
		name := documents[0].Network.Name
		r := f.records[name]
		r.Revision++
		f.records[name] = r
		return nil, &client.Error{Status: http.StatusConflict, Detail: "network " + name + " was changed meanwhile"}
	}
	var results []model.ApplyResult
	for _, d := range documents {
		results = append(results, f.applyOne(d, o))
	}
	return results, nil
}

func (f *fake) applyOne(d model.Document, o model.ApplyOptions) model.ApplyResult {
	n := d.Network
	result := model.ApplyResult{Record: model.Record{Network: n, Revision: 1}, Changed: true}
	if before, ok := f.records[n.Name]; ok {
		result.Before = &before
		result.Record.Revision = before.Revision + 1
		result.Changed = len(before.Network.Elements) != len(n.Elements) || o.Overwrite
		if o.Overwrite {
			result.Notes = []string{"edited inside r1"}
		}
		if len(before.Network.Elements) == len(n.Elements) && o.Overwrite {
			result.Record.Network = before.Network
		}
		if !result.Changed {
			result.Record = before
		}
	}
	if !o.DryRun {
		f.sent = append(f.sent, n)
	}
	if !o.DryRun && result.Changed {
		o.Base = d.Base
		f.applied = append(f.applied, o)
		f.dump.Networks = append(f.dump.Networks, model.NetworkStatus{Name: n.Name, Phase: model.PhasePending,
			Elements: len(n.Elements), Links: len(n.Links), Revision: result.Record.Revision})
		for _, e := range n.Elements {
			f.dump.Elements = append(f.dump.Elements,
				model.ElementView{Element: model.Rephased(e, []model.ResolvedInterface(nil)),
					ElementStatus: model.ElementStatus{
						ID: model.ID{Network: n.Name, Element: e.Name}, Phase: model.PhaseFailed, Node: "n1",
						Message: "no disk space"}})
		}
	}
	return result
}

func (f *fake) Images(context.Context) ([]model.Image, error) { return f.images, nil }

func (f *fake) NameImage(_ context.Context, id, name string) (model.Image, error) {
	for i := range f.images {
		if f.images[i].ID == id {
			if name != "" {
				f.images[i].Names = append(f.images[i].Names, name)
			}
			return f.images[i], nil
		}
	}
	return model.Image{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no image"}
}

func (f *fake) KeptTree(_ context.Context, id string) (io.ReadCloser, error) {
	data, ok := f.keptTrees[id]
	if !ok {
		return nil, &client.Error{Status: http.StatusNotFound, Detail: "there is no tree"}
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (f *fake) PutImage(ctx context.Context, id, name string, size int64, r io.Reader) (model.Image, error) {
	if f.cut > 0 { // the manager ends
		f.cut--
		io.CopyN(io.Discard, r, 1<<10) //nolint:errcheck // as it is
		return model.Image{}, fmt.Errorf("write unix: %w", syscall.EPIPE)
	}
	if f.stuck {
		<-ctx.Done()
		return model.Image{}, ctx.Err()
	}
	data, err := io.ReadAll(r)
	n := int64(len(data))
	if name == "" {
		if f.keptTrees == nil {
			f.keptTrees = map[string][]byte{}
		}
		f.keptTrees[id] = data
	}
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes were sent, and %d announced", n, size)
	}
	is := model.Image{ID: id, Names: []string{name}, Size: model.Bytes(n), Unpacked: 1 << 20, Files: 1}
	f.images = append(f.images, is)
	return is, err
}

func (f *fake) RemoveImage(_ context.Context, of string) (model.Image, error) {
	for i, is := range f.images {
		if slices.Contains(is.Names, of) {
			f.images = slices.Delete(f.images, i, i+1)
			return is, nil
		}
	}
	return model.Image{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no image " + of}
}

func (f *fake) Trash(context.Context) (model.TrashList, error) { return f.trash, nil }

func (f *fake) RestoreTrash(_ context.Context, request model.TrashRequest) error {
	f.restored = append(f.restored, request)
	return nil
}

func (f *fake) EmptyTrash(context.Context, []string) error { return nil }

func (f *fake) RenewDisk(context.Context, model.ID) error { return nil }

func (f *fake) Recover(context.Context, model.RecoverRequest) (model.RecoverResult, error) {
	return model.RecoverResult{}, nil
}

func (f *fake) Forget(_ context.Context, name string, _ bool) error {
	f.deleted = append(f.deleted, "held "+name)
	return nil
}

func (f *fake) Delete(_ context.Context, name string, _ bool) error {
	f.deleted = append(f.deleted, name)
	for i, n := range f.dump.Networks {
		if n.Name == name {
			f.dump.Networks = append(f.dump.Networks[:i:i], f.dump.Networks[i+1:]...)
			return nil
		}
	}
	return &client.Error{Status: http.StatusNotFound, Detail: "there is no network " + name}
}

func (f *fake) Act(_ context.Context, id model.ID, a model.Action) (result model.ActionResult, err error) {
	f.acted = append(f.acted, string(a)+" "+id.String())
	for i := range f.dump.Elements {
		if e := &f.dump.Elements[i]; e.ID == id {
			result.Changed = a == model.ActionRestart || e.Phase != wanted(a)
			e.Phase = wanted(a)
		}
	}
	if result.Changed {
		result.Revision = f.revision
	}
	return result, nil
}

func (f *fake) Faults(_ context.Context, network string, action model.Action) (model.Record, error) {
	r := f.records[network]
	if r.FaultRun = nil; action == model.ActionStart {
		r.FaultRun = model.BeginFaults(&r, "", now)
	}
	f.records[network] = r
	return r, f.up()
}

func (f *fake) Set(_ context.Context, network string, request model.SetRequest) (model.SetResult, error) {
	before, ok := f.records[network]
	if !ok {
		return model.SetResult{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no network " + network}
	}
	net, marks, problems := model.Assign(before.Network, before.Set, request.Object, request.Values)
	if len(problems) > 0 {
		if errors.Is(problems[0], model.ErrNoObject) {
			return model.SetResult{}, &client.Error{Status: http.StatusNotFound, Detail: problems[0].Error()}
		}
		return model.SetResult{}, &client.Error{Status: http.StatusUnprocessableEntity, Detail: problems[0].Error()}
	}
	after := before
	after.Network, after.Set, after.Revision = net, marks, before.Revision+1
	f.records[network] = after
	for i := range f.dump.Links { // a link that is stopped has no carrier, any other one is as it was
		for _, l := range net.Links {
			if d := &f.dump.Links[i]; d.Network == network && d.Link.Name == l.Name {
				d.Link.State = l.State
				d.Up = d.Up && l.State != model.LinkDown
			}
		}
	}
	return model.SetResult{Record: after, Before: before, Changed: !reflect.DeepEqual(before.Network, net),
		Nodes: map[string]int64{"n1": f.revision}}, nil
}

func (f *fake) Policies(_ context.Context, network string) ([]model.PolicyView, error) {
	return f.policies, f.up()
}

func (f *fake) SetPolicy(_ context.Context, network string, request model.PolicyRequest) ([]model.PolicyView, error) {
	f.acted = append(f.acted, "policy "+network+"/"+request.Element+" "+string(request.Attack))
	return f.policies, nil
}

func (f *fake) Quarantine(_ context.Context, id model.ID, reason string) (model.ActionResult, error) {
	f.acted = append(f.acted, "quarantine "+id.String()+" "+reason)
	return model.ActionResult{Changed: true}, nil
}

func (f *fake) Evidence(context.Context, model.ID) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.capture)), f.up()
}

func (f *fake) Quotas(context.Context) ([]model.QuotaStatus, error) { return f.quotas, f.up() }

func (f *fake) SetQuota(_ context.Context, kind model.QuotaKind, name string,
	request model.QuotaRequest) (model.QuotaStatus, error) {
	q, problems := model.Quota{}.Assign(request.Values)
	if len(problems) > 0 {
		return model.QuotaStatus{}, &client.Error{Status: http.StatusUnprocessableEntity, Detail: problems[0].Error()}
	}
	return model.QuotaStatus{Kind: kind, Name: name, Limit: q}, nil
}

func (f *fake) Check(_ context.Context, network string, _ model.CheckRequest) (model.CheckResult, error) {
	if err := f.up(); err != nil {
		return model.CheckResult{}, err
	}
	if _, ok := f.records[network]; !ok {
		return model.CheckResult{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no network " + network}
	}
	return f.checked, nil
}

func (f *fake) WatchDump(_ context.Context, _ string, each func(model.Dump) error) error {
	for _, d := range f.dumps {
		if err := each(d); err != nil {
			return err
		}
	}
	return errors.New("the connection broke")
}

func (f *fake) Events(_ context.Context, since int64, _ bool, each func(model.Event) error) error {
	for _, e := range f.events {
		if e.Seq <= since {
			continue
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return f.up()
}

func (f *fake) Exec(_ context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error) {
	if err := f.up(); err != nil {
		return 0, err
	}
	f.commands = append(f.commands, command)
	if f.inside != nil {
		return f.inside(command, stdio)
	}
	for _, e := range f.dump.Elements {
		if e.ID == id && e.Phase != model.PhaseRunning {
			return 0, errors.New("container is not running")
		}
		if e.ID == id {
			if stdio.In != nil {
				io.Copy(stdio.Out, stdio.In)
			}
			io.WriteString(stdio.Err, "on stderr\n")
			return f.exit, nil
		}
	}
	return 0, &client.Error{Status: http.StatusNotFound, Detail: "no such element"}
}

func (f *fake) Console(context.Context, model.ID, control.Size, control.Stdio) (int, error) {
	return 0, errors.New("not in this test")
}

func (f *fake) Logs(context.Context, model.ID, bool) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("zebra started\n")), f.up()
}

func (f *fake) Capture(context.Context, model.PortID) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.capture)), f.up()
}

func (f *fake) FIB(_ context.Context, id model.ID, q model.FIBRequest) (model.FIB, error) {
	if f.fib == nil {
		return model.FIB{}, &client.Error{Status: http.StatusConflict, Detail: id.String() +
			": its packets are forwarded by its own stack"}
	}
	return f.fib(q), f.up()
}

func (f *fake) Tree(_ context.Context, id model.ID) (model.Tree, error) {
	if f.tree == nil {
		return model.Tree{}, &client.Error{Status: http.StatusConflict, Detail: id.String() +
			": it runs no spanning tree"}
	}
	return *f.tree, f.up()
}

func (f *fake) Running(_ context.Context, id model.ID) (model.Running, error) {
	r, ok := f.running[id.Element]
	if !ok {
		return r, &client.Error{Status: http.StatusServiceUnavailable, Detail: "node n2 says nothing"}
	}
	return r, nil
}

func (f *fake) Pack(_ context.Context, id model.ID) (io.ReadCloser, error) {
	tree, ok := f.trees[id.Element]
	if !ok {
		return nil, &client.Error{Status: http.StatusServiceUnavailable, Detail: "node n2 says nothing"}
	}
	return io.NopCloser(bytes.NewReader(tree)), nil
}

func (f *fake) Unpack(_ context.Context, id model.ID, tree []byte) error {
	if id.Element == f.full {
		return &client.Error{Status: http.StatusInternalServerError, Detail: "no space left on device"}
	}
	if f.unpacked == nil {
		f.unpacked = map[model.ID][]byte{}
	}
	f.unpacked[id] = tree
	return nil
}

func (f *fake) Keep(_ context.Context, name string) error {
	f.kept = append(f.kept, name)
	return nil
}

func (f *fake) Trace(_ context.Context, id model.ID, q model.TraceRequest) (model.Trace, error) {
	return f.traced[id.String()], f.up()
}

// result is what one command line did.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, f *fake, args ...string) result { return runWith(t, f, "", args...) }

func runWith(t *testing.T, f *fake, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	c := New(func(string) (Client, error) { return f, nil })
	c.In, c.Out, c.Err = strings.NewReader(stdin), &out, &errOut
	c.Getenv = func(string) string { return "" }
	c.Now = func() time.Time { return now }
	c.patience = f.patience
	c.Version = "1.2.3"
	c.Schema = []byte("{}\n")
	c.Examples = fstest.MapFS{"duo.yaml": {Data: []byte("# yaml-language-server: $schema=x\n# Two routers.\nnetwork: " +
		"duo\n")},
		"square.yaml": {Data: []byte("# A square of\n# routers. It is\n# ECMP's.\nnetwork: square\n")},
		"bare.yaml":   {Data: []byte("network: bare\nrouters: [r1, r2]\nlinks: [r1 -- r2]\n")}}
	code := c.ExecuteContext(t.Context(), c.Root(), args)
	if strings.Contains(errOut.String(), "goroutine") || strings.Contains(errOut.String(), "a mistake in polyplane") {
		t.Errorf("%q ends with %s", args, errOut.String())
	}
	return result{code, out.String(), errOut.String()}
}

// golden compares with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (write it anew with -update). Got:\n%s\nwant:\n%s", file, got, want)
	}
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// lab is an instance with a network of two routers, two hosts and a switch on two nodes.
func lab() *fake {
	id := func(e string) model.ID { return model.ID{Network: "lab", Element: e} }
	far := func(e, i string, k model.Kind) *model.Far {
		return &model.Far{Element: e, Interface: i, Kind: k}
	}
	h1 := model.ResolvedElement{Name: "h1", Kind: model.Host, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Gateways:   []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Interfaces: []model.ResolvedInterface{{Name: "r1", MAC: "02:00:00:00:00:01", MTU: 1500, Link: "h1--r1",
			Addresses: prefixes("10.0.0.2/30", "fd00::2/64"), Far: far("r1", "h1", model.Router)}}}
	r1 := model.ResolvedElement{Name: "r1", Kind: model.Router, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Software:   model.SoftwareFRR, Loopback: prefixes("10.255.0.1/32"), RouterID: netip.MustParseAddr("10.255.0.1"),
		Amounts: model.Amounts{CPU: 500, Memory: 256 << 20}, Routing: model.Routing{OSPF: &model.OSPF{},
			BGP: &model.BGP{AS: 65001}},
		Routes: []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"),
			Via: []netip.Addr{netip.MustParseAddr("10.0.0.6")}, Metric: 20},
			{To: netip.MustParsePrefix("198.51.100.0/24"), Type: model.RouteBlackhole}},
		Interfaces: []model.ResolvedInterface{
			{Name: "h1", MTU: 1500, Link: "h1--r1", Addresses: prefixes("10.0.0.1/30", "fd00::1/64"),
				Far: far("h1", "r1", model.Host)},
			{Name: "ge-0/0/1", Device: "ge-0.0.1", MTU: 9000, Link: "r1--r2", Addresses: prefixes("10.0.0.5/30"),
				Far: far("r2", "r1", model.Router)}}}
	r2 := model.ResolvedElement{Name: "r2", Kind: model.Router, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Software:   model.SoftwareFRR, Loopback: prefixes("10.255.0.2/32"),
		Interfaces: []model.ResolvedInterface{{Name: "r1", MTU: 9000, Link: "r1--r2",
			Addresses: prefixes("10.0.0.6/30"), Far: far("r1", "ge-0/0/1", model.Router)}}}
	sw := model.ResolvedElement{Name: "s1", Kind: model.Switch, Control: model.ControlNetns,
		Forwarding: model.ForwardBridge}
	links := []model.Link{
		{Name: "h1--r1", Ends: [2]model.End{{Element: "h1", Interface: "r1"}, {Element: "r1", Interface: "h1"}}},
		{Name: "r1--r2", Ends: [2]model.End{{Element: "r1", Interface: "ge-0/0/1"}, {Element: "r2", Interface: "r1"}},
			Bandwidth: 10e6, MTU: 9000, Delay: model.Duration(10 * time.Millisecond), Loss: 0.01},
	}
	var documented []model.Element
	for _, e := range []model.ResolvedElement{h1, r1, r2, sw} {
		var interfaces []model.Interface
		for _, f := range e.Interfaces {
			interfaces = append(interfaces, model.Interface{Name: f.Name, MAC: f.MAC, Addresses: f.Addresses})
		}
		documented = append(documented, model.Rephased(e, interfaces))
	}
	network := model.Network{Name: "lab", Elements: documented, Links: links,
		Slice: model.Slice{CPU: 2000, Memory: 1 << 30},
		Edges: []model.Edge{{Name: "up", End: model.End{Element: "r2", Interface: "up"}, Node: "n2",
			Device: "eth1", VLAN: 42}},
		Expect: []model.Expectation{{From: "h1", To: "r2"}, {From: "h1", To: "s1", Not: true, Family: model.IPv6}}}
	assigned := model.Assigned{
		Placement: model.Placement{Elements: map[string]string{"h1": "n1", "r1": "n1", "r2": "n2"}},
		Links: map[string]model.AssignedLink{"h1--r1": {VNI: 6, Prefixes: prefixes("10.0.0.0/30", "fd00::/64")},
			"r1--r2": {VNI: 7, Prefixes: prefixes("10.0.0.4/30")}},
	}
	view := func(e model.ResolvedElement, node string, p model.Phase, message string) model.ElementView {
		return model.ElementView{ElementStatus: model.ElementStatus{ID: id(e.Name), Node: node, Phase: p,
			Message: message}, Element: e}
	}
	port := func(e, i string, up bool, rx, tx uint64) model.PortStatus {
		return model.PortStatus{ID: model.PortID{ID: id(e), Interface: i}, Device: "pp" + e + i, Index: 12, Up: up,
			RxPackets: rx, RxBytes: rx * 100, TxPackets: tx, TxBytes: tx * 100}
	}
	return &fake{
		records: map[string]model.Record{"lab": {Network: network, Assigned: assigned, Revision: 3,
			Created: now.Add(-3 * time.Hour), Modified: now.Add(-time.Minute)}},
		dump: model.Dump{
			Networks: []model.NetworkStatus{
				{Name: "lab", Phase: model.PhasePending, Elements: 4, Running: 2, Stopped: 1, Failed: 1, Links: 2,
					Nodes:    []string{"n1", "n2"},
					Revision: 3, Created: now.Add(-3 * time.Hour), Modified: now.Add(-time.Minute),
					Message: "waiting for\nn2"},
				{Name: "line", Phase: model.PhaseRunning, Elements: 1000, Running: 1000, Links: 999,
					Nodes:    []string{"n1", "n2", "n3", "n4", "n5", "n6"},
					Revision: 1, Created: now.Add(-50 * time.Hour), Modified: now.Add(-50 * time.Hour)}},
			Nodes: []model.NodeStatus{
				{SubstrateNode: model.SubstrateNode{Name: "n1", Location: "room-1", CPU: 2000, Memory: 4 << 30,
					Address: netip.MustParseAddr("172.16.0.1"), MTU: 9000, Simulated: true},
					Ready: true, LastSeen: now.Add(-time.Second), Elements: 2, Ports: 3, CPUReserved: 500,
					MemoryReserved: 256 << 20, CPUUsed: 0.034, MemoryUsed: 48 << 20,
					Disk: 40 << 30, DiskFree: 12 << 30,
					Offers: model.Offers{{Driver: "control: netns", Makes: []model.Feature{"software: frr"},
						Lacks: map[model.Feature]string{"software: bird": "/usr/sbin/bird is missing: install the " +
							"package bird2"}},
						{Driver: "forwarding: guest", Kinds: []model.Kind{model.Router, model.Host}},
						{Driver: "forwarding: xdp", Kinds: []model.Kind{model.Router},
							Makes: []model.Feature{"hook: tc", "hook: xdp"}},
						{Driver: "delay", Lacks: map[model.Feature]string{"delay": "its kernel 6.18 has no netem"}}}},
				{SubstrateNode: model.SubstrateNode{Name: "n2", CPU: 2000, Memory: 4 << 30},
					LastSeen: now.Add(-time.Minute), Condition: model.Unknown, Problem: "no answer\nsince a minute"}},
			Elements: []model.ElementView{view(h1, "n1", model.PhaseRunning, ""),
				view(r1, "n1", model.PhaseRunning, ""),
				view(r2, "n2", model.PhaseFailed, "runc: exit status 1"), view(sw, "n1", model.PhaseStopped, "")},
			Links: []model.LinkStatus{
				{Network: "lab", Link: numbered(links[0], assigned), VNI: 6, Up: true,
					Ports: []model.PortStatus{port("h1", "r1", true, 10, 20), port("r1", "h1", true, 20, 10)}},
				{Network: "lab", Link: numbered(links[1], assigned), VNI: 7,
					Paths: []model.LinkPath{{Nodes: []string{"n1", "n2"}}},
					Ports: []model.PortStatus{port("r1", "ge-0/0/1", false, 5, 0)}}},
		},
		events: []model.Event{
			{Seq: 1, Time: now.Add(-3 * time.Hour), Severity: model.Info, Object: "lab", Reason: "NetworkCreated",
				Message: "4 elements, 2 links"},
			{Seq: 2, Time: now.Add(-2 * time.Hour), Severity: model.Info, Object: "lab/r1", Reason: "ElementStarted",
				Message: "running", Node: "n1"},
			{Seq: 3, Time: now.Add(-time.Hour), Severity: model.Warning, Object: "lab/r1:h1", Reason: "PortRestored",
				Message: "it was gone", Node: "n1"},
			{Seq: 4, Time: now.Add(-time.Minute), Severity: model.Error, Object: "lab/r2", Reason: "ElementFailed",
				Message: "runc: exit status 1", Node: "n2"},
			{Seq: 5, Time: now.Add(-time.Minute), Severity: model.Error, Object: "labour/r2", Reason: "ElementFailed",
				Message: "another network", Node: "n3"}},
	}
}

// numbered is the link as the manager tells it: with the subnets that it was assigned.
func numbered(l model.Link, assigned model.Assigned) model.Link {
	l.Prefixes = assigned.Links[l.Name].Prefixes
	return l
}
