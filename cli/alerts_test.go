package cli

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
)

const eve = `{"timestamp":"2026-11-22T23:00:00.1+0000","event_type":"alert","src_ip":"10.0.0.1","src_port":4000,"dest_ip":"10.0.0.2","dest_port":80,"proto":"tcp","alert":{"action":"allowed","signature_id":1000001,"signature":"lab scan","severity":2}}`

func TestParseAlert(t *testing.T) {
	a, ok := parseAlert([]byte(eve))
	want := alert{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), "lab scan", 2}
	if !ok || a != want {
		t.Errorf("%+v, %v", a, ok)
	}
	for _, line := range []string{"", "nonsense", "[]",
		`{"event_type":"flow","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"evil; rm","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"fe80::1%eth0","dest_ip":"10.0.0.2","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"10.0.0.1","alert":{"signature":"x"}}`,
		`{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2"}`} {
		if a, ok := parseAlert([]byte(line)); ok {
			t.Errorf("%s is taken for %+v", line, a)
		}
	}
	a, ok = parseAlert([]byte(`{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","alert":{"signature":"a\u001b[31mb\nc"}}`))
	if !ok || a.Signature != "a[31mbc" {
		t.Errorf("%+v, %v", a, ok)
	}
}

// What Suricata 7.0.10 wrote of packets, with other addresses: both versions of IP, rules with and without a target,
// one about an answer, and one about a packet that has no addresses.
func TestParseSuricatasAlerts(t *testing.T) {
	b, err := os.ReadFile("testdata/eve.json")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(b) {
		if a, ok := parseAlert(line); ok {
			got = append(got, fmt.Sprintf("%s→%s %d %s", a.Source, a.Target, a.Severity, a.Signature))
		}
	}
	want := []string{
		`10.1.0.1→10.2.0.1 3 ping 4`,
		`2001:db8::1→2001:db8::2 3 ping 6 "quoted" und Ümlaut`,
		`10.1.0.1→10.2.0.1 3 twenty connections begun in ten seconds`,
		`10.1.0.1→10.2.0.1 3 begun, with a target`,
		`10.1.0.1→10.2.0.1 3 refused, by whom it was tried on`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func FuzzParseAlert(f *testing.F) {
	b, err := os.ReadFile("testdata/eve.json")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		f.Add(line)
	}
	f.Add([]byte(eve))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, ok := parseAlert(line)
		if !ok {
			return
		}
		if !a.Source.IsValid() || !a.Target.IsValid() || a.Source.Zone() != "" ||
			a.Target.Zone() != "" || a.Source.Is4In6() {
			t.Errorf("addresses %v, %v", a.Source, a.Target)
		}
		if a.Signature == "" || len(a.Signature) > 200+len("…") || !utf8.ValidString(a.Signature) {
			t.Errorf("signature %q", a.Signature)
		}
		if strings.ContainsFunc(a.Signature, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("what is no character to show: %q", a.Signature)
		}
		a.is(line) // a frame is an enemy's word, too
	})
}

func TestAlertsNameElementsOfTheirNetworkOnly(t *testing.T) {
	element := func(network, name, address string) model.ElementView {
		return model.ElementView{ElementStatus: model.ElementStatus{ID: model.ID{Network: network, Element: name}},
			Element: model.ResolvedElement{Name: name,
				Interfaces: []model.ResolvedInterface{{Name: "eth0",
					Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}}}}
	}
	all := []model.ElementView{element("lab", "h1", "10.0.0.1/24"), element("lab", "ids", "10.0.0.9/24"),
		element("lab", "a", "10.0.0.7/24"),
		element("lab", "b", "10.0.0.7/24"), element("other", "h1", "10.0.0.1/24"),
		element("other", "h2", "10.0.0.2/24")}
	ids := model.ID{Network: "lab", Element: "ids"}
	for address, want := range map[string]string{"10.0.0.1": "lab/h1", "10.0.0.2": "", "10.0.0.9": "",
		"10.0.0.7": "", "192.0.2.1": ""} {
		e, why := named(all, ids, netip.MustParseAddr(address))
		switch {
		case want == "" && (e != nil || why == ""):
			t.Errorf("%s names %v, %q", address, e, why)
		case want != "" && (e == nil || e.ID.String() != want):
			t.Errorf("%s names %v, want %s", address, e, want)
		}
	}
}
