package manager

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// internet is a host with a forwarded port.
func internet(name string, port uint16) model.Network {
	return model.Network{Name: name, Elements: []model.Element{{Name: "h1", Kind: model.Host}},
		Edges: []model.Edge{{Name: "up", End: model.End{Element: "h1", Interface: "up"}, Internet: &model.Internet{
			Forwards: []model.Forward{{Port: port, Element: "h1", To: 22}}}}}}
}

// A port of the machine is one network's, wherever its nodes are simulated, and none that a process has.
func TestForwardedPorts(t *testing.T) {
	substrate := substrateOf(2)
	for i := range substrate.Nodes {
		substrate.Nodes[i].Simulated = true
	}
	f := start(t, t.TempDir(), substrate)
	for _, n := range []string{"n1", "n2"} {
		f.register(t, n, model.ForwardBridge, model.ForwardGuest)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	free, err := net.ListenTCP("tcp", &net.TCPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(free.Addr().(*net.TCPAddr).Port)
	free.Close()

	if got := f.refused(t, internet("lab", taken)); !strings.Contains(got,
		"of the machine is taken by manager.test (process ") {
		t.Errorf("a port that a process has: %s", got)
	}
	f.apply(t, internet("lab", port), model.ApplyOptions{})
	if got := f.refused(t, internet("other", port)); !strings.Contains(got,
		"is already forwarded by edge up of network lab") {
		t.Errorf("a port that another network has: %s", got)
	}
	// Its own agent listens there.
	if free, err = net.ListenTCP("tcp", &net.TCPAddr{Port: int(port)}); err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	again := internet("lab", port)
	again.Edges[0].Internet.Forwards[0].To = 23
	f.apply(t, again, model.ApplyOptions{})
}

func TestNodesWithoutNAT(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.offer(t, "n1", append(offering(model.ForwardBridge, model.ForwardGuest),
		model.OfferOf(model.FeatureInternet, errors.New("it has no nft: install nftables"))...)...)
	if got := f.refused(t, internet("lab", 2222)); !strings.Contains(got,
		"edge up wants internet; n1 lacks it: it has no nft") {
		t.Errorf("got %s", got)
	}
}
