package fabric

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/system/attack"
)

// edgeTags are what frames have between their addresses and their content, by the name that is in the content.
var edgeTags = map[string][]byte{
	"untagged": nil, "priority": {0x81, 0, 0xa0, 0}, "42": {0x81, 0, 0x60, 42}, "43": {0x81, 0, 0, 43},
	"ad-42": {0x88, 0xa8, 0, 42}, "ad-43": {0x88, 0xa8, 0, 43}, "old-43": {0x91, 0, 0, 43},
	"42-of-7": {0x81, 0, 0, 42, 0x81, 0, 0, 7}, "ad-42-of-7": {0x88, 0xa8, 0, 42, 0x81, 0, 0, 7},
	"0-of-42": {0x81, 0, 0, 0, 0x81, 0, 0, 42}, "0-of-ad-42": {0x81, 0, 0, 0, 0x88, 0xa8, 0, 42},
	"0-of-0": {0x81, 0, 0, 0, 0x81, 0, 0, 0},
}

// TestEdgeTags sends frames with all sorts of tags into and out of edges. The outer tag says whose a frame is, VLAN 0
// is none (IEEE 802.1Q, priority tags); a tag more than the edge's own passes where the edge is a trunk, and nowhere
// else: on the wire it might be another tenant's VLAN, now or behind a switch that takes the outer tag off. A service's
// VLAN (0x88a8) is another than that of the same number without it, and none of an edge's.
func TestEdgeTags(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "frames with tags of every kind are sent out of edges and into them, with other VLANs beside",
		"none gets into another VLAN")
	plain := map[string][]byte{"untagged": nil, "priority": nil}
	all := edgeTags
	without := func(names ...string) map[string][]byte {
		rest := maps.Clone(all)
		for _, name := range names {
			delete(rest, name)
		}
		return rest
	}
	tagged42 := map[string][]byte{}
	for name, tags := range all {
		tagged42[name] = append([]byte{0x81, 0, 0, 42}, tags...)
	}
	for _, c := range []struct {
		name     string
		edges    []Edge              // of elements a, b, …
		in, out  []map[string][]byte // what of edgeTags comes to and from each of them, and with which tags
		unheeded int                 // of what is sent inwards, frames that the edges drop, told at some port
	}{
		{"a VLAN beside none", []Edge{{VLAN: 42}, {}},
			[]map[string][]byte{{"42": nil}, plain},
			[]map[string][]byte{{"untagged": {0x81, 0, 0, 42}, "priority": {0x81, 0, 0, 42}},
				{"untagged": nil, "priority": nil}},
			len([]string{"42-of-7", "0-of-42", "0-of-ad-42", "0-of-0", "old-43"})},
		{"a trunk within a VLAN", []Edge{{VLAN: 42, Trunk: true}, {VLAN: 43}},
			[]map[string][]byte{{"42": nil, "42-of-7": {0x81, 0, 0, 7}}, {"43": nil}},
			[]map[string][]byte{tagged42, {"untagged": {0x81, 0, 0, 43}, "priority": {0x81, 0, 0, 43}}}, 0},
		{"a trunk", []Edge{{Trunk: true}}, []map[string][]byte{without()}, []map[string][]byte{without()}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, "")
			outside := newElement(t, "outside")
			n.pair(outside, "wire", "10.9.0.1/24")
			wire := n.dirs.PortDevice(portID("net/outside:wire"))
			var elements []*element
			var seen []*capturing
			for i := range c.edges {
				e := newElement(t, string(rune('a'+i)))
				c.edges[i].Device = wire
				n.plug(e, "eth0").Edge = &c.edges[i]
				elements = append(elements, e)
			}
			n.apply()
			for _, e := range elements {
				seen = append(seen, n.capture(t, e.name+":eth0"))
			}
			for name, tags := range edgeTags {
				sendTagged(outside, "wire", name, tags)
			}
			for i, e := range elements {
				tagged := func(all []captured) map[string][]byte {
					got := map[string][]byte{}
					for _, p := range all {
						if name, tags, ours := readTagged(p.data); ours {
							got[name] = tags
						}
					}
					return got
				}
				seen[i].await(func(all []captured) bool { return len(tagged(all)) >= len(c.in[i]) })
				compareTags(t, "what came to "+e.name, tagged(seen[i].packets(t)), c.in[i])
				heard := hear(t, outside, "wire", len(c.out[i]), func() {
					for name, tags := range edgeTags {
						sendTagged(e, "eth0", name, tags)
					}
				})
				compareTags(t, "what came out of "+e.name, heard, c.out[i])
			}
			dropped, want := uint64(0), c.unheeded
			for i, e := range elements {
				dropped += n.counters()[portID("net/"+e.name+":eth0")].Drops[Tagged]
				want += len(edgeTags) - len(c.out[i])
			}
			if dropped != uint64(want) {
				t.Errorf("%d frames are told to have had a tag too many, of %d", dropped, want)
			}
		})
	}
}

var taggedHead = append(slices.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 9)

func sendTagged(from *element, device, name string, tags []byte) {
	sendFrame(from, device, append(append(append(slices.Clone(taggedHead), tags...), 0x88, 0xb5), name...))
}

func sendFrame(from *element, device string, frame []byte) {
	from.do(func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		from.check(err, "open a packet socket")
		defer unix.Close(fd)
		d, err := net.InterfaceByName(device)
		from.check(err, "find %s", device)
		from.check(unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index}), "send % x", frame)
	})
}

func readTagged(frame []byte) (name string, tags []byte, ours bool) {
	rest, ours := bytes.CutPrefix(frame, taggedHead)
	at := bytes.LastIndex(rest, []byte{0x88, 0xb5})
	if !ours || at < 0 {
		return "", nil, false
	}
	return string(rest[at+2:]), rest[:at], true
}

// hear tells which of our frames arrive at a device meanwhile, and with which tags. It listens until there is silence
// after so many.
func hear(t *testing.T, at *element, device string, expected int, meanwhile func()) map[string][]byte {
	t.Helper()
	var fd int
	at.do(func() {
		var err error
		const all = 0x0300 // ETH_P_ALL, as on the wire
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all)
		at.check(err, "open a packet socket")
		d, err := net.InterfaceByName(device)
		at.check(err, "find %s", device)
		at.check(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: d.Index, Protocol: all}), "bind to %s", device)
		at.check(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1), "ask for tags")
		at.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200000}),
			"bound the wait")
	})
	defer unix.Close(fd)
	meanwhile()
	began := time.Now()
	got := map[string][]byte{}
	frame, control := make([]byte, 2000), make([]byte, 200)
	for {
		size, length, _, _, err := unix.Recvmsg(fd, frame, control, 0)
		if err != nil && len(got) < expected && time.Since(began) < time.Minute {
			continue // a busy machine takes its time
		}
		if err != nil {
			return got
		}
		data := frame[:size]
		messages, err := unix.ParseSocketControlMessage(control[:length])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages { // struct tpacket_auxdata: what the kernel has taken off
			if status := binary.NativeEndian.Uint32(m.Data); m.Header.Type == unix.PACKET_AUXDATA &&
				status&unix.TP_STATUS_VLAN_VALID != 0 {
				tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
				tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
				data = bytes.Join([][]byte{data[:12], data[12:]}, tag)
			}
		}
		if name, tags, ours := readTagged(data); ours {
			got[name] = slices.Clone(tags)
		}
	}
}

func compareTags(t *testing.T, what string, got, want map[string][]byte) {
	t.Helper()
	for name, tags := range want {
		if have, came := got[name]; !came || !bytes.Equal(have, tags) {
			t.Errorf("%s: of %s came %v, with the tags %x; want %x", what, name, came, have, tags)
		}
	}
	for name, tags := range got {
		if _, wanted := want[name]; !wanted {
			t.Errorf("%s: %s, with the tags %x, which must not", what, name, tags)
		}
	}
}

// TestTrunkTakesItsDevice refuses an edge beside a trunk, whichever comes first.
func TestTrunkTakesItsDevice(t *testing.T) {
	t.Parallel()
	for _, edges := range [][2]Edge{{{Trunk: true}, {VLAN: 42}}, {{VLAN: 42}, {Trunk: true}}, {{}, {Trunk: true}},
		{{Trunk: true}, {}}} {
		n := newNode(t, "")
		n.must("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
		for i, e := range edges {
			e.Device = "wire"
			n.plug(newElement(t, name(i)), "eth0").Edge = &e
		}
		if failed := n.fabric.Apply(t.Context(), n.state).Failed; len(failed) != 1 ||
			failed[portID("net/e1:eth0")] == nil {
			t.Errorf("%+v: refused are %v", edges, failed)
		}
	}
}

// TestEdgeDeviceComesBack takes an edge's device away, and brings it back.
func TestEdgeDeviceComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	outside := newElement(t, "outside")
	a := newElement(t, "a")
	n.must("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
	n.plug(a, "eth0", "10.7.0.1/24").Edge = &Edge{Device: "wire"}
	n.pair(outside, "eth0", "10.7.0.9/24")
	n.must("ip", "link", "add", "br0", "type", "bridge")
	n.must("ip", "link", "set", "dev", "br0", "up")
	n.must("ip", "link", "set", "dev", "far", "up", "master", "br0")
	n.must("ip", "link", "set", "dev", n.dirs.PortDevice(portID("net/outside:eth0")), "master", "br0")
	n.apply()
	outside.ping(t, "10.7.0.1")
	n.must("ip", "link", "del", "wire")
	if err := n.fabric.Apply(t.Context(), n.state).Failed[portID("net/a:eth0")]; err == nil {
		t.Error("nothing is said of the edge's device being gone")
	}
	n.must("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
	n.must("ip", "link", "set", "dev", "far", "up", "master", "br0")
	n.apply()
	outside.ping(t, "10.7.0.1")
}

// TestEdgesKeepBridgesApart sends what is for the next bridge alone into and out of edges: spanning trees, LLDP. It
// passes those that are trunks, and no others.
func TestEdgesKeepBridgesApart(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "frames of spanning trees and of LLDP are sent out of an edge and into it",
		"none passes, unless the edge is a trunk")
	for _, trunk := range []bool{false, true} {
		n := newNode(t, "")
		outside, inside := newElement(t, "outside"), newElement(t, "a")
		n.pair(outside, "wire", "10.9.0.1/24")
		n.plug(inside, "eth0").Edge = &Edge{Device: n.dirs.PortDevice(portID("net/outside:wire")), Trunk: trunk}
		n.apply()
		want := map[string][]byte{"untagged": nil}
		if trunk {
			want["stp"], want["lldp"] = nil, nil
		}
		send := func(from *element, device string) {
			for name, last := range map[string]byte{"stp": 0, "lldp": 0x0e} {
				sendFrame(from, device, slices.Concat([]byte{1, 0x80, 0xc2, 0, 0, last}, taggedHead[6:],
					[]byte{0x88, 0xb5}, []byte(name)))
			}
			sendTagged(from, device, "untagged", nil) // comes last
		}
		seen := n.capture(t, "a:eth0")
		send(outside, "wire")
		ours := func(all []captured) map[string][]byte {
			got := map[string][]byte{}
			for _, p := range all {
				if len(p.data) > 14 && p.data[12] == 0x88 && p.data[13] == 0xb5 {
					got[string(bytes.TrimRight(p.data[14:], "\x00"))] = nil
				}
			}
			return got
		}
		seen.await(func(all []captured) bool { return len(ours(all)) >= len(want) })
		compareTags(t, "what came in", ours(seen.packets(t)), want)
		dropped := func() uint64 { return n.counters()[portID("net/a:eth0")].Drops[Tagged] }
		in := dropped()
		send(inside, "eth0")
		for end := time.Now().Add(time.Minute); !trunk && dropped() < in+2 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if all := dropped(); trunk && all != 0 || !trunk && (in != 2 || all != 4) {
			t.Errorf("trunk %v: of two frames inwards and two outwards %d and %d are told as dropped", trunk, in, all-in)
		}
	}
}
