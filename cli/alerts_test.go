package cli

import (
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/model"
)

const eve = `{"timestamp":"2026-11-22T23:00:00.1+0000","event_type":"alert","src_ip":"10.0.0.1","src_port":4000,"dest_ip":"10.0.0.2","dest_port":80,"proto":"tcp","alert":{"action":"allowed","signature_id":1000001,"signature":"lab scan","severity":2}}`

func TestParseAlert(t *testing.T) {
	a, ok := parseAlert([]byte(eve))
	want := alert{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 80, "TCP", "lab scan", 2}
	if !ok || a != want {
		t.Errorf("%+v, %v", a, ok)
	}
	for _, line := range []string{"", "nonsense", "[]", `{"event_type":"flow","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"evil; rm","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"fe80::1%eth0","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","dest_port":70000,"alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"10.0.0.1","alert":{"signature":"x"}}`, `{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2"}`} {
		if a, ok := parseAlert([]byte(line)); ok {
			t.Errorf("%s is taken for %+v", line, a)
		}
	}
	a, ok = parseAlert([]byte(`{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","alert":{"signature":"a\u001b[31mb\nc"}}`))
	if !ok || a.Signature != "a[31mbc" {
		t.Errorf("%+v, %v", a, ok)
	}
}

func TestAlertsNameElementsOfTheirNetworkOnly(t *testing.T) {
	element := func(network, name, address string) model.ElementView {
		return model.ElementView{ElementStatus: model.ElementStatus{ID: model.ID{Network: network, Element: name}},
			Element: model.Element{Name: name, Interfaces: []model.Interface{{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}}}}
	}
	all := []model.ElementView{element("lab", "h1", "10.0.0.1/24"), element("lab", "ids", "10.0.0.9/24"), element("lab", "a", "10.0.0.7/24"),
		element("lab", "b", "10.0.0.7/24"), element("other", "h1", "10.0.0.1/24"), element("other", "h2", "10.0.0.2/24")}
	ids := model.ID{Network: "lab", Element: "ids"}
	for address, want := range map[string]string{"10.0.0.1": "lab/h1", "10.0.0.2": "", "10.0.0.9": "", "10.0.0.7": "", "192.0.2.1": ""} {
		e, why := named(all, ids, netip.MustParseAddr(address))
		switch {
		case want == "" && (e != nil || why == ""):
			t.Errorf("%s names %v, %q", address, e, why)
		case want != "" && (e == nil || e.ID.String() != want):
			t.Errorf("%s names %v, want %s", address, e, want)
		}
	}
}
