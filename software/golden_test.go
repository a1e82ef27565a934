package software

import (
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

var update = flag.Bool("update", false, "write the golden files")

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// router is r1 with interfaces to a router, to a switch, to a host, and to the world.
func router(software model.Software, routing model.Routing) model.ResolvedElement {
	to := func(name string, kind model.Kind, addresses ...string) model.ResolvedInterface {
		i := model.ResolvedInterface{Name: name, Far: &model.Far{Element: name, Kind: kind}}
		for _, a := range addresses {
			i.Addresses = append(i.Addresses, prefix(a))
		}
		return i
	}
	odd := to("ge-0/0/1", model.Router, "10.0.1.1/30", "2001:db8:1::1/64")
	odd.Device = "ge-0-0-1-hnxqk"
	world := to("eth1", "", "192.0.2.1/24")
	world.Far, world.Edge = nil, "world"
	return model.ResolvedElement{
		Name: "r1", Kind: model.Router, Software: software, RouterID: addr("10.255.0.1"), Routing: routing,
		Loopback: []netip.Prefix{prefix("10.255.0.1/32"), prefix("2001:db8:ff::1/128")},
		Interfaces: []model.ResolvedInterface{odd, to("sw", model.Switch, "10.0.2.1/24", "2001:db8:2::1/64"),
			to("h1", model.Host, "10.0.3.1/24", "2001:db8:3::1/64"), world},
	}
}

// goldens are the elements whose configuration is kept in testdata, by file name.
func goldens() map[string]model.ResolvedElement {
	m := map[string]model.ResolvedElement{}
	for _, s := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
		name := func(n string) string { return string(s) + "-" + n + ".conf" }
		m[name("plain")] = router(s, model.Routing{})
		m[name("ospf")] = router(s, model.Routing{OSPF: &model.OSPF{}})
		m[name("ospf-ospf6-area")] = router(s, model.Routing{OSPF: &model.OSPF{Area: "0.0.0.1", Cost: 7},
			OSPF6: &model.OSPF{Area: "0.0.0.1", Cost: 9}})
		m[name("bgp")] = router(s, model.Routing{BGP: &model.BGP{AS: 65001, Neighbors: []model.BGPNeighbor{
			{Address: addr("10.0.1.2"), AS: 65002, Name: "r2"}, {Address: addr("2001:db8:1::2"), AS: 65002, Name: "r2"},
			{Address: addr("10.0.2.2"), AS: 65001, Name: "r3"}, {Address: addr("10.255.0.9"), AS: 65001},
			{Address: addr("10.254.0.9"), AS: 65009}}}})
		m[name("bgp-reflector")] = router(s, model.Routing{OSPF: &model.OSPF{}, BGP: &model.BGP{AS: 65001, Reflector: true,
			Neighbors: []model.BGPNeighbor{{Address: addr("10.0.1.2"), AS: 65001, Name: "r2", Client: true},
				{Address: addr("2001:db8:1::2"), AS: 65001, Name: "r2", Client: true},
				{Address: addr("10.0.2.2"), AS: 65001, Name: "r3"}, {Address: addr("10.0.2.9"), AS: 65009}}}})
		m[name("bgp-networks")] = router(s, model.Routing{BGP: &model.BGP{AS: 4200000001,
			Networks:  []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8:99::/48")},
			Neighbors: []model.BGPNeighbor{{Address: addr("2001:db8:1::2"), AS: 65002}}}})
		watched := model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}, BGP: &model.BGP{AS: 65001,
			Neighbors: []model.BGPNeighbor{{Address: addr("10.0.1.2"), AS: 65002}, {Address: addr("10.0.2.2"), AS: 65002},
				{Address: addr("fe80::2%sw"), Interface: "sw", AS: 65003}, {Address: addr("10.255.0.9"), AS: 65001}}}}
		if s == model.SoftwareFRR {
			watched.ISIS = &model.ISIS{}
		}
		m[name("bfd")] = bfdOn(router(s, watched))
		if s == model.SoftwareFRR {
			m[name("vrrp")] = virtualOn(router(s, model.Routing{OSPF: &model.OSPF{}}))
			m[name("vrf")] = inVRFs(router(s, model.Routing{OSPF: &model.OSPF{}, RIP: &model.RIP{}, BGP: &model.BGP{AS: 65001}}))
		}
		m[name("bgp-policies")] = policed(router(s, model.Routing{}))
		over := router(s, model.Routing{BGP: &model.BGP{AS: 65001, Unnumbered: true, Neighbors: []model.BGPNeighbor{
			{Address: addr("fe80::2%ge-0-0-1-hnxqk"), Interface: "ge-0/0/1", AS: 65002, Name: "r2"},
			{Address: addr("10.0.2.2"), AS: 65001, Name: "r3"}}}})
		over.Interfaces[0].Addresses = nil
		m[name("bgp-unnumbered")] = over
		m[name("rip")] = router(s, model.Routing{RIP: &model.RIP{Redistribute: []string{"static"}}})
		m[name("ospf-ports")] = ported(router(s, model.Routing{OSPF: &model.OSPF{Cost: 20}, OSPF6: &model.OSPF{}}))
		m[name("timers")] = router(s, timed())
		out := router(s, model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}, RIP: &model.RIP{},
			BGP: &model.BGP{AS: 65001,
				Neighbors: []model.BGPNeighbor{{Address: addr("10.0.1.2"), AS: 65002},
					{Address: addr("2001:db8:1::2"), AS: 65002}}}})
		if s == model.SoftwareFRR {
			out.Routing.ISIS = &model.ISIS{}
		}
		out.Interfaces[3].Internet = true
		out.Interfaces[3].Addresses = append(out.Interfaces[3].Addresses, prefix("2001:db8:4::2/64"))
		out.Gateways = []netip.Addr{addr("192.0.2.9"), addr("2001:db8:4::1")}
		m[name("internet")] = out
		static := router(s, model.Routing{
			OSPF:  &model.OSPF{Redistribute: []string{"connected", "static", "bgp"}},
			OSPF6: &model.OSPF{Redistribute: []string{"static"}},
		})
		static.Gateways = []netip.Addr{addr("10.0.1.2"), addr("2001:db8:1::2")}
		static.Routes = []model.Route{
			{To: prefix("10.9.0.0/16"), Via: []netip.Addr{addr("10.0.1.2"), addr("10.0.2.2")}},
			{To: prefix("10.8.0.0/16"), Type: model.RouteBlackhole, Metric: 50},
			{To: prefix("10.7.0.0/16"), Type: model.RouteUnreachable},
			{To: prefix("10.6.0.0/16"), Type: model.RouteProhibit},
			{To: prefix("2001:db8:9::/48"), Via: []netip.Addr{addr("fe80::1")}, Interface: "ge-0/0/1"},
			{To: prefix("10.5.0.0/16"), Interface: "ge-0/0/1"},
		}
		m[name("static")] = static
	}
	m["frr-isis-timers.conf"] = router(model.SoftwareFRR, model.Routing{ISIS: &model.ISIS{
		ISISTimers: model.ISISTimers{Hello: 3 * model.Duration(time.Second), Hold: 30 * model.Duration(time.Second)}}})
	for level, name := range []string{"both", "1", "2"} {
		m["frr-isis-"+name+".conf"] = router(model.SoftwareFRR, model.Routing{ISIS: &model.ISIS{Level: level}})
	}
	return m
}

// timed is what a router says that is to be a neighbour of routers with FRR's own timers.
func timed() model.Routing {
	const s = model.Duration(time.Second)
	return model.Routing{OSPF: &model.OSPF{OSPFTimers: model.OSPFTimers{Hello: 10 * s}},
		OSPF6: &model.OSPF{OSPFTimers: model.OSPFTimers{Hello: 10 * s, Dead: 30 * s}},
		BGP: &model.BGP{AS: 65001, BGPTimers: model.BGPTimers{Hold: 180 * s},
			Neighbors: []model.BGPNeighbor{{Address: addr("10.0.1.2"), AS: 65002}}},
		RIP: &model.RIP{RIPTimers: model.RIPTimers{Update: 30 * s, Timeout: 180 * s, Garbage: 120 * s}}}
}

func TestGolden(t *testing.T) {
	for name, el := range goldens() {
		t.Run(name, func(t *testing.T) {
			plan, err := Render("lab", el)
			if err != nil {
				t.Fatal(err)
			}
			if !plan.NeedsProcesses || len(plan.Command) == 0 || len(plan.Console) == 0 {
				t.Errorf("plan runs nothing: %+v", plan)
			}
			conf := content(t, plan, plan.ConfigFiles[0])
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if conf != string(want) {
				t.Errorf("%s differs; go test -update writes it anew. Got\n%s", file, conf)
			}
			checkSyntax(t, el.Software, conf)
		})
	}
}

// checkSyntax asks the software itself.
func checkSyntax(t *testing.T, s model.Software, conf string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("vtysh", "-C", "-f", file)
	if s == model.SoftwareBIRD {
		command = exec.Command("bird", "-p", "-c", file)
	}
	out, err := command.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Unknown command") {
		t.Errorf("%v refuses: %v\n%s", command.Args[0], err, out)
	}
}

func content(t *testing.T, p Plan, path string) string {
	t.Helper()
	k := slices.IndexFunc(p.Files, func(f File) bool { return f.Path == path })
	if k < 0 {
		t.Fatalf("the plan has no file %s", path)
	}
	return p.Files[k].Content
}

func TestOwnConfigurationReplacesTheGenerated(t *testing.T) {
	el := router(model.SoftwareFRR, model.Routing{OSPF: &model.OSPF{}})
	el.Config = map[string]string{"frr.conf": "router isis x\n net 49.0001.0000.0000.0001.00\nrouter bgp 1\n " +
		"neighbor 10.0.0.1 bfd\n"}
	plan, err := Render("lab", el)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, plan, "/etc/frr/frr.conf"); got != el.Config["frr.conf"] {
		t.Errorf("frr.conf is %q", got)
	}
	if want := []string{"zebra", "bgpd", "isisd", "staticd", "bfdd"}; !slices.Equal(plan.Daemons, want) {
		t.Errorf("daemons are %v, want %v", plan.Daemons, want)
	}
	daemons := content(t, plan, "/etc/frr/daemons")
	for _, line := range []string{"bgpd=yes", "isisd=yes", "bfdd=yes", "ospfd=no", `zebra_options="-K3"`} {
		if !strings.Contains(daemons, line+"\n") {
			t.Errorf("/etc/frr/daemons has no line %s:\n%s", line, daemons)
		}
	}
	el.Config["daemons"] = "ospfd=yes\nbgpd = no # off\nripd=\"yes\"\n"
	if plan, err = Render("lab", el); err != nil {
		t.Fatal(err)
	}
	if want := []string{"zebra", "ripd", "ospfd", "staticd"}; !slices.Equal(plan.Daemons, want) {
		t.Errorf("daemons are %v, want those of the own daemons file, %v", plan.Daemons, want)
	}
	bird := router(model.SoftwareBIRD, model.Routing{ISIS: &model.ISIS{}})
	bird.Config = map[string]string{"bird.conf": "protocol device {}\n"}
	if plan, err = Render("lab", bird); err != nil {
		t.Fatal(err)
	}
	if got := content(t, plan, "/etc/bird/bird.conf"); got != bird.Config["bird.conf"] {
		t.Errorf("bird.conf is %q", got)
	}
}

func TestDaemonsAreThoseTheConfigurationNeeds(t *testing.T) {
	for conf, want := range map[string][]string{
		"":                                   nil,
		"router ospf\n":                      {"ospfd"},
		"router ospf6\n":                     {"ospf6d"},
		"router ospf vrf red\nrouter ripng":  {"ripngd", "ospfd"},
		"! router ospf\n":                    nil,
		"router rip\n":                       {"ripd"},
		"bfd\n peer 10.0.0.1\n":              {"bfdd"},
		"interface x\n ip ospf bfd\n":        {"bfdd"},
		"interface x\n ip pim\n":             {"pimd"},
		"neighbor 10.0.0.1 description bfd1": nil,
	} {
		got := slices.DeleteFunc(FRRDaemons(conf), func(d string) bool { return d == "zebra" || d == "staticd" })
		if len(got) != len(want) || !slices.Equal(got, want) {
			t.Errorf("%q needs %v, want %v", conf, got, want)
		}
	}
}

func TestElementsWithoutProcesses(t *testing.T) {
	for _, el := range []model.ResolvedElement{
		{Name: "h1", Kind: model.Host}, {Name: "s1", Kind: model.Switch},
		{Name: "r1", Kind: model.Router, Software: model.SoftwareStatic},
		{Name: "r2", Kind: model.Router, Software: model.SoftwareNone},
	} {
		plan, err := Render("lab", el)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Plan{Console: []string{"/bin/bash"}}); !reflect.DeepEqual(plan, want) {
			t.Errorf("%s's plan is %+v", el.Name, plan)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		el     model.ResolvedElement
		change func(*model.ResolvedElement)
		want   string
	}{
		{"isis with bird", router(model.SoftwareBIRD, model.Routing{ISIS: &model.ISIS{}}), nil,
			"configuring lab/r1: bird has no IS-IS: set software to frr"},
		{"unknown file", router(model.SoftwareFRR, model.Routing{}), func(e *model.ResolvedElement) {
			e.Config = map[string]string{"bird.conf": "x"}
		}, `frr reads no configuration file "bird.conf"; it knows daemons, frr.conf, vtysh.conf`},
		{"unknown file of bird", router(model.SoftwareBIRD, model.Routing{}), func(e *model.ResolvedElement) {
			e.Config = map[string]string{"frr.conf": "x"}
		}, `bird reads no configuration file "frr.conf"; it knows bird.conf`},
		{"file for nobody", router(model.SoftwareStatic, model.Routing{}), func(e *model.ResolvedElement) {
			e.Config = map[string]string{"frr.conf": "x"}
		}, "there is no software here that would read frr.conf"},
		{"intent for nobody", router(model.SoftwareStatic, model.Routing{OSPF: &model.OSPF{}}), nil,
			"routing protocols need routing software"},
		{"unknown software", router("quagga", model.Routing{}), nil,
			`unknown software "quagga"; known are frr, bird, static and none`},
		{"redistribute nonsense",
			router(model.SoftwareFRR, model.Routing{OSPF: &model.OSPF{Redistribute: []string{"all"}}}), nil,
			`ospf: frr cannot redistribute "all"; it knows bgp, connected, isis, kernel, ospf, ospf6, rip, static`},
		{"redistribute nonsense with bird",
			router(model.SoftwareBIRD, model.Routing{RIP: &model.RIP{Redistribute: []string{"isis"}}}), nil,
			`rip: bird cannot redistribute "isis"; it knows bgp, connected, ospf, ospf6, rip, static`},
		{"redistribute itself", router(model.SoftwareFRR,
			model.Routing{RIP: &model.RIP{Redistribute: []string{"rip"}}}), nil,
			"rip cannot redistribute itself"},
		{"no AS", router(model.SoftwareFRR, model.Routing{BGP: &model.BGP{}}), nil,
			"bgp needs an autonomous system number"},
		{"no router ID", router(model.SoftwareBIRD, model.Routing{OSPF: &model.OSPF{}}),
			func(e *model.ResolvedElement) {
				e.RouterID = netip.Addr{}
			}, "need a router ID"},
		{"level", router(model.SoftwareFRR, model.Routing{ISIS: &model.ISIS{Level: 3}}), nil,
			"an isis level is 1, 2, or 0 for both, not 3"},
		{"route nowhere", router(model.SoftwareFRR, model.Routing{}), func(e *model.ResolvedElement) {
			e.Routes = []model.Route{{To: prefix("10.9.0.0/16")}}
		}, "route 10.9.0.0/16: it needs a next hop"},
		{"route over no interface", router(model.SoftwareBIRD, model.Routing{}), func(e *model.ResolvedElement) {
			e.Routes = []model.Route{{To: prefix("10.9.0.0/16"), Interface: "eth9"}}
		}, `route 10.9.0.0/16: there is no interface "eth9"; there are ge-0/0/1, sw, h1, eth1`},
		{"an interface that is not there", router(model.SoftwareFRR, model.Routing{BGP: &model.BGP{AS: 1,
			Neighbors: []model.BGPNeighbor{{Interface: "r9", AS: 2}}}}), nil,
			`bgp: there is no interface "r9"; there are ge-0/0/1, sw, h1, eth1`},
		{"whoever is there, with bird", router(model.SoftwareBIRD, model.Routing{BGP: &model.BGP{AS: 1,
			Neighbors: []model.BGPNeighbor{{Interface: "eth1", AS: 2}}}}), nil,
			`bgp: bird must know the address of the neighbour at eth1`},
		{"metric", router(model.SoftwareFRR, model.Routing{}), func(e *model.ResolvedElement) {
			e.Routes = []model.Route{{To: prefix("10.9.0.0/16"), Type: model.RouteBlackhole, Metric: 1000}}
		}, "route 10.9.0.0/16: with frr a metric is an administrative distance, 1…255, not 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(&c.el)
			}
			_, err := Render("lab", c.el)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one that says %s", err, c.want)
			}
		})
	}
}
