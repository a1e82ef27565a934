package selftest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/turns"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel program bpf/bare.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable

// cuts are the largest size, and 64 sizes in random order, all without check sequences.
func cuts(s frame.Sizes) (room int, table [64]uint16) {
	room = max(s.Max, slices.Max(append(s.Of, 0))) - frame.FCS
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range table {
		table[i] = uint16(s.Draw(rng) - frame.FCS)
	}
	return room, table
}

// bare is the loop of live frames that are only redirected and dropped.
func bare(sizes frame.Sizes, cpu int) loop {
	return func(p pair) turns.Loop {
		return turns.Loop{From: p.from, Run: func(ctx context.Context, thread func(int)) error {
			if err := runBare(ctx, sizes, cpu, p, thread); err != nil {
				return fmt.Errorf("bare loop: %w", err)
			}
			return nil
		}}
	}
}

func runBare(ctx context.Context, sizes frame.Sizes, cpu int, p pair, thread func(int)) error {
	var o programObjects
	spec, err := loadProgram()
	if err != nil {
		return fmt.Errorf("read the programs: %w", err)
	}
	room, table := cuts(sizes)
	err = errors.Join(spec.Variables["room"].Set(uint32(room)), spec.Variables["sizes"].Set(table))
	if err == nil {
		err = spec.LoadAndAssign(&o, nil)
	}
	if err != nil {
		return fmt.Errorf("load the programs: %w", err)
	}
	defer o.Close()
	send := o.BareSource
	if len(sizes.Of) != 1 {
		send = o.BareSizes
	}
	var drop link.Link
	if err := netdev.In(p.to.Namespace, func() error {
		d, err := net.InterfaceByName(p.to.Name)
		if err != nil {
			return err
		}
		drop, err = link.AttachXDP(link.XDPOptions{Program: o.BareSink, Interface: d.Index, Flags: link.XDPDriverMode})
		return err
	}); err != nil {
		return fmt.Errorf("attach to %v: %w", p.to, err)
	}
	defer drop.Close()
	return netdev.In(p.from.Namespace, func() error {
		runtime.LockOSThread()
		if cpu >= 0 {
			if err := netdev.Pin(cpu); err != nil {
				return err
			}
		}
		if err := netdev.First(0); err != nil {
			return err
		}
		d, err := net.InterfaceByName(p.from.Name)
		if err != nil {
			return err
		}
		if err := o.BareOut.Put(uint32(0), uint32(d.Index)); err != nil {
			return err
		}
		defer turns.Interrupting(ctx, unix.Gettid())()
		thread(unix.Gettid())
		return netdev.RunLive(send, make([]byte, room), math.MaxUint32, 256, func() bool { return ctx.Err() != nil })
	})
}
