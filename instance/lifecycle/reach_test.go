package lifecycle

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
)

func TestListenAddresses(t *testing.T) {
	for text, want := range map[string]string{":7455": ":7455", ":1": ":1", "192.0.2.1": "192.0.2.1:7455",
		"192.0.2.1:80": "192.0.2.1:80",
		"::":           "[::]:7455", "[2001:db8::1]:99": "[2001:db8::1]:99", "0.0.0.0": "0.0.0.0:7455"} {
		if got, err := listenAddress(text); err != nil || got != want {
			t.Errorf("--listen %s is %q: %v", text, got, err)
		}
	}
	for _, wrong := range []string{":0", ":http", ":65536", "host:7455", "192.0.2.1:1:2", "http://192.0.2.1", " "} {
		if got, err := listenAddress(wrong); err == nil {
			t.Errorf("--listen %q is taken as %q", wrong, got)
		}
	}
	for text, want := range map[string]string{"server1": "server1:7455",
		"server1.example.org:1": "server1.example.org:1", "2001:db8::1": "[2001:db8::1]:7455"} {
		if got, err := model.ServerAddress(text); err != nil || got != want {
			t.Errorf("server %s is %q: %v", text, got, err)
		}
	}
	for _, wrong := range []string{"", ":7455", "https://server1", "a b", "server1:x", "-x"} {
		if got, err := model.ServerAddress(wrong); err == nil {
			t.Errorf("server %q is taken as %q", wrong, got)
		}
	}
}

// What was said of how the machine is reached is remembered, until something else is said.
func TestReachIsRemembered(t *testing.T) {
	m := substrate.Machine{Name: "here", CPU: 2000, Memory: 1 << 30, MTU: 1500,
		Address: netip.MustParseAddr("192.0.2.7")}
	listen, advertise, none := []string{":7455", "192.0.2.7:1"}, []string{"server1"}, []string{}
	first, err := decide(Options{Nodes: HostOnly, Listen: &listen, Advertise: &advertise}, settings{}, false, m)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--listen", ":7455", "--listen", "192.0.2.7:1", "--advertise", "server1:7455"}
	if got := first.reachArgs(); !reflect.DeepEqual(got, want) {
		t.Errorf("the manager is told %v", got)
	}
	m.Address, m.MTU = netip.MustParseAddr("192.0.2.8"), 9000 // it has moved
	again, err := decide(Options{}, first, true, m)
	if err != nil || !reflect.DeepEqual(again.reachArgs(), want) {
		t.Errorf("come back, it is told %v: %v", again.reachArgs(), err)
	}
	if n := again.Substrate.Nodes[0]; n.Address != m.Address || n.MTU != 9000 || n.Name != "here" {
		t.Errorf("the node is %+v", n)
	}
	if first.Substrate.Nodes[0].Address == m.Address {
		t.Error("what is remembered was altered")
	}
	off, err := decide(Options{Listen: &none}, again, true, m)
	if err != nil || len(off.Listen) != 0 || len(off.Advertise) != 1 {
		t.Errorf("told to serve nobody, it has %+v: %v", off, err)
	}
	if _, err := decide(Options{Underlay: netip.MustParseAddr("203.0.113.99")}, again, true, m); err == nil {
		t.Error("an address that the machine does not have is taken")
	}
	if _, err := decide(Options{Underlay: netip.MustParseAddr("127.0.0.1")}, again, true, m); err == nil {
		t.Error("the loopback is taken as an underlay")
	}
}
