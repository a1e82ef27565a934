package virne

import (
	"fmt"
	"math"
	"time"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// Result is what a replay came to.
type Result struct {
	Requests, Accepted int
	Revenue, Cost      float64       // of the accepted ones
	Spent, Longest     time.Duration // processor time of all, and of the request that took the most
}

// Acceptance is the share of requests that were accepted.
func (r Result) Acceptance() float64 { return ratio(float64(r.Accepted), float64(r.Requests)) }

// RevenueToCost is what was asked for to what it took, in all.
func (r Result) RevenueToCost() float64 { return ratio(r.Revenue, r.Cost) }

// Mean is the processor time of a request.
func (r Result) Mean() time.Duration { return r.Spent / time.Duration(max(r.Requests, 1)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Replay embeds the requests as they arrive and lets them go as they leave. clock tells the processor time spent so
// far. Every answer is checked by tables that the embedding knows nothing of; a wrong one is an error.
func Replay(d *DataSet, clock func() time.Duration) (Result, error) {
	var out Result
	sub := d.Physical.substrate()
	if len(sub.Links) == 0 && len(sub.Nodes) > 1 {
		return out, fmt.Errorf("no link of the physical network has any bandwidth")
	}
	check := newChecker(&d.Physical)
	used := map[int]model.Record{}
	for _, event := range d.Events {
		if !event.Arrives {
			if _, ok := used[event.Request]; ok {
				check.leave(event.Request)
				delete(used, event.Request)
			}
			continue
		}
		out.Requests++
		net := d.Requests[event.Request].network(event.Request)
		began := clock()
		records := make([]model.Record, 0, len(used))
		for _, r := range used {
			records = append(records, r)
		}
		placed, err := embedding.Embed(sub, nil, embedding.UsageOf(records), net, embedding.Current{})
		took := clock() - began
		out.Spent += took
		out.Longest = max(out.Longest, took)
		if err != nil {
			continue
		}
		revenue, cost, err := check.arrive(event.Request, &d.Requests[event.Request], placed)
		if err != nil {
			return out, fmt.Errorf("request %d was embedded wrongly: %w", event.Request, err)
		}
		out.Accepted++
		out.Revenue += revenue
		out.Cost += cost
		used[event.Request] = model.Record{Network: document(net), Assigned: model.Assigned{Placement: placed}}
	}
	return out, nil
}

func (g *Graph) substrate() (s model.Substrate) {
	for i, cpu := range g.Nodes {
		s.Nodes = append(s.Nodes, model.SubstrateNode{Name: name(i), CPU: cores(cpu, math.Floor)})
	}
	for _, l := range g.Links {
		if bandwidth := mbit(l.Bandwidth, math.Floor); bandwidth > 0 { // none said would be no limit
			s.Links = append(s.Links, model.SubstrateLink{A: name(l.A), B: name(l.B), Bandwidth: bandwidth})
		}
	}
	return s
}

func (g *Graph) network(k int) model.Resolved {
	net := model.Resolved{Name: fmt.Sprint("v", k), Placing: model.Placing{Distinct: true}}
	for i, cpu := range g.Nodes {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: name(i), Kind: model.Router,
			Amounts: model.Amounts{CPU: cores(cpu, math.Ceil)}})
	}
	for i, l := range g.Links {
		net.Links = append(net.Links, model.Link{Name: name(i), Bandwidth: mbit(l.Bandwidth, math.Ceil),
			Ends: [2]model.End{{Element: name(l.A)}, {Element: name(l.B)}}})
	}
	return net
}

func name(i int) string { return fmt.Sprint("n", i) }

// One of the data set's units is a core, and one Mbit/s. What is there is rounded down, what is asked for up.
func cores(v float64, round func(float64) float64) model.CPU { return model.CPU(round(v * 1000)) }

func mbit(v float64, round func(float64) float64) model.Bandwidth {
	return model.Bandwidth(round(v * 1e6))
}

func document(net model.Resolved) model.Network {
	doc := model.Network{Name: net.Name, Links: net.Links}
	for _, e := range net.Elements {
		doc.Elements = append(doc.Elements, model.Rephased(e, []model.Interface(nil)))
	}
	return doc
}
