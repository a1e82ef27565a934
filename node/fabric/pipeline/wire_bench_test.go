package pipeline

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/fib"
)

// rewriter makes the source's program: it writes the whole header anew, since pages come again as they were left, with
// one of 4,096 inner destinations, and redirects to a device.
func rewriter(header []byte, device int) asm.Instructions {
	// of the inner IPv4 header: the address's lower half, the sum
	const destination, checksum = 50 + 14 + 18, 50 + 14 + 10
	var sum uint32
	for at := 64; at < 84; at += 2 {
		if at != checksum && at != destination {
			sum += uint32(binary.BigEndian.Uint16(header[at:]))
		}
	}
	code := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R7, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Add.Imm(asm.R2, int32(len(header))),
		asm.JGT.Reg(asm.R2, asm.R7, "end"),
	}
	for at := 0; at+4 <= len(header); at += 4 {
		code = append(code, asm.StoreImm(asm.R6, int16(at),
			int64(int32(binary.LittleEndian.Uint32(header[at:]))), asm.Word))
	}
	return append(code,
		asm.FnGetPrandomU32.Call(),
		asm.And.Imm(asm.R0, 0xfff),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.Add.Imm(asm.R8, int32(sum)),
		asm.Mov.Reg(asm.R3, asm.R8), asm.RSh.Imm(asm.R3, 16), asm.And.Imm(asm.R8, 0xffff), asm.Add.Reg(asm.R8, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R8), asm.RSh.Imm(asm.R3, 16), asm.Add.Reg(asm.R8, asm.R3),
		asm.Xor.Imm(asm.R8, 0xffff), asm.And.Imm(asm.R8, 0xffff),
		asm.HostTo(asm.BE, asm.R0, asm.Half), asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.StoreMem(asm.R6, destination, asm.R0, asm.Half),
		asm.StoreMem(asm.R6, checksum, asm.R8, asm.Half),
		asm.Mov.Imm(asm.R1, int32(device)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.Return())
}

var wMAC = net.HardwareAddr{2, 0, 0, 0, 9, 4}

// BenchmarkWires compares the hooks on the way from tunnel to tunnel by one router: 64-byte frames to 4,096 random
// destinations come by a veth in VXLAN, and leave by another one in VXLAN; source, node and sink on one core, the hooks
// in turn.
func BenchmarkWires(b *testing.B) {
	runtime.LockOSThread() // never unlocked: its namespace is of no use to others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Fatal(err)
	}
	var cpu unix.CPUSet
	cpu.Set(0)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		b.Fatal(err)
	}
	dir := mount(b)
	p := open(b, dir)
	sh := func(command string) {
		b.Helper()
		if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	// s → w is the underlay that frames come by, u → v the one that they leave by.
	sh(fmt.Sprintf("ip link set lo up; ip link add s type veth peer name w; ip link add u type veth peer name v; ip "+
		"link set w address %s; "+
		"ip link set u address %s; for d in s w u v; do ip link set $d up; ethtool -K $d gro on; done; ip addr add "+
		"192.0.2.9/32 dev lo; "+
		"echo 1 > /proc/sys/net/ipv4/ip_forward; ip link add vx type vxlan external dstport %d nolearning; ip link "+
		"set vx up; "+
		"for c in all w; do echo 0 > /proc/sys/net/ipv4/conf/$c/rp_filter; done; "+
		"ip route add 192.0.2.1 dev w; ip route add 192.0.2.2 dev u src 192.0.2.9; ip neigh replace 192.0.2.2 lladdr "+
		"%s dev u nud permanent; "+
		"tc qdisc add dev vx clsact", wMAC, underMAC, vxlanPort, peerMAC))
	index := func(name string) uint32 {
		i, err := net.InterfaceByName(name)
		if err != nil {
			b.Fatal(err)
		}
		return uint32(i.Index)
	}
	pin := filepath.Join(dir, Layout, digest+"-from_tunnel")
	sh("tc filter add dev vx ingress pref 1 bpf da object-pinned " + pin)
	pool, err := fib.New(p.FIB)
	if err != nil {
		b.Fatal(err)
	}
	slice := pool.NewSlice("net", fib.Quota{})
	hop, err := slice.AddNextHop(hopTo(18, 98, 1500))
	if err != nil {
		b.Fatal(err)
	}
	table := slice.NewTable(fib.IPv4)
	if err := table.Insert(netip.MustParsePrefix("10.16.0.0/16"), hop); err != nil {
		b.Fatal(err)
	}
	if err := table.Publish(Table(1, false)); err != nil {
		b.Fatal(err)
	}
	p.Routers[1].On = 1
	p.Peers[0], p.Peers[3], p.Peers[4] = NewPeer(netip.MustParseAddr("192.0.2.9")),
		NewPeer(netip.MustParseAddr("192.0.2.1")), NewPeer(netip.MustParseAddr("192.0.2.2"))
	p.Ports[0].Ifindex = index("vx")
	for slot, link := range map[int]Link{12: NewLink(Tunnel, 5, 3), 18: NewLink(Tunnel, 6, 4)} {
		p.Ports[slot] = Port{Ifindex: index("lo"), Link: uint64(link), Mac: MAC(macAt(slot)), Flags: RoutedBy(1)}
		if err := p.Tunnels.Put(link.Label(), TunnelEnd{Slot: uint32(slot), Peer: link.Target()}); err != nil {
			b.Fatal(err)
		}
	}
	for name, mac := range map[string]net.HardwareAddr{"w": wMAC, "u": underMAC} {
		if err := p.Drivers.Put(index(name), Driver{Mac: MAC(mac), Flags: DriverTunnels,
			Port: uint32(vxlanPort>>8 | vxlanPort&0xff<<8)}); err != nil {
			b.Fatal(err)
		}
	}
	frame := tunnelled(to(12, ipv4("10.16.0.0", func(ip *layers.IPv4) { ip.Length = 50 })),
		func(o *outer) { o.e.DstMAC = wMAC })
	source, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: rewriter(frame[:92], int(index("s")))})
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: 1 << 5,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer drop.Close()
	attach := func(device string, program *ebpf.Program) func() {
		at, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: int(index(device)),
			Flags: link.XDPDriverMode})
		if err != nil {
			b.Fatal(err)
		}
		return func() { at.Close() }
	}
	attach("v", drop)
	forwarded := func() (all, driver uint64) {
		values, processors, err := PerCPU[RouterCount](p.RouterCounts, 2)
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range values[processors:] {
			all, driver = all+v.Packets, driver+v.Driver
		}
		return all, driver
	}
	const frames = 1 << 20
	rates := map[string][]float64{}
	for range 5 {
		for _, hook := range []string{"tc", "xdp"} {
			var undo []func()
			if hook == "xdp" {
				undo = append(undo, attach("w", p.FromWireXDP), attach("u", p.FromWireXDP))
			}
			packets, drivers := forwarded()
			began := time.Now()
			// BPF_F_TEST_XDP_LIVE_FRAMES
			if _, err := source.Run(&ebpf.RunOptions{Data: frame, Repeat: frames, Flags: 2}); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			is, byDriver := forwarded()
			if n := is - packets; n < frames*99/100 || (byDriver-drivers > n/2) != (hook == "xdp") {
				b.Fatalf("hook %s: of %d frames %d were forwarded, %d in the driver's", hook, frames,
					n, byDriver-drivers)
			}
			rates[hook] = append(rates[hook], float64(is-packets)/took.Seconds())
			for _, f := range undo {
				f()
			}
		}
	}
	for hook, list := range rates {
		slices.Sort(list)
		b.ReportMetric(list[2]/1e6, strings.ToUpper(hook)+"-Mp/s")
		b.Logf("%-4s %.2f Mp/s (%.2f…%.2f)", hook, list[2]/1e6, list[0]/1e6, list[4]/1e6)
	}
}
