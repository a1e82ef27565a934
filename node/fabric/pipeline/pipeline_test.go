package pipeline

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/system/attack"
)

// pinnedCompiler is the version that the committed objects were made with.
const pinnedCompiler = "clang version 14.0.6"

// TestGenerated compiles the programs again and compares, those of internet edges with them.
func TestGenerated(t *testing.T) {
	version, err := exec.Command("clang", "--version").Output()
	if err != nil || !strings.Contains(string(version), pinnedCompiler) {
		t.Skipf("needs %s to compare what it makes", pinnedCompiler)
	}
	for _, folder := range []string{".", "../../edge"} {
		compareGenerated(t, folder)
	}
}

func compareGenerated(t *testing.T, folder string) {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(filepath.Join(folder, "generate.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, commands, ok := strings.Cut(string(source), "//go:generate ")
	if !ok {
		t.Fatal("generate.go has no go:generate line")
	}
	for command := range strings.SplitSeq(commands, "//go:generate ") {
		args := strings.Fields(command)
		if !strings.HasPrefix(command, "go run github.com/cilium/ebpf/cmd/bpf2go ") {
			t.Fatalf("go:generate runs something else: %q", command)
		}
		_, name, _ := strings.Cut(string(source), "package ")
		name, _, _ = strings.Cut(name, "\n")
		c := exec.Command("go", append([]string{"run", args[2], "-output-dir", dir, "-go-package",
			name}, args[3:]...)...)
		c.Dir = folder
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("generate: %v\n%s", err, out)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 2 {
		t.Fatalf("generated: %v, %v", names, err)
	}
	for _, name := range names {
		name = filepath.Base(name)
		committed, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(committed, made) {
			t.Errorf("%s is not what its source makes: run go generate in %s", name, folder)
		}
	}
}

// mount gives the test a bpffs of its own.
func mount(t testing.TB) string {
	t.Helper()
	random := make([]byte, 4)
	rand.Read(random)
	dir := filepath.Join("/run/polyplane", "test-pipeline-"+hex.EncodeToString(random))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(dir, unix.MNT_DETACH)
		os.Remove(dir)
	})
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a bpffs (needs root): %v", err)
	}
	return dir
}

func open(t testing.TB, dir string) *Pipeline {
	t.Helper()
	p, err := Open(dir)
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%+v", refused)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Ports != nil {
			p.Close()
		}
	})
	return p
}

func programID(t *testing.T, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, ok := info.ID()
	if !ok {
		t.Fatal("the kernel tells no program ID")
	}
	return id
}

func TestOpenFindsWhatWasThere(t *testing.T) {
	dir := mount(t)
	p := open(t, dir)
	id := programID(t, p.FromPort)
	p.Ports[7].Link = uint64(NewLink(Tunnel, 5, 6))
	if err := p.Devices.Put(uint32(3), uint32(7)); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p = open(t, dir)
	if l := LinkOf(&p.Ports[7]); l.Kind() != Tunnel || l.Label() != 5 || l.Target() != 6 {
		t.Errorf("the link of slot 7 is %x", l)
	}
	if all, err := All[uint32, uint32](p.Devices); err != nil || len(all) != 1 || all[3] != 7 {
		t.Errorf("devices: %v, %v", all, err)
	}
	if programID(t, p.FromPort) != id {
		t.Error("the program was loaded anew")
	}
	// A spoilt table is made anew, and then the programs too: they would work on the old one.
	p.Close()
	spoilt := filepath.Join(dir, Layout, tcMapDevices)
	if err := os.Remove(spoilt); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(spoilt); err != nil {
		t.Fatal(err)
	}
	p = open(t, dir)
	if programID(t, p.FromPort) == id {
		t.Error("the programs work on a table that is gone")
	}
	if err := p.Devices.Put(uint32(3), uint32(7)); err != nil {
		t.Errorf("the new table: %v", err)
	}
}

// TestCloseLetsGoOfEverything looks into every field that holds something of the kernel's.
func TestCloseLetsGoOfEverything(t *testing.T) {
	dir := mount(t)
	for range 2 { // made, and found again
		p := open(t, dir)
		held := map[string]interface{ FD() int }{}
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			at := unsafe.Pointer(v.Field(i).UnsafeAddr())
			switch name := v.Type().Field(i).Name; v.Field(i).Type() {
			case reflect.TypeFor[*ebpf.Map]():
				held[name] = *(**ebpf.Map)(at)
			case reflect.TypeFor[*ebpf.Program]():
				held[name] = *(**ebpf.Program)(at)
			}
		}
		if want := len(p.tables()) + len(p.byName()); len(held) != want {
			t.Errorf("%d fields hold something, and %d are known", len(held), want)
		}
		for name, what := range held {
			if what.FD() < 0 {
				t.Errorf("%s is not open", name)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for name, what := range held {
			if what.FD() >= 0 {
				t.Errorf("%s is still open", name)
			}
		}
	}
}

// TestLayoutTakesSlotsOver has a new layout know whose slots were whose in the one before, also when the first process
// that began with it died on the way.
func TestLayoutTakesSlotsOver(t *testing.T) {
	dir := mount(t)
	p := open(t, dir)
	key, value := NewIdentity("net/r1:eth0", 7)
	if err := p.Identities.Put(key, value); err != nil {
		t.Fatal(err)
	}
	counts := make([]TrafficCount, ebpf.MustPossibleCPU())
	counts[0].RxPackets = 5
	if err := p.Traffic.Put(uint32(7), counts); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := os.Rename(filepath.Join(dir, Layout), filepath.Join(dir, "v0")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := open(t, dir)
		all, err := All[IdentityKey, Identity](p.Identities)
		if err != nil || len(all) != 1 || all[key] != value {
			t.Errorf("the new layout knows %v: %v", all, err)
		}
		if err := p.Traffic.Lookup(uint32(7), &counts); err != nil || counts[0].RxPackets != 5 {
			t.Errorf("the port's counters: %v, %v", counts, err)
		}
		if err := p.Identities.Delete(key); err != nil { // as if it had not come to this
			t.Fatal(err)
		}
		p.Close()
	}
}

// TestLayoutTakesGenerationsOver has what waits in queues be its ports' also for a new layout, and what waits of ports
// that are gone nobody's; before may be a layout whose marks say slots only.
func TestLayoutTakesGenerationsOver(t *testing.T) {
	for _, had := range []bool{true, false} {
		dir := mount(t)
		p := open(t, dir)
		if err := p.Identities.Put(NewIdentity("net/r1:eth0", 7)); err != nil {
			t.Fatal(err)
		}
		p.NextGeneration(7)
		own, others := p.markOf(7), p.markOf(8)
		p.Close()
		if !had {
			own, others = 7, 8
			if err := os.Remove(filepath.Join(dir, Layout, tcMapGenerations)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(filepath.Join(dir, Layout), filepath.Join(dir, "v0")); err != nil {
			t.Fatal(err)
		}
		p = open(t, dir)
		if is := p.markOf(7); is != own {
			t.Errorf("the port's mark is %#x, and was %#x", is, own)
		}
		if is := p.markOf(8); is == others {
			t.Errorf("a port that is gone is still meant by the mark %#x", is)
		}
		seen := map[uint32]bool{}
		for range 3 {
			seen[p.markOf(7)] = true
			p.NextGeneration(7)
		}
		if len(seen) != 3 {
			t.Errorf("three ports in turn have the marks %v", seen)
		}
		p.Close()
	}
}

func TestSweepRemovesOtherLayoutsAndPrograms(t *testing.T) {
	dir := mount(t)
	p := open(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "v0"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, Layout, "0123456789ab-"+tcProgFromPort)
	clone, err := p.FromPort.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Close()
	if err := clone.Pin(old); err != nil {
		t.Fatal(err)
	}
	if err := p.Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{old, filepath.Join(dir, "v0")} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, Layout, tcMapPorts)); err != nil {
		t.Errorf("a table of ours is gone: %v", err)
	}
}

// Verdicts of tc programs.
const (
	unspec   = 0xffffffff
	shot     = 2
	redirect = 7
)

var (
	element = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	far     = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// frame makes a frame of 64 bytes.
func frame(to net.HardwareAddr, tag ...byte) []byte {
	f := append([]byte{}, to...)
	f = append(f, element...)
	f = append(f, tag...)
	f = append(f, 0x88, 0xb5) // an EtherType for experiments
	return append(f, make([]byte, 64-len(f))...)
}

// bench is a pipeline whose one device is lo, the one that test runs come from.
type bench struct {
	*testing.T
	*Pipeline
}

const lo = 1

func newBench(t *testing.T) bench {
	t.Helper()
	runtime.LockOSThread() // test runs come from the lo of the thread's namespace
	t.Cleanup(runtime.UnlockOSThread)
	return bench{t, open(t, mount(t))}
}

func (b bench) put(m *ebpf.Map, key, value any) {
	b.Helper()
	if err := m.Put(key, value); err != nil {
		b.Fatal(err)
	}
}

func (b bench) run(p *ebpf.Program, in []byte) (uint32, []byte) {
	b.Helper()
	verdict, out, err := p.Test(in)
	if err != nil {
		b.Fatal(err)
	}
	return verdict, out
}

// expect runs a program and compares the verdict and the frame after it.
func (b bench) expect(p *ebpf.Program, in []byte, verdict uint32, want []byte) {
	b.Helper()
	got, out := b.run(p, in)
	if got != verdict {
		b.Errorf("verdict %d, not %d", got, verdict)
	}
	if want != nil && !bytes.Equal(out, want) {
		b.Errorf("the frame is\n%x, not\n%x", out, want)
	}
}

func (b bench) counted(slot uint32, want TrafficCount) {
	b.Helper()
	values, processors, err := PerCPU[TrafficCount](b.Traffic, int(slot)+1)
	if err != nil {
		b.Fatal(err)
	}
	var sum TrafficCount
	for _, v := range values[int(slot)*processors:] {
		sum.RxPackets += v.RxPackets
		sum.RxBytes += v.RxBytes
		sum.TxPackets += v.TxPackets
		sum.TxBytes += v.TxBytes
	}
	if sum != want {
		b.Errorf("slot %d counts %+v, not %+v", slot, sum, want)
	}
}

func (b bench) dropped(slot uint32, reason Drop, want uint64) {
	b.Helper()
	values, processors, err := PerCPU[DropCount](b.Drops, int(slot)+1)
	if err != nil {
		b.Fatal(err)
	}
	for i, text := range Drops {
		var n uint64
		for _, v := range values[int(slot)*processors:] {
			n += v.Packets[i]
		}
		if Drop(i) == reason && n != want || Drop(i) != reason && n != 0 {
			b.Errorf("slot %d: %d dropped as %q", slot, n, text)
		}
	}
}

func TestUnknownDevice(t *testing.T) {
	b := newBench(t)
	b.expect(b.FromPort, frame(far), shot, nil)
	b.dropped(0, DropUnknown, 1)
}

func TestLocal(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Local, 0, 2))}
	b.expect(b.FromPort, frame(far), shot, nil)
	b.dropped(1, DropGone, 1)
	for _, mac := range []uint64{0, MAC(far), MAC(element)} { // any; addressed to it; not addressed to it
		for _, flags := range []uint32{0, Queue} {
			b.Ports[2] = Port{Ifindex: 9, Mac: mac, Flags: flags}
			b.expect(b.FromPort, frame(far), redirect, frame(far))
		}
	}
	b.counted(1, TrafficCount{RxPackets: 7, RxBytes: 7 * 64})
	b.counted(2, TrafficCount{TxPackets: 6, TxBytes: 6 * 64})
	b.dropped(2, DropQueue, 0)
}

func TestDown(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Local, 0, 2))}
	b.Ports[2] = Port{Ifindex: 9, Flags: Down}
	b.expect(b.FromPort, frame(far), shot, nil)
	b.dropped(1, DropDown, 1)
	b.counted(2, TrafficCount{})
}

// TestCut has a port of an element in quarantine take nothing and give nothing.
func TestCut(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Local, 0, 2))}
	for _, flags := range []uint32{Cut, Cut | Queue, Cut | Rated, Cut | Down, RoutedBy(1) | Cut} {
		b.Ports[2] = Port{Ifindex: 9, Flags: flags}
		b.expect(b.FromPort, frame(far), shot, frame(far))
	}
	b.dropped(1, DropCut, 5)
	for _, link := range []Link{NewLink(Local, 0, 2), NewLink(Edge, 0, 9), NewLink(Tunnel, 5, 3)} {
		b.Ports[1], b.Ports[2] = Port{Ifindex: lo, Link: uint64(link), Flags: Cut | Metered}, Port{Ifindex: 9}
		b.expect(b.FromPort, frame(far), shot, frame(far))
	}
	b.dropped(1, DropCut, 8)
	b.counted(2, TrafficCount{})
	b.Ports[1].Flags = 0
	b.Ports[1].Link = uint64(NewLink(Local, 0, 2))
	b.expect(b.FromPort, frame(far), redirect, frame(far))
}

func TestNowhere(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo}
	b.expect(b.FromPort, frame(far), shot, nil)
	b.dropped(1, DropNowhere, 1)
	b.Ports[1].Link = uint64(NewLink(9, 0, 2)) // of no kind that there is
	b.expect(b.FromPort, frame(far), shot, nil)
	b.dropped(1, DropNowhere, 2)
}

func TestToTunnel(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Tunnel, 5, 3))}
	b.expect(b.FromPort, frame(far), shot, nil) // no tunnel device, no peer
	b.dropped(1, DropOutput, 1)
	b.Ports[0].Ifindex = 9
	b.expect(b.FromPort, frame(far), shot, nil) // no peer
	b.dropped(1, DropOutput, 2)
	for _, peer := range []string{"192.0.2.1", "2001:db8::1"} {
		b.Peers[3] = NewPeer(netip.MustParseAddr(peer))
		b.expect(b.FromPort, frame(far), redirect, frame(far))
	}
}

func TestFromTunnelWithoutKey(t *testing.T) {
	b := newBench(t)
	b.expect(b.FromTunnel, frame(far), shot, nil)
	b.dropped(0, DropUnknown, 1)
}

func TestToEdge(t *testing.T) {
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Edge, 0, 9))}
	b.expect(b.FromPort, frame(far), redirect, frame(far))
	b.Ports[1].Link = uint64(NewLink(Edge, 42, 9))
	b.expect(b.FromPort, frame(far), redirect, nil) // the tag is in the metadata: seen on the wire by TestEdges
}

func TestFromEdge(t *testing.T) {
	b := newBench(t)
	tagged := frame(far, 0x81, 0, 0x60, 42)
	b.expect(b.FromEdge, frame(far), unspec, frame(far))
	b.expect(b.FromEdge, tagged, unspec, tagged)
	b.put(b.Edges, EdgeKey{Ifindex: lo, Vlan: 42}, uint32(1))
	b.expect(b.FromEdge, tagged, unspec, tagged) // the port's own word does not say so
	b.Ports[1] = Port{Ifindex: 9, Link: uint64(NewLink(Edge, 42, lo))}
	b.expect(b.FromEdge, tagged, redirect, append(frame(far, 0x88, 0xb5)[:14], tagged[18:]...))
	b.expect(b.FromEdge, frame(far), unspec, frame(far))
	b.put(b.Edges, EdgeKey{Ifindex: lo}, uint32(2))
	b.Ports[2] = Port{Ifindex: 9, Link: uint64(NewLink(Edge, 0, lo))}
	b.expect(b.FromEdge, frame(far), redirect, frame(far))
	b.expect(b.FromEdge, frame(far, 0x81, 0, 0, 43), unspec, nil)
	b.counted(1, TrafficCount{TxPackets: 1, TxBytes: 60})
	b.counted(2, TrafficCount{TxPackets: 1, TxBytes: 64})
	b.Ports[2].Ifindex = 0
	b.expect(b.FromEdge, frame(far), shot, nil)
	b.dropped(2, DropGone, 1)
}

// TestTagsAtEdges gives the programs of edges frames whose tags are in the frame; those beside it are TestEdgeTags' of
// package fabric.
func TestTagsAtEdges(t *testing.T) {
	attack.Tell(t, "frames with VLAN tags of every kind are sent out of edges and into them",
		"none passes an edge that is no trunk")
	b := newBench(t)
	b.put(b.Devices, uint32(lo), uint32(1))
	var dropped uint64
	tags := map[string][]byte{"C": {0x81, 0, 0, 43}, "S": {0x88, 0xa8, 0, 43}, "old": {0x91, 0, 0, 43},
		"C in none": {0x81, 0, 0, 0, 0x81, 0, 0, 43}}
	for _, vlan := range []uint32{0, 42} {
		b.Ports[1] = Port{Ifindex: lo, Link: uint64(NewLink(Edge, vlan, 9))}
		for name, tag := range tags {
			if verdict, _ := b.run(b.FromPort, frame(far, tag...)); verdict != shot {
				t.Errorf("VLAN %d: %s went out", vlan, name)
			}
			dropped++
			b.dropped(1, DropTag, dropped)
		}
		if verdict, out := b.run(b.FromPort, frame(far, 0x81, 0, 0x60, 0)); verdict != redirect || vlan == 0 &&
			!bytes.Equal(out[:14], frame(far)[:14]) {
			t.Errorf("VLAN %d: a frame with a priority: %d, %x", vlan, verdict, out)
		}
		b.Ports[1].Flags = Trunk
		for name, tag := range tags {
			if verdict, out := b.run(b.FromPort, frame(far, tag...)); verdict != redirect || vlan == 0 &&
				!bytes.Equal(out, frame(far, tag...)) {
				t.Errorf("trunk in VLAN %d: of %s came %d, %x", vlan, name, verdict, out)
			}
		}
	}
	b.put(b.Edges, EdgeKey{Ifindex: lo}, uint32(2))
	b.Ports[2] = Port{Ifindex: 9, Link: uint64(NewLink(Edge, 0, lo))}
	b.expect(b.FromEdge, frame(far, tags["C"]...), unspec, frame(far, tags["C"]...)) // the host's
	b.expect(b.FromEdge, frame(far, tags["C in none"]...), shot, nil)
	b.dropped(2, DropTag, 1)
	b.Ports[2].Flags = Trunk
	for _, tag := range tags {
		b.expect(b.FromEdge, frame(far, tag...), redirect, frame(far, tag...))
	}
}

func TestWords(t *testing.T) {
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		p := NewPeer(netip.MustParseAddr(a))
		if AddressOf(&p).String() != a {
			t.Errorf("%s became %s", a, AddressOf(&p))
		}
	}
	if got := HardwareAddr(MAC(far)); got.String() != far.String() {
		t.Errorf("%s became %s", far, got)
	}
	_, e := NewIdentity("net/element:interface", 9)
	if NameOf(&e) != "net/element:interface" {
		t.Errorf("the name became %q", NameOf(&e))
	}
}
