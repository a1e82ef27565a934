package plan

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/polyplane/polyplane/model"
)

func duo() model.Network {
	end := func(e, i string) model.End { return model.End{Element: e, Interface: i} }
	return model.Network{
		Name: "duo",
		Elements: []model.Element{
			{Name: "r1", Kind: model.Router, Software: model.SoftwareFRR, Amounts: model.Amounts{CPU: 500},
				Routing:    model.Routing{OSPF: &model.OSPF{}},
				Interfaces: []model.Interface{{Name: "h1"}, {Name: "r2"}}},
			{Name: "r2", Kind: model.Router, Software: model.SoftwareStatic,
				Interfaces: []model.Interface{{Name: "r1"}}},
			{Name: "h1", Kind: model.Host, Interfaces: []model.Interface{{Name: "r1"}}},
		},
		Links: []model.Link{
			{Name: "h1--r1", Ends: [2]model.End{end("h1", "r1"), end("r1", "h1")}},
			{Name: "r1--r2", Ends: [2]model.End{end("r1", "r2"), end("r2", "r1")}, Bandwidth: 10e6},
		},
		Expect: []model.Expectation{{From: "h1", To: "r2"}},
	}
}

// What an element runs changes without anything else noticing, where that can be.
func TestDiffOfServices(t *testing.T) {
	for _, c := range []struct {
		change func(*model.Service)
		want   string
	}{
		{func(s *model.Service) { s.Env = model.Variables{"TZ": "CET"} }, "~ ELEMENT.env.TZ: UTC → CET  (restarts the service of ELEMENT)"},
		{func(s *model.Service) { s.Run = "b" }, "~ ELEMENT.run: a → b  (restarts the service of ELEMENT)"},
		{func(s *model.Service) { s.Start = []string{"c"} }, "~ ELEMENT.start: unset → c  (in place)"},
		{func(s *model.Service) { s.Stop, s.Restart = []string{"c"}, model.RestartNo },
			"~ ELEMENT.stop: unset → c  (in place)\n~ ELEMENT.restart: unset → no  (in place)"},
		{func(s *model.Service) { s.Tmpfs = map[string]model.Bytes{"/a": 4096} },
			"~ ELEMENT.tmpfs./a: unset → 4KiB  (restarts ELEMENT)"},
		{func(s *model.Service) {
			s.Contents = map[string]model.File{"/a": {Text: "one\ntwo\n"}, "/b": {Base64: []byte{255, 0}, Mode: "0600"}}
		}, "~ ELEMENT.files./a: unset → 8B, mode 0644  (restarts the service of ELEMENT)\n" +
			"~ ELEMENT.files./b: unset → 2B, mode 0600  (restarts the service of ELEMENT)"},
	} {
		for i, name := range []string{"r1", "r2", "h1"} {
			was := duo()
			was.Elements[i].Service = model.Service{Run: "a", Env: model.Variables{"TZ": "UTC"}}
			is := duo()
			is.Elements[i].Service = was.Elements[i].Service
			c.change(&is.Elements[i].Service)
			want := strings.ReplaceAll(c.want, "ELEMENT", name) + "\n0 to create, 1 to change, 0 to delete\n"
			if got := Diff(was, is).Format(false); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		}
	}
	was := duo()
	was.Elements[0].Run, was.Elements[2].Run = "a", "a"
	if got, want := Diff(was, duo()).Format(false), "~ r1.run: a → unset  (restarts r1)\n"+
		"~ h1.run: a → unset  (ends the service of h1)\n0 to create, 2 to change, 0 to delete\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Files change without anything else noticing but a service, and routing software is no service.
func TestDiffOfFiles(t *testing.T) {
	was, is := duo(), duo()
	for i := range was.Elements {
		was.Elements[i].Contents = map[string]model.File{"/a": {Text: "1\n2\n3\n"}, "/b": {Base64: []byte{255}}, "/c": {}}
		is.Elements[i].Contents = map[string]model.File{"/a": {Text: "1\n4\n3\n"}, "/b": {Base64: []byte{254}}, "/c": {Mode: "0755"}}
	}
	want := ""
	for _, name := range []string{"r1", "r2", "h1"} {
		for _, change := range []string{"/a: 6B, mode 0644 → 6B, mode 0644 (1 removed, 1 added)",
			"/b: 1B, mode 0644 → 1B, mode 0644 (other content)", "/c: 0B, mode 0644 → 0B, mode 0755"} {
			want += "~ " + name + ".files." + change + "  (in place)\n"
		}
	}
	if got := Diff(was, is).Format(false); got != want+"0 to create, 3 to change, 0 to delete\n" {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*model.Network)
		want   string
	}{
		{"nothing", func(*model.Network) {}, "0 to create, 0 to change, 0 to delete\n"},
		{"resize", func(n *model.Network) { n.Elements[0].CPU = 1000 }, `
~ r1.cpu: 0.5 → 1  (in place)
0 to create, 1 to change, 0 to delete
`},
		{"routing of a router with processes", func(n *model.Network) { n.Elements[0].Routing.OSPF = &model.OSPF{Cost: 5} }, `
~ r1.routing.ospf.cost: unset → 5  (reloads r1)
0 to create, 1 to change, 0 to delete
`},
		{"what OSPF does at an interface", func(n *model.Network) {
			n.Elements[0].Interfaces[0].OSPF = &model.OSPFPort{OSPFPortKeys: model.OSPFPortKeys{Cost: 7}}
			n.Elements[0].Interfaces[1].OSPF = &model.OSPFPort{Area: "0.0.0.1", Passive: model.No}
		}, `
~ r1:h1.ospf: unset → cost 7  (in place)
~ r1:r2.ospf: unset → area 0.0.0.1 passive false  (finds its OSPF neighbours there anew)
0 to create, 2 to change, 0 to delete
`},
		{"OSPF at an interface no more", func(n *model.Network) {
			n.Elements[0].Interfaces[0].OSPF = &model.OSPFPort{Off: true}
		}, `
~ r1:h1.ospf: unset → off true  (finds its OSPF neighbours there anew)
0 to create, 1 to change, 0 to delete
`},
		{"an intent with nothing in it", func(n *model.Network) {
			n.Elements[0].Routing = model.Routing{RIP: &model.RIP{}}
		}, `
~ r1.routing.ospf: on → unset  (restarts r1)
~ r1.routing.rip: unset → on  (restarts r1)
0 to create, 1 to change, 0 to delete
`},
		{"what a host begins to run", func(n *model.Network) {
			n.Elements[2].Service = model.Service{Run: "iperf3 -s", Env: model.Variables{"TZ": "UTC", "E": ""},
				Start: []string{"true"}, Ready: &model.Readiness{TCP: 5201}, Tmpfs: map[string]model.Bytes{"/d": 1 << 20}}
		}, `
~ h1.start: unset → true  (in place)
~ h1.run: unset → iperf3 -s  (in place)
~ h1.env.E: unset → ""  (in place)
~ h1.env.TZ: unset → UTC  (in place)
~ h1.ready: unset → tcp 5201  (in place)
~ h1.tmpfs./d: unset → 1MiB  (in place)
0 to create, 1 to change, 0 to delete
`},
		{"what a router begins to run beside its software", func(n *model.Network) {
			n.Elements[0].Start = []string{"true"}
		}, `
~ r1.start: unset → true  (restarts r1)
0 to create, 1 to change, 0 to delete
`},
		{"routes of a static router", func(n *model.Network) {
			n.Elements[1].Routes = []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: []netip.Addr{
				netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}}}
		}, `
~ r2.routes: unset → to 10.0.0.0/8 via 10.1.0.1 10.1.0.2  (in place)
0 to create, 1 to change, 0 to delete
`},
		{"another forwarding", func(n *model.Network) { n.Elements[1].Forwarding = model.ForwardXDP }, `
~ r2.forwarding: unset → xdp  (in place)
0 to create, 1 to change, 0 to delete
`},
		{"a router becomes a host", func(n *model.Network) { n.Elements[1].Kind, n.Elements[1].Software = model.Host, "" }, `
~ r2.kind: router → host  (makes r2 anew)
~ r2.software: static → unset  (makes r2 anew)
0 to create, 1 to change, 0 to delete
`},
		{"a host comes with its link", func(n *model.Network) {
			n.Elements = append(n.Elements, model.Element{Name: "h2", Kind: model.Host,
				Amounts: model.Amounts{CPU: 100},
				Interfaces: []model.Interface{{Name: "r2",
					Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}}}})
			n.Elements[1].Interfaces = append(n.Elements[1].Interfaces, model.Interface{Name: "h2"})
			n.Links = append(n.Links, model.Link{Name: "h2--r2", MTU: 9000,
				Ends: [2]model.End{{Element: "h2", Interface: "r2"}, {Element: "r2", Interface: "h2"}}})
		}, `
+ host h2: cpu 0.1, r2.addresses 10.0.0.9/24
+ link h2--r2: ends h2:r2, r2:h2, mtu 9000
2 to create, 0 to change, 0 to delete
`},
		{"a host goes with its link", func(n *model.Network) {
			n.Elements, n.Links, n.Expect = n.Elements[:2], n.Links[1:], nil
			n.Elements[0].Interfaces = n.Elements[0].Interfaces[1:]
		}, `
- expectation h1 reaches r2
- link h1--r1  (cuts what goes over it)
- host h1  (ends it and what it keeps on disk)
0 to create, 0 to change, 3 to delete
`},
		{"a link by the same name joins others", func(n *model.Network) {
			n.Links[1].Ends[1] = model.End{Element: "h1", Interface: "r1.2"}
			n.Elements[1].Interfaces = nil
			n.Elements[2].Interfaces = append(n.Elements[2].Interfaces, model.Interface{Name: "r1.2"})
		}, `
- link r1--r2  (cuts what goes over it)
+ link r1--r2: ends r1:r2, h1:r1.2, bandwidth 10Mbit
1 to create, 0 to change, 1 to delete
`},
		{"link attributes", func(n *model.Network) {
			n.Links[1].Bandwidth, n.Links[1].Loss = 1.5e9, 0.01
			n.Links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}
		}, `
~ link h1--r1.prefixes: unset → 10.0.0.0/30  (renumbers its interfaces)
~ link r1--r2.bandwidth: 10Mbit → 1500Mbit  (in place)
~ link r1--r2.loss: unset → 1%  (in place)
0 to create, 2 to change, 0 to delete
`},
		{"an address", func(n *model.Network) {
			n.Elements[2].Interfaces = []model.Interface{{Name: "r1",
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}
		}, `
~ h1:r1.addresses: unset → 10.0.0.2/24  (renumbers it)
0 to create, 1 to change, 0 to delete
`},
		{"a configuration", func(n *model.Network) { n.Elements[0].Config = map[string]string{"frr.conf": "a\nb\n"} }, `
~ r1.config.frr.conf: unset → 2 lines  (restarts r1)
0 to create, 1 to change, 0 to delete
`},
		{"slice and expectation", func(n *model.Network) {
			n.Slice.CPU = 2000
			n.Expect[0].Not, n.Expect[0].Family = true, model.IPv6
		}, `
- expectation h1 reaches r2
~ network duo.slice.cpu: unset → 2  (in place)
+ expectation h1 does not reach r2 over ipv6
1 to create, 1 to change, 1 to delete
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			net := duo()
			c.change(&net)
			got := Diff(duo(), net).Format(false)
			if want := strings.TrimPrefix(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestConfigurationsTellHowMuchDiffers(t *testing.T) {
	old, new := duo(), duo()
	old.Elements[0].Config = map[string]string{"frr.conf": "a\nb\nc\n"}
	new.Elements[0].Config = map[string]string{"frr.conf": "a\nx\ny\nc\n"}
	want := "~ r1.config.frr.conf: 3 lines → 4 lines (1 removed, 2 added)  (reloads r1)\n"
	if got := Diff(old, new).Format(false); !strings.HasPrefix(got, want) {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestLongListsTellOnlyWhatDiffers(t *testing.T) {
	routes := func(third ...byte) (rs []model.Route) {
		for _, b := range third {
			rs = append(rs, model.Route{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, b}), 24),
				Type: model.RouteBlackhole})
		}
		return rs
	}
	old, new := duo(), duo()
	old.Elements[1].Routes = routes(1, 2, 3, 4, 5, 6)
	new.Elements[1].Routes = routes(1, 2, 3, 9, 5, 6)
	want := "~ r2.routes: to 10.0.4.0/24 type blackhole → unset  (in place)\n" +
		"~ r2.routes: unset → to 10.0.9.0/24 type blackhole  (in place)\n"
	if got := Diff(old, new).Format(false); !strings.HasPrefix(got, want) {
		t.Errorf("got %swant %s", got, want)
	}
	new.Elements[1].Routes = routes(1, 2, 3, 4, 6, 5) // the order alone
	if len(Diff(old, new)) != 1 {
		t.Error("another order of many routes is not told")
	}
}

func TestWholeNetworks(t *testing.T) {
	create := Diff(model.Network{}, duo())
	if got, want := create.Summary(), "6 to create, 0 to change, 0 to delete"; got != want {
		t.Errorf("creating: %s, want %s", got, want)
	}
	remove := Diff(duo(), model.Network{})
	if got, want := remove.Summary(), "0 to create, 0 to change, 6 to delete"; got != want {
		t.Errorf("deleting: %s, want %s", got, want)
	}
	if remove[1].Kind != "link" || remove[len(remove)-1].Kind != "router" {
		t.Errorf("links go before what they join: %v", remove)
	}
	disturbing := func(cs Changes) (n int) {
		for _, c := range cs {
			if c.Disturbs {
				n++
			}
		}
		return n
	}
	if disturbing(remove) != 5 || disturbing(create) != 0 {
		t.Errorf("disturbing: %d of deleting, %d of creating; want 5 and 0", disturbing(remove), disturbing(create))
	}
}

func TestColours(t *testing.T) {
	net := duo()
	net.Elements[0].CPU = 1000
	if got := Diff(duo(), net).Format(true); !strings.HasPrefix(got, "\x1b[33m~\x1b[0m r1.cpu") {
		t.Errorf("got %q", got)
	}
}

// Whoever looks at a stranger's file has nothing written to his terminal, and no line of it hidden or made up.
func TestControlCharactersAreShown(t *testing.T) {
	old := model.Network{Name: "lab", Elements: []model.Element{{Name: "h1", Kind: model.Host}}}
	next := model.Network{Name: "lab", Elements: []model.Element{{Name: "h1", Kind: model.Host}}}
	next.Elements[0].Run = "a\x1b]0;title\a\x1b[2K\n+ line\u202e\u009b\xff"
	next.Elements[0].Env = map[string]string{"A": "b\r"}
	for _, was := range []model.Network{{}, old} {
		changes := Diff(was, next)
		got := changes.Format(false)
		for _, c := range changes {
			for _, d := range c.Details {
				got += d.String() + "\n"
			}
		}
		if i := strings.IndexFunc(strings.ReplaceAll(got, "\n", ""), unicode.IsControl); i >= 0 ||
			strings.ContainsAny(got, "\u202e\xff") || strings.Contains(got, "\n+ line") ||
			!strings.Contains(got, `a\x1b]0;title\a\x1b[2K\n+ line\u202e\u009b\xff`) {
			t.Errorf("it is shown as %q", got)
		}
	}
}
