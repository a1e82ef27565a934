package spec

import (
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestTimersOfNetworkAndRouter: what a router says comes before what the network says, timer by timer.
func TestTimersOfNetworkAndRouter(t *testing.T) {
	nets, err := Parse("x.yaml", []byte(`network: x
ospf: {hello: 10s, dead: 40s}
bgp: {as: 65001, keepalive: 60s}
rip: {update: 30s}
routers:
  r1:
  r2: {ospf: {dead: 30s}, bgp: {as: 65002, hold: 180s}, rip: {timeout: 2m}}
links: [r1 -- r2]
edges: {up: {end: r1, internet: {announce: false}}, way: {end: r2, internet: {announce: true}}}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	const s = model.Duration(time.Second)
	r1, r2 := nets[0].Elements[0].Routing, nets[0].Elements[1].Routing
	if r1.OSPF.OSPFTimers != (model.OSPFTimers{Hello: 10 * s, Dead: 40 * s}) ||
		r2.OSPF.OSPFTimers != (model.OSPFTimers{Hello: 10 * s, Dead: 30 * s}) {
		t.Errorf("OSPF: %+v and %+v", r1.OSPF, r2.OSPF)
	}
	if r1.BGP.BGPTimers != (model.BGPTimers{Keepalive: 60 * s}) || r2.BGP.AS != 65002 ||
		r2.BGP.BGPTimers != (model.BGPTimers{Keepalive: 60 * s, Hold: 180 * s}) {
		t.Errorf("BGP: %+v and %+v", r1.BGP, r2.BGP)
	}
	if r1.RIP.RIPTimers != (model.RIPTimers{Update: 30 * s}) ||
		r2.RIP.RIPTimers != (model.RIPTimers{Update: 30 * s, Timeout: 120 * s}) {
		t.Errorf("RIP: %+v and %+v", r1.RIP, r2.RIP)
	}
	if e := nets[0].Edges; !e[0].Internet.Unannounced || e[1].Internet.Unannounced {
		t.Errorf("edges: %+v and %+v", e[0].Internet, e[1].Internet)
	}
}
