package software

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// bfdOn has all interfaces of router() watched by BFD.
func bfdOn(el model.ResolvedElement) model.ResolvedElement {
	el.Interfaces[0].BFD, el.Interfaces[1].BFD, el.Interfaces[2].BFD = "50ms x 5", model.BFDUsual, model.BFDUsual
	return el
}

// TestBFDFindsSilence: two links become silent at one moment, so that nobody's carrier goes. By BFD the neighbours over the
// one are lost while those over the other, whose timers are the same, are still there.
func TestBFDFindsSilence(t *testing.T) {
	const s = model.Duration(time.Second)
	ospf, bgp := model.OSPFTimers{Hello: s, Dead: 180 * s}, model.BGPTimers{Keepalive: 30 * s, Hold: 180 * s}
	for _, c := range []struct {
		first, second model.Software
		routing       func(i int) model.Routing
		sessions      int // of BFD
	}{
		{"frr", "bird", func(i int) model.Routing {
			return model.Routing{OSPF: &model.OSPF{OSPFTimers: ospf}, OSPF6: &model.OSPF{OSPFTimers: ospf},
				BGP: &model.BGP{AS: uint32(65001 + i), BGPTimers: bgp}}
		}, 3}, // IPv4, and IPv6 by the addresses that are link-local and by those that are not
		{"bird", "frr", func(i int) model.Routing {
			return model.Routing{BGP: &model.BGP{AS: uint32(65001 + i), BGPTimers: bgp, Unnumbered: true}}
		}, 1},
		{"frr", "frr", func(i int) model.Routing {
			return model.Routing{ISIS: &model.ISIS{ISISTimers: model.ISISTimers{Hello: 2 * s, Hold: 180 * s}}}
		}, 1},
	} {
		names := c.routing(0).Protocols()
		t.Run(strings.Join(names, " ")+", "+string(c.first)+" and "+string(c.second), func(t *testing.T) {
			t.Parallel()
			const with, without = 0, 1 // by their places among the interfaces
			rs := pair(t, c.first, c.second, c.routing, func(net *model.Resolved) {
				for i := range 2 {
					net.Elements[i].Interfaces[with].BFD = "100ms x 5"
				}
			})
			look := func(i, link int, protocol string) model.Look {
				far := rs[1-i].el.Interfaces[link]
				peer := &model.LookedFor{Name: "whoever is there", Devices: []string{rs[i].el.Interfaces[link].LinuxName()}}
				for _, a := range far.Addresses {
					peer.Addresses = append(peer.Addresses, a.Addr())
				}
				return model.Look{Peer: peer, Known: model.Known{What: model.KnownNeighbour, Protocol: protocol,
					State: model.NeighbourStates[protocol][0]}}
			}
			for i, r := range rs {
				for _, protocol := range names {
					for _, link := range []int{with, without} {
						r.awaitKnownBy(t, look(i, link, protocol))
					}
				}
				r.awaitBFD(t, c.sessions)
			}
			for i := range rs {
				for _, link := range []int{with, without} {
					rs[i].silence(t, rs[i].el.Interfaces[link].LinuxName())
				}
			}
			for i, r := range rs {
				for _, protocol := range names {
					lost := look(i, with, protocol)
					lost.Not = true
					r.awaitKnownBy(t, lost)
				}
			}
			for i, r := range rs {
				for _, protocol := range names {
					if answer := r.know(t, look(i, without, protocol)); !answer.So {
						t.Errorf("%s: its %s neighbour where there is no BFD is lost as well: %+v", r.el.Name, protocol, answer)
					}
				}
			}
		})
	}
}

// awaitBFD waits until so many sessions of BFD are up.
func (r *running) awaitBFD(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		said := r.show("vtysh -c 'show bfd peers brief'")
		if r.el.Software == model.SoftwareBIRD {
			said = r.show("birdc show bfd sessions")
		}
		up, all := 0, 0
		for line := range strings.Lines(said) {
			f := strings.Fields(line)
			if len(f) < 3 {
				continue
			}
			state := f[len(f)-1] // FRR: number, own address, peer, state
			if r.el.Software == model.SoftwareBIRD {
				state = f[2] // peer, interface, state, since, times
			}
			switch strings.ToLower(state) {
			case "up":
				up++
				all++
			case "down", "init":
				all++
			}
		}
		if up == want && all == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d of %d sessions of BFD are up, want %d:\n%s", r.el.Name, up, all, want, said)
		}
	}
}

// silence drops whatever a device sends. Its carrier stays.
func (r *running) silence(t *testing.T, device string) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // TC_ACT_SHOT
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	link, err := r.link.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	attrs := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := r.link.QdiscAdd(&netlink.Clsact{QdiscAttrs: attrs}); err != nil {
		t.Fatal(fmt.Errorf("adding clsact to %s: %w", device, err))
	}
	if err := r.link.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index,
		Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1, Protocol: unix.ETH_P_ALL}, Fd: program.FD(), Name: "silence",
		DirectAction: true}); err != nil {
		t.Fatal(fmt.Errorf("silencing %s: %w", device, err))
	}
}

// TestBFDIsRead: what is taken as a link's BFD, and what it means.
func TestBFDIsRead(t *testing.T) {
	const ms = model.Duration(time.Millisecond)
	for text, want := range map[string]struct {
		is         model.BFD
		every      model.Duration
		multiplier int
	}{
		"true": {"true", 300 * ms, 3}, "100ms": {"100ms", 100 * ms, 3}, "1s x 2": {"1s x 2", 1000 * ms, 2},
		"50msx5": {"50ms x 5", 50 * ms, 5}, "60s x 255": {"1m0s x 255", 60000 * ms, 255},
	} {
		is, err := model.ParseBFD(text)
		every, multiplier, on := is.Times()
		if err != nil || !on || is != want.is || every != want.every || multiplier != want.multiplier {
			t.Errorf("%q is %q: %s, %d, %v, %v", text, is, every, multiplier, on, err)
		}
	}
	if is, err := model.ParseBFD("false"); is != "" || err != nil {
		t.Errorf("false is %q, %v", is, err)
	}
	for _, bad := range []string{"", "yes", "100", "9ms", "61s", "100ms x", "100ms x 1", "100ms x 256", "10.5ms", "x 3", "100ms x 3 x 3"} {
		if is, err := model.ParseBFD(bad); err == nil {
			t.Errorf("%q is taken for %q", bad, is)
		}
	}
}

// Sessions that lead over no link are watched by nobody, and neither are hosts.
func TestBFDWhere(t *testing.T) {
	el := bfdOn(router(model.SoftwareFRR, model.Routing{BGP: &model.BGP{AS: 1}}))
	for address, want := range map[string]string{"10.0.1.2": "ge-0-0-1-hnxqk", "2001:db8:2::9": "sw", "10.0.3.7": "",
		"10.255.0.9": "", "192.0.2.7": "", "fe80::9%sw": "sw"} {
		if p, is := watches(el, model.BGPNeighbor{Address: netip.MustParseAddr(address), AS: 2}); p.device != want || is != (want != "") {
			t.Errorf("%s is watched at %q, want %q", address, p.device, want)
		}
	}
}
