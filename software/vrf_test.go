package software

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// inVRFs is the element with two of its interfaces in VRFs.
func inVRFs(el model.ResolvedElement) model.ResolvedElement {
	el.Interfaces[0].VRF, el.Interfaces[1].VRF = "red", "blue"
	el.VRFs = map[string]model.VRF{
		"red": {Interfaces: []string{el.Interfaces[0].Name}, RouterID: addr("10.0.1.9"),
			OSPF: &model.OSPF{Area: "0.0.0.7", Redistribute: []string{"static"}}, OSPF6: &model.OSPF{},
			Gateways: []netip.Addr{addr("10.0.1.2")}},
		"blue": {Interfaces: []string{el.Interfaces[1].Name}, Routes: []model.Route{
			{To: prefix("10.9.0.0/16"), Via: []netip.Addr{addr("10.0.2.2")}, Metric: 30},
			{To: prefix("2001:db8:9::/48"), Type: model.RouteBlackhole}}},
	}
	return el
}

// TestBIRDHasNoVRFs: a router with BIRD is refused, in words.
func TestBIRDHasNoVRFs(t *testing.T) {
	_, err := Render("lab", inVRFs(router(model.SoftwareBIRD, model.Routing{})))
	if err == nil || !strings.Contains(err.Error(), "with bird there are no VRFs here: set software to frr or static") {
		t.Error(err)
	}
	red := inVRFs(router(model.SoftwareStatic, model.Routing{}))
	if _, err := Render("lab", red); err == nil || !strings.Contains(err.Error(), "routing protocols need routing software") {
		t.Error(err)
	}
}

// TestLooksIntoVRFs: FRR is asked in the VRF.
func TestLooksIntoVRFs(t *testing.T) {
	for want, look := range map[string]model.Look{
		"show ip ospf vrf red neighbor json":    {Known: model.Known{What: model.KnownNeighbour, Protocol: "ospf", VRF: "red"}},
		"show ipv6 ospf6 vrf red neighbor json": {Known: model.Known{What: model.KnownNeighbour, Protocol: "ospf6", VRF: "red"}},
		"show ip route vrf red 10.0.0.0/8 json": {Known: model.Known{What: model.KnownRoute, Protocol: "ospf",
			Prefix: prefix("10.0.0.0/8"), VRF: "red"}},
	} {
		if got, err := Asking(model.SoftwareFRR, &look); err != nil || got[0][2] != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

// TestNeighboursInVRFs: FRR says a VRF's neighbours by themselves, or below its name.
func TestNeighboursInVRFs(t *testing.T) {
	const neighbours = `"neighbors":{"10.255.0.2":[{"nbrState":"Full/-","converged":"Full","ifaceAddress":"10.0.0.2","ifaceName":"pe2.10:10.0.0.1"}]}`
	look := model.Look{Known: model.Known{What: model.KnownNeighbour, Protocol: "ospf", State: "full", VRF: "red"},
		Peer: &model.LookedFor{Name: "pe2", RouterID: addr("10.255.0.2")}}
	for text, want := range map[string]bool{`{"vrfName":"red","vrfId":4,` + neighbours + `}`: true,
		`{"red":{"vrfName":"red","vrfId":4,` + neighbours + `}}`: true, `{}`: false, `{"red":{"vrfName":"red","neighbors":{}}}`: false} {
		if got := Answer(model.SoftwareFRR, &look, []Output{{text, 0}}); got.So != want || got.Error != "" {
			t.Errorf("%s: %+v", text, got)
		}
	}
	got := Answer(model.SoftwareFRR, &look, []Output{{"%% OSPF is not enabled in vrf red\n", 1}})
	if got.So || got.Error == "" {
		t.Errorf("%+v", got)
	}
}
