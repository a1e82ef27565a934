package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Changes to ports behind the agent's back are told; its own are not, nor are other devices'.
func TestLinks(t *testing.T) {
	l := newLab(t, "node")
	const port = "ppaaaaaaaaaaaaa"
	var w *links
	in := func(f func() error) {
		t.Helper()
		if err := l.enter(id("node"), f); err != nil {
			t.Fatal(err)
		}
	}
	in(func() (err error) {
		w, err = watchLinks()
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var index int
	add := func(name string) {
		t.Helper()
		in(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU = name, 1500
			v := &netlink.Veth{LinkAttrs: attrs, PeerName: "x" + name[1:]}
			if err := netlink.LinkAdd(v); err != nil {
				return err
			}
			index = v.Index
			if err := netlink.LinkSetUp(v); err != nil {
				return err
			}
			peer, err := netlink.LinkByName("x" + name[1:])
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(peer)
		})
	}
	expect := func() {
		o := &outcome{devices: []control.Device{{Interface: "if", Name: port, Index: index}}}
		o.job.Element.Interfaces = []model.PlacedInterface{{
			ResolvedInterface: model.ResolvedInterface{Name: "if", MTU: 1500}}}
		w.expect(map[model.ID]*outcome{id("r1"): o})
	}
	signalled := func() bool {
		// What the kernel has to say is there by now; reading it is ours.
		w.mu.Lock()
		err := w.drain()
		w.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.changed:
			return true
		default:
			return false
		}
	}
	change := func(f func(l netlink.Link) error) {
		t.Helper()
		in(func() error {
			link, err := netlink.LinkByIndex(index)
			if err != nil {
				return err
			}
			return f(link)
		})
	}

	add(port)
	expect()
	if signalled() {
		t.Error("a port as it must be is told as changed")
	}
	for !w.running(index) { // the kernel tells of a carrier in its own time
		time.Sleep(time.Millisecond)
		signalled()
	}
	own := index
	add("other")
	index = own
	if signalled() {
		t.Error("another device is told as a changed port")
	}
	for _, c := range []struct {
		what     string
		do, undo func(netlink.Link) error
	}{
		{what: "MTU", do: func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400) },
			undo: func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) }},
		{what: "down", do: netlink.LinkSetDown, undo: netlink.LinkSetUp},
		{what: "name", do: func(l netlink.Link) error { return netlink.LinkSetName(l, "mine") },
			undo: func(l netlink.Link) error { return netlink.LinkSetName(l, port) }},
	} {
		change(c.do)
		if !signalled() {
			t.Errorf("%s: the change is not told", c.what)
		}
		expect()
		if !signalled() {
			t.Errorf("%s: a port that is not as it must be is not told", c.what)
		}
		change(c.undo)
		expect()
		if signalled() {
			t.Errorf("%s: told as changed after it was put right", c.what)
		}
	}
	// A program in the driver of any device is told when it comes, and when it goes.
	hook, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer hook.Close()
	for _, fd := range []int{hook.FD(), -1} {
		in(func() error {
			link, err := netlink.LinkByName("other")
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFdWithFlags(link, fd, 1<<2)
		})
		if !signalled() {
			t.Errorf("XDP program %d is not told", fd)
		}
	}
	expect()
	// A filter that is taken away is told, too.
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: own, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact"}
	in(func() error { return netlink.QdiscAdd(qdisc) })
	if signalled() {
		t.Error("a qdisc that is added is told as a change")
	}
	in(func() error { return netlink.QdiscDel(qdisc) })
	if !signalled() {
		t.Error("a qdisc that is taken away is not told")
	}
	// So is the one filter that all ports share.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	block := linux.Attachment{Block: 7}
	in(func() error {
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		var b linux.Batch
		b.AddClsact(own, block.Block)
		b.ReplaceFilter(block, linux.Filter{Priority: 1, Handle: 1, Name: "all", Program: program.FD()})
		if errs := c.Do(&b); errs != nil {
			return errors.Join(errs...)
		}
		if signalled() {
			t.Error("a shared filter that is added is told as a change")
		}
		b.Reset()
		b.RemoveFilter(block, 1, 1)
		return errors.Join(c.Do(&b)...)
	})
	if !signalled() {
		t.Error("a shared filter that is taken away is not told")
	}
	change(netlink.LinkDel)
	if !signalled() {
		t.Error("a deleted port is not told")
	}
	if w.running(own) {
		t.Error("a deleted port is running")
	}
	if err := l.enter(id("node"), func() error { _, err := netlink.LinkByIndex(own); return err }); err == nil {
		t.Error("the port is still there")
	}
}
