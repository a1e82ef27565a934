package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// NodePath names a node.
type NodePath struct {
	Node string `path:"node" doc:"the node's name"`
}

type desiredInput struct {
	NodePath
	Changes bool `query:"changes" doc:"everything once, then only the networks that have changed; without it everything each time"`
}

type registerInput struct {
	NodePath
	Body model.Registration
}

type measuresInput struct {
	NodePath
	Body model.Measures
}

type discoveryInput struct {
	NodePath
	Body model.Discovery
}

type beatInput struct {
	NodePath
	Body model.Beat
}

type reportInput struct {
	NodePath
	Body model.Report
}

// agentRoutes are what nodes' agents ask for. A node speaks for itself only: the guard has compared who asks with the
// path, and what is told must be of that node as well.
func (s *Server) agentRoutes(api huma.API) {
	obey(api, operation("register", http.MethodPost, "/nodes/{node}/register",
		"A node's agent makes itself known", "agents"),
		func(_ context.Context, in *registerInput) error { return s.agents.Register(in.Node, in.Body) })
	obey(api, operation("report", http.MethodPost, "/nodes/{node}/report", "A node tells how it is", "agents"),
		func(_ context.Context, in *reportInput) error {
			return itself("the report is", in.Body.Node, in.Node, func() error { return s.agents.Report(in.Body) })
		})
	obey(api, operation("measures", http.MethodPost, "/nodes/{node}/measures",
		"A node tells what it has measured of its links and of its agent", "agents"),
		func(_ context.Context, in *measuresInput) error {
			return itself("the measures are", in.Body.Node, in.Node, func() error { return s.agents.Measure(in.Body) })
		})
	reply(api, operation("discovery", http.MethodPost, "/nodes/{node}/discovery",
		"A node tells what it has found of its machine and of its neighbours, and asks for their keys", "agents"),
		func(_ context.Context, in *discoveryInput) (answer model.DiscoveryAnswer, err error) {
			err = itself("what was found is", in.Body.Node, in.Node, func() error {
				answer, err = s.agents.Discover(in.Body)
				return err
			})
			return answer, err
		})
	obey(api, operation("beat", http.MethodPost, "/nodes/{node}/beat",
		"A sign of life of a node's agent", "agents"),
		func(_ context.Context, in *beatInput) error {
			return itself("the beat is", in.Body.Node, in.Node, func() error { return s.agents.Beat(in.Body) })
		})
	huma.Register(api, streaming[model.Update](api, operation("desired", http.MethodGet, "/nodes/{node}/desired",
		"Everything a node shall have, at once and then what changes, as a stream", "agents")),
		func(_ context.Context, in *desiredInput) (*huma.StreamResponse, error) {
			next, end, err := s.agents.Watch(in.Node, in.Changes)
			if err != nil {
				return nil, statusError(err)
			}
			return stream(func(l *lines) {
				defer end()
				for {
					d := next()
					if !l.raw(d.Lines) || !l.wait(d.Changed) {
						return
					}
				}
			}), nil
		})
}

// itself does what a node asks for if what it tells is of the node itself.
func itself(told, of, node string, do func() error) error {
	if of != node {
		return Invalid(fmt.Sprintf("%s of node %q, the request of %q", told, of, node))
	}
	return do()
}
