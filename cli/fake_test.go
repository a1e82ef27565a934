package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"reflect"
	"slices"
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
	asked     model.WhatIf
	wouldBe   model.WhatIfResult
	full      string             // the element whose disk is full
	who       *model.Whoami      // who asks; alice when nil
	me        string             // whose own networks are called by their titles
	moving    []model.MoveStatus // what is told of moves, one after the other; the last for ever
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

func (f *fake) WhatIf(_ context.Context, ask model.WhatIf) (model.WhatIfResult, error) {
	f.asked = ask
	return f.wouldBe, f.refusals["what-if"]
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
