package cli

import (
	"strings"

	"github.com/polyplane/polyplane/model"
)

// vrfs shows a router's VRFs.
func (s *sheet) vrfs(e *model.ResolvedElement) {
	t := table{head: []string{"VRF", "INTERFACES", "ROUTING", "GATEWAYS"}}
	for _, name := range e.VRFNames() {
		v := e.VRFs[name]
		t.add(texts(name, strings.Join(v.Interfaces, ", "), strings.Join(intents(v.Routing()), ", "),
			join(v.Gateways))...)
	}
	s.table("VRFs", t)
}

// routes shows the static routes of one of an element's tables.
func (s *sheet) routes(title string, all []model.Route) {
	t := table{head: []string{"STATIC ROUTE", "VIA", "INTERFACE", ">METRIC"}}
	for _, r := range all {
		via := join(r.Via)
		if r.Type != "" && r.Type != model.RouteUnicast {
			via = string(r.Type)
		}
		t.add(texts(r.To.String(), via, r.Interface, mtuText(r.Metric))...)
	}
	s.table(title, t)
}
