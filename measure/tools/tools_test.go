package tools

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/measure/netdev"
)

// hosts are two namespaces with addresses, joined by a veth pair.
func hosts(t *testing.T) (client, server string) {
	t.Helper()
	var ns [2]string
	for i := range ns {
		n, err := netdev.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		ns[i] = n.Path()
	}
	a, b := netdev.Ref{Namespace: ns[0], Name: "a"}, netdev.Ref{Namespace: ns[1], Name: "b"}
	if err := netdev.NewVeth(a, b, 1); err != nil {
		t.Fatal(err)
	}
	for r, addresses := range map[netdev.Ref][]string{a: {"10.0.0.1/24", "2001:db8::1/64"},
		b: {"10.0.0.2/24", "2001:db8::2/64"}} {
		if err := netdev.In(r.Namespace, func() error {
			l, err := netlink.LinkByName(r.Name)
			if err != nil {
				return err
			}
			for _, s := range addresses {
				addr, err := netlink.ParseAddr(s)
				if err != nil {
					return err
				}
				addr.Flags = 0x02 // IFA_F_NODAD
				if err := netlink.AddrAdd(l, addr); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return ns[0], ns[1]
}

func TestPing(t *testing.T) {
	c, _ := hosts(t)
	for _, to := range []string{"10.0.0.2", "2001:db8::2"} {
		p, err := RunPing(context.Background(), PingOptions{Namespace: c, Address: netip.MustParseAddr(to), Count: 20,
			Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", to, p.RTT)
		if p.Sent != 20 || p.Received != 20 || p.RTT.Count != 20 || p.RTT.Min == 0 || p.Jitter.Abs.Count != 19 ||
			len(p.Series) != 20 {
			t.Errorf("%s: %+v", to, p)
		}
	}
	p, err := RunPing(context.Background(), PingOptions{Namespace: c, Address: netip.MustParseAddr("10.0.0.99"),
		Count: 1, Timeout: 100 * time.Millisecond})
	if err != nil || p.Sent != 1 || p.Received != 0 {
		t.Errorf("nobody is there: %+v, %v", p, err)
	}
}

func TestConnect(t *testing.T) {
	c, s := hosts(t)
	r, err := RunConnect(context.Background(),
		ConnectOptions{Client: c, Server: s, Address: netip.MustParseAddrPort("10.0.0.2:0"),
			Rate: 500, Duration: time.Second, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Requested+r.Unsent != 500 || r.Established != r.Requested || r.Established < 400 ||
		r.Time.Count != uint64(r.Established) {
		t.Errorf("%+v", r)
	}
	if _, err := RunConnect(context.Background(),
		ConnectOptions{Client: c, Server: s, Address: netip.MustParseAddrPort("10.0.0.77:80"),
			Rate: 1, Duration: time.Second}); err == nil {
		t.Error("a server at an address that is not there was accepted")
	}
}

func TestTCP(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Fatal("iperf3 is needed (Debian's package is iperf3)")
	}
	c, s := hosts(t)
	r, err := RunTCP(context.Background(), TCPOptions{Client: c, Server: s, Address: netip.MustParseAddr("10.0.0.2"),
		Duration: time.Second, Streams: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f Gb/s, %d retransmits, %s, mean RTT %v", r.BitRate/1e9, r.Retransmits, r.Congestion, r.MeanRTT)
	if r.BitRate < 1e6 || len(r.PerStream) != 2 || r.Congestion == "" {
		t.Errorf("%+v", r)
	}
	if _, err := RunTCP(context.Background(), TCPOptions{Client: c, Server: s,
		Address: netip.MustParseAddr("10.0.0.77"), Duration: time.Second}); err == nil {
		t.Error("a server at an address that is not there was accepted")
	}
}

func TestParseIperf(t *testing.T) {
	if _, err := ParseIperf([]byte(`{"error":"unable to connect to server"}`)); err == nil {
		t.Error("an error was read as a result")
	}
	if _, err := ParseIperf([]byte(`{}`)); err == nil {
		t.Error("nothing was read as a result")
	}
	r, err := ParseIperf([]byte(`{"end":{"streams":[{"sender":{"mean_rtt":120},"receiver":{"bits_per_second":5e8}},{"receiver":{"bits_per_second":4e8}}],
		"sum_sent":{"retransmits":7},"sum_received":{"bits_per_second":9e8},"cpu_utilization_percent":{"host_total":50,"remote_total":25},"sender_tcp_congestion":"bbr"}}`))
	if err != nil || r.BitRate != 9e8 || r.Retransmits != 7 || r.MeanRTT != 120*time.Microsecond ||
		len(r.PerStream) != 2 || r.Congestion != "bbr" {
		t.Errorf("%+v %v", r, err)
	}
}
