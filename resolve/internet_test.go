package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestForwardText(t *testing.T) {
	for _, text := range []string{"2222:h1:22", "5353:h1:53/udp", "127.0.0.1:8080:h-2:80", "[::1]:8080:h1:80",
		"[2001:db8::1]:1:r1:65535/udp"} {
		f, ok := model.ParseForward(text)
		if !ok || f.String() != text {
			t.Errorf("%q is read as %v, %v", text, f, ok)
		}
	}
	if f, ok := model.ParseForward("80:h1:80/tcp"); !ok || f.String() != "80:h1:80" {
		t.Errorf("tcp goes without saying, and is written as %v, %v", f, ok)
	}
	for _, text := range []string{"", "22", "22:h1", "a:h1:22", "22::22", "22:h1:22/sctp", "1.2.3:22:h1:22",
		"70000:h1:22", "::1:22:h1:22", "[::1]22:h1:22", "22:h1:22:22:22"} {
		if f, ok := model.ParseForward(text); ok {
			t.Errorf("%q is read as %v", text, f)
		}
	}
}

// out adds an internet edge "up" at an element.
func out(n model.Network, element string, forwards ...string) model.Network {
	e := model.Edge{Name: "up", End: model.End{Element: element, Interface: "up"}, Internet: &model.Internet{}}
	for _, text := range forwards {
		f, ok := model.ParseForward(text)
		if !ok {
			panic(text)
		}
		e.Internet.Forwards = append(e.Internet.Forwards, f)
	}
	n.Edges = append(slices.Clone(n.Edges), e)
	return n
}

func texts[T fmt.Stringer](values []T) string {
	var words []string
	for _, v := range values {
		words = append(words, v.String())
	}
	return strings.Join(words, " ")
}

func TestResolveInternet(t *testing.T) {
	n := out(build("r1", "r2", "h1", "r1-r2=10.1.0.0/30,2001:db8::/64", "r2-h1=10.2.0.0/24"), "r1", "2222:h1:22")
	n.Elements[1].Routes = []model.Route{{To: netip.MustParsePrefix("172.16.0.0/12"),
		Via: []netip.Addr{netip.MustParseAddr("10.2.0.9")}}}
	r, as := resolve(t, n, model.Assigned{})
	in := r.Edges[0].Internet
	for what, x := range map[string][2]string{
		"gateway": {texts(in.Gateway), "10.0.0.1/30 fd00:10::1/64"},
		"via":     {texts(in.Via), "10.0.0.2 fd00:10::2"},
		"sources": {texts(in.Sources),
			"10.0.0.0/30 10.1.0.0/30 10.2.0.0/24 172.16.0.0/12 2001:db8::/64 fd00:10::/64"},
		"target":       {texts(in.Targets["h1"]), "10.2.0.2"},
		"r1's gateway": {texts(r.Elements[0].Gateways), "10.0.0.1 fd00:10::1"},
		"r2's gateway": {texts(r.Elements[1].Gateways), ""},
		"h1's gateway": {texts(r.Elements[2].Gateways), "10.2.0.1"},
		"r1:up":        {addresses(r)["r1:up"], "10.0.0.2/30 fd00:10::2/64"},
	} {
		if x[0] != x[1] {
			t.Errorf("%s: %s, want %s", what, x[0], x[1])
		}
	}
	if !r.Elements[0].Interfaces[1].Internet {
		t.Error("r1's interface is not told that it leads out")
	}
	// What it was given stays, whatever comes beside it.
	again, _ := resolve(t, out(build("r1", "r2", "r3", "h1", "r1-r3", "r1-r2=10.1.0.0/30,2001:db8::/64",
		"r2-h1=10.2.0.0/24"), "r1"), as)
	if got := texts(again.Edges[0].Internet.Gateway); got != texts(in.Gateway) {
		t.Errorf("its gateway becomes %s", got)
	}
}

// On a switch the gateway is the hosts' own where there is no router, and the routers' where there is one.
func TestResolveInternetOnASwitch(t *testing.T) {
	hosts, as := resolve(t, build("s1", "h1", "s1-h1"), model.Assigned{})
	h1 := addresses(hosts)["h1:s1"]
	r, as := resolve(t, out(build("s1", "h1", "h2", "s1-h1", "s1-h2"), "s1"), as)
	if got := addresses(r)["h1:s1"]; got != h1 {
		t.Errorf("the edge renumbers h1 from %s to %s", h1, got)
	}
	gateway := r.Edges[0].Internet.Gateway[0]
	for _, h := range r.Elements[1:] {
		if got := texts(h.Gateways); got != gateway.Addr().String() {
			t.Errorf("%s's gateway is %s, want %s", h.Name, got, gateway)
		}
		if h.Interfaces[0].Addresses[0].Addr() == gateway.Addr() {
			t.Errorf("%s has the gateway's address %s", h.Name, gateway)
		}
	}
	r, _ = resolve(t, out(build("s1", "h1", "h2", "r1", "s1-h1", "s1-h2", "s1-r1"), "s1"), as)
	if got := texts(r.Edges[0].Internet.Gateway[:1]); got != gateway.String() {
		t.Errorf("a router that joins renumbers the gateway from %s to %s", gateway, got)
	}
	router := r.Elements[3].Interfaces[0].Addresses[0].Addr().String()
	if texts(r.Elements[1].Gateways) != router || texts(r.Elements[3].Gateways) != gateway.Addr().String() ||
		texts(r.Edges[0].Internet.Via) != router {
		t.Errorf("h1's gateway is %v, the router's %v, the edge's way in %v; want %s, %s, %s", r.Elements[1].Gateways,
			r.Elements[3].Gateways,
			r.Edges[0].Internet.Via, router, gateway.Addr(), router)
	}
}

func TestValidateInternet(t *testing.T) {
	for want, n := range map[string]model.Network{
		"there is no router or host h9":      out(build("h1"), "h1", "2222:h9:22"),
		"s1 is a switch":                     out(build("h1", "s1", "h1-s1"), "h1", "2222:s1:22"),
		"a port is between 1 and 65535":      out(build("h1"), "h1", "2222:h1:0"),
		"61000 and the ports above are kept": out(build("h1"), "h1", "61000:h1:22"),
		"4789 is that of the tunnels":        out(build("h1"), "h1", "4789:h1:4789/udp", "4789:h1:4789"),
		"49878 is that of the probes":        out(build("h1"), "h1", "127.0.0.1:49878:h1:53/udp"),
		"already forwards this port":         out(build("h1"), "h1", "2222:h1:22", "127.0.0.1:2222:h1:23"),
	} {
		if _, problems := Read(n); len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("got %v; want one problem: %s", problems, want)
		}
	}
	fine := out(build("h1"), "h1", "2222:h1:22", "2222:h1:22/udp", "127.0.0.1:2223:h1:22", "127.0.0.2:2223:h1:22")
	if _, problems := Read(fine); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	both := out(build("h1"), "h1")
	both.Edges[0].Device = "eth1"
	if _, problems := Read(both); len(problems) != 1 {
		t.Errorf("a device and internet at once: %v", problems)
	}
}
