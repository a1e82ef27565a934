package selftest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
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

// bareRate is how many frames a second of CPU time live frames reach that are only redirected and dropped. Setting a call up takes tens of
// milliseconds, so two calls of different length are compared, and what they share cancels out.
func bareRate(p pair, cpu int, sizes frame.Sizes, frames uint32) (float64, error) {
	var o programObjects
	spec, err := loadProgram()
	if err != nil {
		return 0, fmt.Errorf("bare loop: read the programs: %w", err)
	}
	room, table := cuts(sizes)
	err = errors.Join(spec.Variables["room"].Set(uint32(room)), spec.Variables["sizes"].Set(table))
	if err == nil {
		err = spec.LoadAndAssign(&o, nil)
	}
	if err != nil {
		return 0, fmt.Errorf("bare loop: load the programs: %w", err)
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
		return 0, fmt.Errorf("bare loop: attach to %v: %w", p.to, err)
	}
	defer drop.Close()
	rate := 0.0
	err = netdev.In(p.from.Namespace, func() error {
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
		call := func(repeat uint32) (time.Duration, error) {
			interrupted := false
			start := netdev.ThreadTime()
			_, err := send.Run(&ebpf.RunOptions{Data: make([]byte, room), Repeat: repeat, Flags: 1 << 1, BatchSize: 256,
				Reset: func() { interrupted = true }})
			if interrupted {
				err = errors.Join(err, errors.New("interrupted by a signal"))
			}
			return netdev.ThreadTime() - start, err
		}
		short, err := call(frames / 8)
		if err != nil {
			return err
		}
		long, err := call(frames)
		if err != nil {
			return err
		}
		if long <= short {
			return fmt.Errorf("%d frames took %v, an eighth of them %v: the machine is too busy", frames, long, short)
		}
		rate = float64(frames-frames/8) / (long - short).Seconds()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("bare loop: %w", err)
	}
	return rate, nil
}
