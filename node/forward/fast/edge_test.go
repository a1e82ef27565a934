package fast_test

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
)

// tap makes a device whose frames the test sends and receives.
func (l *lab) tap(name string) *os.File {
	l.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		l.Fatal(err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		l.Fatal(err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		l.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	l.Cleanup(func() { f.Close() })
	return f
}

// TestEdgeHook pings a host through two routers from a VLAN of a device that is no veth: what comes and goes there
// takes the driver's hook, with its tag in the frame.
func TestEdgeHook(t *testing.T) {
	l := newLab(t)
	wire := l.tap("tap0")
	l.edge, l.hook = &fabric.Edge{Device: "tap0", VLAN: 42}, model.HookXDP
	outside := net.HardwareAddr{2, 0, 0, 0, 9, 9}
	l.in("r2", "ip neigh replace 10.0.2.2 lladdr "+outside.String()+" dev h2 nud permanent")
	l.prepare("r1", "r2")
	if use := l.report.Hooks[model.PortID{ID: id("r2"), Interface: "h2"}]; use.Hook != model.HookXDP {
		t.Fatalf("the edge has %+v", use)
	}
	l.in("h1", "ping -c1 -W10 10.0.0.1") // and neighbours are known
	l.in("r2", "ping -c2 -i0.1 -W10 10.0.0.2")
	router, err := net.ParseMAC(model.MAC(model.PortID{ID: id("r2"), Interface: "h2"}))
	if err != nil {
		t.Fatal(err)
	}
	payload := gopacket.Payload(bytes.Repeat([]byte("edge"), 20))
	before := l.forwarded("r2")
	buffer := make([]byte, 2048)
	for n := range uint16(10) {
		b := gopacket.NewSerializeBuffer()
		err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: outside, DstMAC: router, EthernetType: layers.EthernetTypeDot1Q},
			&layers.Dot1Q{VLANIdentifier: 42, Type: layers.EthernetTypeIPv4},
			&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: net.IP{10, 0, 2, 2},
				DstIP: net.IP{10, 0, 0, 2}},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0),
				Id: 7, Seq: n}, payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			wire.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // the read tells
			got, err := wire.Read(buffer)
			if err != nil {
				t.Fatalf("no answer to packet %d: %v", n, err)
			}
			p := gopacket.NewPacket(buffer[:got], layers.LayerTypeEthernet, gopacket.Default)
			echo, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
			if !ok || echo.TypeCode.Type() != layers.ICMPv4TypeEchoReply {
				continue // somebody else's
			}
			e, tag := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), p.Layer(layers.LayerTypeDot1Q)
			ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			answered = true
			if tag == nil || tag.(*layers.Dot1Q).VLANIdentifier != 42 || !bytes.Equal(e.SrcMAC, router) ||
				!bytes.Equal(e.DstMAC, outside) ||
				ip.TTL != 62 || echo.Seq != n || !bytes.Equal(echo.Payload, payload) {
				t.Errorf("packet %d is answered by %v", n, p)
			}
		}
	}
	is := l.forwarded("r2")
	if n := is.Driver - before.Driver; n != 20 || is.Packets-before.Packets != 20 {
		t.Errorf("of 20 packets %d were forwarded, %d in the driver's hook", is.Packets-before.Packets, n)
	}
}
