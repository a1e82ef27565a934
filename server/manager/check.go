package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
)

const (
	// probeTimeout is how long a probe waits for its answer, probeAttempts how often it asks in that time.
	probeTimeout  = time.Second
	probeAttempts = 3
	// firstTryTimeout is for probes with a single try. It leaves room for a slow machine.
	firstTryTimeout = 3 * time.Second
	// roundPause is how long a waiting check pauses before it tries again.
	roundPause = 500 * time.Millisecond
	// agentPatience is how long an agent may take for a round, with perProbe more for each probe or responder.
	agentPatience = time.Minute
	perProbe      = 20 * time.Millisecond
	// responderSeconds is how long responders stay if nobody closes them. A round that takes longer opens them again
	// after responderAgain.
	responderSeconds = 30
	responderAgain   = 10 * time.Second

	// The probes of a round go out in waves: so that a large one takes no other's time, nor drowns its own answers, nor
	// looks as if an element searched for its neighbours. These are the most probes of a wave from one element and from
	// one node, the pause after a wave, and how many rounds of one owner may be under way.
	waveElement = 24
	waveNode    = 256
	wavePause   = 500 * time.Millisecond
	ownerRounds = 2
)

// rounds lets each owner have a few rounds of probes under way, in all of his networks together. Others wait.
type rounds struct {
	mu     sync.Mutex // guards owners; it is not held while a place is waited for
	owners map[string]chan struct{}
}

// take waits for a place. Administrators have no bound.
func (r *rounds) take(ctx context.Context, owner string) (leave func(), err error) {
	if owner == "" {
		return func() {}, nil
	}
	r.mu.Lock()
	places := r.owners[owner]
	if places == nil {
		if r.owners == nil {
			r.owners = map[string]chan struct{}{}
		}
		places = make(chan struct{}, ownerRounds)
		r.owners[owner] = places
	}
	r.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other checks of %s: %w", owner, context.Cause(ctx))
	}
}

// checks ask elements whether networks do what they should.
type checks struct {
	*known
	rounds rounds
}

// Check probes what the network's document expects, and what the request asks for in addition.
func (m *checks) Check(ctx context.Context, name string, request model.CheckRequest) (model.CheckResult, error) {
	deadline := time.Now().Add(request.Wait)
	for {
		result, err := m.checkOnce(ctx, name, request)
		if err != nil || result.OK || !time.Now().Add(roundPause).Before(deadline) {
			return result, err
		}
		select {
		case <-time.After(roundPause):
		case <-ctx.Done():
			return result, nil
		}
	}
}

// checkOnce makes every probe once. Every round makes all of them again: what was true a second ago need not be true
// now.
func (m *checks) checkOnce(ctx context.Context, name string, request model.CheckRequest) (model.CheckResult, error) {
	result := model.CheckResult{Network: name, OK: true, Probes: []model.ProbeResult{}}
	leave, err := m.rounds.take(ctx, api.Only(ctx))
	if err != nil {
		return result, err
	}
	defer leave()
	c, err := m.newCheck(ctx, name, request)
	if err != nil {
		return result, err
	}
	var looks sync.WaitGroup
	looks.Go(func() { c.look(ctx) })
	c.probe(ctx)
	looks.Wait()
	for _, q := range c.questions {
		result.Probes = append(result.Probes, q.ProbeResult)
		result.OK = result.OK && q.OK
	}
	for _, s := range c.states {
		result.States = append(result.States, s.StateResult)
		result.OK = result.OK && s.OK
	}
	return result, nil
}

// check is one round.
type check struct {
	known      *known
	network    string
	questions  []*question
	states     []*state
	responders map[string][]model.Responder // by node
	secrets    map[model.ID]string
	agents     map[string]api.Dial // of the nodes
	mute       map[string]string   // nodes that say nothing now, and why
	closed     map[model.ID]string
}

// newCheck works out which probes to send and who could answer: every element of every network that has a probed
// address, so that it is noticed if a probe reaches the wrong one.
func (m *checks) newCheck(ctx context.Context, name string, request model.CheckRequest) (*check, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.living(ctx, name) // in every round anew
	if err != nil {
		return nil, err
	}
	c := &check{known: m.known, network: name,
		responders: map[string][]model.Responder{}, secrets: map[model.ID]string{},
		agents: map[string]api.Dial{}, mute: map[string]string{}, closed: map[model.ID]string{}}
	if c.questions, c.states, err = questions(n, request); err != nil {
		return nil, err
	}
	probed := map[netip.Addr]struct{}{}
	for _, q := range c.questions {
		if q.Address.IsValid() {
			probed[q.Address] = struct{}{}
		}
	}
	for _, other := range m.networks {
		if other.damaged != nil || other.record.Deleting {
			continue
		}
		for i := range other.resolved.Elements {
			e := &other.resolved.Elements[i]
			if other.record.Overrides[e.Name].Stopped || !owns(e, probed) {
				continue
			}
			id := model.ID{Network: other.record.Network.Name, Element: e.Name}
			c.secrets[id] = rand.Text()
			node := other.record.Assigned.Placement.Elements[e.Name]
			c.responders[node] = append(c.responders[node], model.Responder{ID: id, Secret: c.secrets[id]})
		}
	}
	for name, on := range m.nodes {
		if why := on.mute(); why != "" {
			c.mute[name] = why
		} else {
			c.agents[name] = on.dial()
		}
	}
	return c, nil
}

func owns(e *model.ResolvedElement, probed map[netip.Addr]struct{}) bool {
	for _, a := range addresses(e) {
		if _, ok := probed[a]; ok {
			return true
		}
	}
	return false
}

// open opens the responders on all nodes at once.
func (c *check) open(ctx context.Context) {
	var mu sync.Mutex
	atOnce(c.responders, func(node string, list []model.Responder) {
		var failed []model.ResponderFailure
		ctx, cancel := context.WithTimeout(ctx, agentPatience+time.Duration(len(list))*perProbe)
		defer cancel()
		err := c.agent(node, func(agent *client.Client) error {
			ctx, done := c.unlessMute(ctx, node)
			defer done()
			r, err := agent.OpenResponders(ctx, model.RespondersRequest{Responders: list, Seconds: responderSeconds})
			failed = r.Failed
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		asked := make(map[model.ID]struct{}, len(list))
		for _, r := range list {
			if asked[r.ID] = struct{}{}; err != nil {
				c.closed[r.ID] = err.Error()
			}
		}
		for _, f := range failed {
			if _, own := asked[f.ID]; own { // of others a node says nothing
				c.closed[f.ID] = model.Shorten(f.Message, maxToldText)
			}
		}
	})
}

// probe asks all questions, wave by wave.
func (c *check) probe(ctx context.Context) {
	var opened time.Time
	for i, wave := range waves(c.questions) {
		if i > 0 {
			select {
			case <-time.After(wavePause):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			for _, q := range wave {
				q.Message = "it was not asked: " + context.Cause(ctx).Error()
			}
			continue
		}
		if time.Since(opened) > responderAgain {
			opened = time.Now()
			c.open(ctx)
		}
		c.probeWave(ctx, wave)
	}
}

// waves divides questions so that no wave has more than waveElement of an element or waveNode of a node.
func waves(questions []*question) (list [][]*question) {
	type place struct{ wave, count int }
	elements, nodes := map[model.ID]place{}, map[string][]int{}
	for _, q := range questions {
		p, of := elements[q.from], nodes[q.node]
		if p.count == waveElement {
			p = place{wave: p.wave + 1}
		}
		for p.wave < len(of) && of[p.wave] == waveNode {
			p = place{wave: p.wave + 1}
		}
		for len(of) <= p.wave {
			of = append(of, 0)
		}
		of[p.wave]++
		p.count++
		elements[q.from], nodes[q.node] = p, of
		for len(list) <= p.wave {
			list = append(list, nil)
		}
		list[p.wave] = append(list[p.wave], q)
	}
	return list
}

// probeWave makes the probes of all nodes at once, those with a single try separately from the others.
func (c *check) probeWave(ctx context.Context, questions []*question) {
	type batch struct {
		node  string
		first bool
	}
	batches := map[batch][]*question{}
	for _, q := range questions {
		if why, unanswered := c.closed[q.to]; unanswered && !q.Not {
			q.Message = fmt.Sprintf("%s cannot answer: %s", q.To, why)
		} else if q.Address.IsValid() {
			batches[batch{q.node, q.first}] = append(batches[batch{q.node, q.first}], q)
		}
	}
	atOnce(batches, func(b batch, list []*question) {
		request := model.ProbesRequest{Timeout: probeTimeout, Attempts: probeAttempts}
		if b.first {
			request.Timeout, request.Attempts = firstTryTimeout, 1
		}
		for _, q := range list {
			request.Probes = append(request.Probes, model.Probe{From: q.from, To: q.to, Address: q.Address,
				Secret: c.secrets[q.to], Not: q.Not})
		}
		ctx, cancel := context.WithTimeout(ctx, agentPatience+time.Duration(len(list))*perProbe)
		defer cancel()
		var answer model.ProbesResult
		err := c.agent(b.node, func(agent *client.Client) (err error) {
			ctx, done := c.unlessMute(ctx, b.node)
			defer done()
			if answer, err = agent.Probe(ctx, request); err == nil && len(answer.Results) != len(list) {
				err = fmt.Errorf("it answered %d of %d probes", len(answer.Results), len(list))
			}
			return err
		})
		for i, q := range list {
			if err != nil {
				q.Message = err.Error()
				continue
			}
			q.judge(answer.Results[i])
		}
	})
}

// judge evaluates what the agent saw. The agent says OK only about what it really tried, so an error never counts as
// isolation.
func (q *question) judge(seen model.ProbeResult) {
	q.OK, q.Reached, q.Answered, q.RTT, q.Message = seen.OK, seen.Reached,
		model.Shorten(seen.Answered, 2*model.MaxName+1), max(0, seen.RTT),
		model.Shorten(seen.Message, maxToldText)
	if q.Answered == q.To {
		q.Answered = ""
	}
	var who model.ID
	_ = who.UnmarshalText([]byte(q.Answered)) // never fails
	switch {
	case q.Answered != "" && who.Network != q.from.Network:
		q.OK = false
		q.Message = fmt.Sprintf("%s answered, of another network: they are not isolated", q.Answered)
	case q.OK:
		q.Message = ""
	case q.Not && q.Reached:
		q.Message = "it was reached, and must not be"
	case q.Answered != "":
		q.Message = q.Answered + " answered instead"
	case q.Message == "":
		q.Message = "no answer"
	}
}

// unlessMute ends the context when the node stops saying anything: nobody should wait for the answer of an agent that
// hangs.
func (c *check) unlessMute(ctx context.Context, node string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		tick := time.Tick(listenEvery)
		for {
			select {
			case <-over:
				return
			case <-tick:
			}
			if why := c.known.muteNode(node); why != "" {
				cancel(errors.New(why))
				return
			}
		}
	}()
	return ctx, func() { close(over); cancel(nil) }
}

// muteNode says why nothing is heard of the node now; empty if something is.
func (m *known) muteNode(name string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if n := m.nodes[name]; n != nil {
		return n.mute()
	}
	return ""
}

// agent calls the agent of a node.
func (c *check) agent(node string, call func(*client.Client) error) error {
	dial, ok := c.agents[node]
	if why := c.mute[node]; why != "" {
		return errors.New(why)
	}
	if !ok {
		return fmt.Errorf("the agent of node %s is away", node)
	}
	agent := client.NewAgent(dial, node)
	defer agent.Close()
	if err := call(agent); err != nil {
		return fmt.Errorf("the agent of node %s: %w", node, err)
	}
	return nil
}

// atOnce runs f for every entry, all at the same time, and returns when all have returned.
func atOnce[K comparable, V any](of map[K]V, f func(K, V)) {
	var wg sync.WaitGroup
	for k, v := range of {
		wg.Go(func() { f(k, v) })
	}
	wg.Wait()
}
