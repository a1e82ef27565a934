package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// What is answered calls networks as whoever asks calls them. That is done here, where answers leave: everything before
// knows keys only.

type namesKey struct{}

// namesOf are the networks that whoever asks may name.
func (s *Server) namesOf(ctx context.Context) *model.Names {
	if n, ok := ctx.Value(namesKey{}).(*model.Names); ok {
		return n
	}
	return s.guard.names(callerOf(ctx))
}

// tell is huma's transformer of answers.
func (s *Server) tell(ctx huma.Context, _ string, v any) (any, error) {
	return s.told(ctx.Context(), v), nil
}

// told is an answer as whoever asks calls things. What it shares with others is not changed.
func (s *Server) told(ctx context.Context, v any) any {
	c := callerOf(ctx)
	if c.Role == "" || c.asker().Keys {
		return v
	}
	switch v := v.(type) {
	case model.Substrate, model.Pong, model.Whoami, model.Token, []model.Token, model.TokenResult,
		model.NameList,
		[]model.SubstrateLinkStatus, model.ActionResult:
		return v
	case *ProblemDetail:
		return tellProblem(s.namesOf(ctx), v)
	}
	n := s.namesOf(ctx)
	switch v := v.(type) {
	case model.Dump:
		tellDump(n, &v)
		return v
	case []model.NetworkStatus:
		tellDump(n, &model.Dump{Networks: v})
	case []model.ElementView:
		tellDump(n, &model.Dump{Elements: v})
	case []model.LinkStatus:
		tellDump(n, &model.Dump{Links: v})
	case []model.NodeStatus:
		tellDump(n, &model.Dump{Nodes: v})
	case model.NodeStatus:
		d := model.Dump{Nodes: []model.NodeStatus{v}}
		tellDump(n, &d)
		return d.Nodes[0]
	case model.Record:
		return *tellRecord(n, &v)
	case model.ApplyResult:
		return tellApplied(n, v)
	case []model.ApplyResult:
		for i := range v {
			v[i] = tellApplied(n, v[i])
		}
	case model.MoveResult:
		v.ID.Network, v.Notes = n.Call(v.ID.Network), slices.Clone(v.Notes)
		for i := range v.Notes {
			v.Notes[i] = n.Told(v.Notes[i])
		}
		return v
	case []model.MoveStatus:
		for i := range v {
			v[i].ID.Network, v[i].Message = n.Call(v[i].ID.Network), n.Told(v[i].Message)
		}
	case model.SetResult:
		v.Record, v.Before = *tellRecord(n, &v.Record), *tellRecord(n, &v.Before)
		return v
	case model.CheckResult:
		return tellCheck(n, v)
	case []model.PolicyView:
		for i := range v {
			p := &v[i]
			p.ID.Network, p.Reason = n.Call(p.ID.Network), n.Told(p.Reason)
		}
	case []model.QuotaStatus:
		for i := range v {
			tellQuota(n, &v[i])
		}
	case model.QuotaStatus:
		tellQuota(n, &v)
		return v
	case model.TrashList:
		for i := range v.Items {
			t := &v.Items[i]
			t.Title = n.Title(t.Element.Network)
			t.ID, t.Element.Network = n.Of(t.ID, t.Element.Network), n.Call(t.Element.Network)
		}
		return v
	case model.WhatIfResult:
		tellWouldBe(n, v.Networks)
		tellWouldBe(n, v.Moves)
		return v
	case model.RecoverResult:
		tellRecovered(n, &v)
		return v
	case model.ImageList:
		v.Images = slices.Clone(v.Images)
		for i := range v.Images {
			v.Images[i].UsedBy = tellAll(n, v.Images[i].UsedBy)
		}
		return v
	case model.Image:
		v.UsedBy = tellAll(n, v.UsedBy)
		return v
	}
	return v
}

// tellWouldBe changes what was made for this answer alone.
func tellWouldBe(n *model.Names, all []model.WouldBe) {
	for i := range all {
		w := &all[i]
		w.Network = n.Call(w.Network)
		for k := range w.Refused {
			w.Refused[k] = n.Told(w.Refused[k])
		}
	}
}

func tellAll(n *model.Names, keys []string) []string {
	if len(keys) == 0 {
		return keys
	}
	all := each.Of(keys, n.Call)
	slices.Sort(all)
	return all
}

func tellDump(n *model.Names, d *model.Dump) {
	for i := range d.Networks {
		s := &d.Networks[i]
		key := s.Name
		s.Name, s.Message = n.Call(key), n.Told(s.Message)
		if s.Name != key && !n.Narrow() {
			s.Key = key
		}
	}
	slices.SortStableFunc(d.Networks, func(a, b model.NetworkStatus) int { return strings.Compare(a.Name, b.Name) })
	for i := range d.Nodes {
		s := &d.Nodes[i]
		s.Held, s.Problem = tellAll(n, s.Held), n.Told(s.Problem)
	}
	for i := range d.Elements {
		e := &d.Elements[i]
		e.ID.Network, e.Message = n.Call(e.ID.Network), n.Told(e.Message)
		e.Quarantine = n.Told(e.Quarantine)
		if i := e.Incident; i != nil {
			told := *i
			told.What = n.Told(i.What)
			e.Incident = &told
		}
	}
	for i := range d.Links {
		l := &d.Links[i]
		l.Network = n.Call(l.Network)
		l.Ports = slices.Clone(l.Ports)
		for k := range l.Ports {
			l.Ports[k].ID.Network = l.Network
		}
	}
	// In the order of what the networks are called, as they are listed.
	slices.SortStableFunc(d.Elements,
		func(a, b model.ElementView) int { return strings.Compare(a.ID.Network, b.ID.Network) })
	slices.SortStableFunc(d.Links, func(a, b model.LinkStatus) int { return strings.Compare(a.Network, b.Network) })
}

func tellRecord(n *model.Names, r *model.Record) *model.Record {
	told := *r
	if r.Network.Name != "" {
		told.Network.Name, told.Network.Title = n.Name(r.NetworkName()), ""
	}
	if r.FaultRun != nil {
		run := *r.FaultRun
		run.Done = slices.Clone(run.Done)
		for i := range run.Done {
			run.Done[i].Problem = n.Told(run.Done[i].Problem)
		}
		told.FaultRun = &run
	}
	return &told
}

func tellApplied(n *model.Names, a model.ApplyResult) model.ApplyResult {
	// A network that is only tried is none of those that there are.
	n.Add(a.Record.NetworkName())
	notes := a.Notes
	a.Notes = nil
	a.Notes = append(a.Notes, each.Of(notes, n.Told)...)
	a.Record = *tellRecord(n, &a.Record)
	if a.Before != nil {
		a.Before = tellRecord(n, a.Before)
	}
	return a
}

func tellCheck(n *model.Names, r model.CheckResult) model.CheckResult {
	key := r.Network
	r.Network = n.Call(key)
	r.Probes = slices.Clone(r.Probes)
	for i := range r.Probes {
		p := &r.Probes[i]
		p.From, p.To, p.Answered = n.Of(p.From, key), n.Of(p.To, key), n.Of(p.Answered, key)
		p.Message = n.Told(p.Message)
	}
	r.States = slices.Clone(r.States)
	for i := range r.States {
		r.States[i].Message = n.Told(r.States[i].Message)
	}
	return r
}

func tellQuota(n *model.Names, q *model.QuotaStatus) {
	if q.Kind == model.QuotaOfNetwork {
		q.Name = n.Call(q.Name)
	}
}

func tellRecovered(n *model.Names, r *model.RecoverResult) {
	for i := range r.Networks {
		is := &r.Networks[i]
		is.Name, is.Problem = n.Call(is.Name), n.Told(is.Problem)
		for k := range is.Notes {
			is.Notes[k] = n.Told(is.Notes[k])
		}
	}
	for i := range r.Silent {
		r.Silent[i] = n.Told(r.Silent[i])
	}
}

func tellProblem(n *model.Names, p *ProblemDetail) *ProblemDetail {
	told := *p
	told.Detail, told.Errors = n.Told(p.Detail), slices.Clone(p.Errors)
	for i := range told.Errors {
		e := &told.Errors[i]
		e.Message, e.Problems = n.Told(e.Message), slices.Clone(e.Problems)
		for k := range e.Problems {
			e.Problems[k] = retoldProblem(e.Problems[k], n.Told, n.Call)
		}
	}
	return &told
}

// tellEvent is an event as whoever asks calls what it is about.
func tellEvent(n *model.Names, e *model.Event) model.Event {
	told := *e
	if e.Network == "" {
		told.Message = n.Told(e.Message)
		return told
	}
	n.Add(model.NetworkName{Key: e.Network, Owner: e.Owner, Title: e.Title}) // it may be gone
	told.Object, told.Network = n.Of(e.Object, e.Network), n.Call(e.Network)
	told.Message = n.Told(e.Message)
	return told
}

// writeTold answers a request that does not go through huma.
func (s *Server) writeTold(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := statusError(err).(*ProblemDetail) //nolint:errorlint // newError makes these
	if ok {
		p, _ = s.told(r.Context(), p).(*ProblemDetail)
		writeDetail(w, p)
		return
	}
	writeProblem(w, err)
}
