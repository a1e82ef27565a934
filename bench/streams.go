package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/netdev"
)

// streams compares TCP through one router: what one connection carries, and how many are made.
func streams(ctx context.Context, o options) (tables []table, err error) {
	err = onNode(ctx, func(l *lab) error {
		var all []*system
		for _, s := range []struct {
			name string
			way  way
		}{{"xdp, tc hook", byTC}, {"guest", byGuest}, {"plain veths", byKernel}} {
			all = append(all, &system{name: s.name, chain: l.chain(string(s.way[0]), 1, s.way)})
		}
		if err := l.build(); err != nil {
			return err
		}
		for _, part := range []func(context.Context, options, []*system) (table, error){oneStream, newConnections} {
			for _, s := range all {
				s.rates = nil
			}
			t, err := part(ctx, o, all)
			if err != nil {
				return err
			}
			tables = append(tables, t)
		}
		return nil
	})
	return tables, err
}

// Systems take turns of this length; its first part does not count.
const (
	streamTurn    = 50 * time.Millisecond
	streamSettles = 10 * time.Millisecond
	streamRounds  = 25 // for each of the options' rounds
)

const streamPort = 5301

// takeTurns measures each system once a round, in random order. It lets a system go on, reads it twice, then stops it.
func takeTurns(ctx context.Context, o options, systems []*system, enter func(i int), read func(i int) uint64) error {
	rng := rand.New(rand.NewPCG(uint64(o.seed), 7))
	for range streamRounds * o.rounds {
		for _, i := range rng.Perm(len(systems)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			enter(i)
			time.Sleep(streamSettles)
			begun, since := read(i), time.Now()
			time.Sleep(streamTurn - streamSettles)
			done, took := read(i), time.Since(since)
			systems[i].rates = append(systems[i].rates, max(float64(done-begun), 1)/took.Seconds())
		}
	}
	return nil
}

// onCore runs f on a thread of its own on one core.
func onCore(cpu int, f func() error) error {
	return netdev.In("", func() error {
		runtime.LockOSThread()
		return errors.Join(netdev.Pin(cpu), f())
	})
}

// listener is a socket that listens in a system's second host.
func (s *system) listener() (fd int, err error) {
	err = netdev.In(s.chain.space("h2"), func() error {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(fd, &unix.SockaddrInet4{Port: streamPort}), unix.Listen(fd, 4096))
	})
	if err != nil {
		return 0, fmt.Errorf("%s: listen: %w", s.name, err)
	}
	return fd, nil
}

// server is where the listener is, for the first host.
func (s *system) server() *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: streamPort, Addr: netip.MustParseAddr("10.0.1.2").As4()}
}

// connect joins a system's hosts by one connection.
func (s *system) connect() (from, to int, err error) {
	listening, err := s.listener()
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(listening)
	// A system sends nothing while others have their turn. After such a pause TCP would start slowly again (tcp(7)).
	if err := s.chain.in("h1", "sysctl -qw net.ipv4.tcp_slow_start_after_idle=0"); err != nil {
		return 0, 0, err
	}
	err = netdev.In(s.chain.space("h1"), func() error {
		if from, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptString(from, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"),
			unix.Connect(from, s.server()))
	})
	if err == nil {
		to, _, err = unix.Accept4(listening, unix.SOCK_CLOEXEC)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: connect: %w", s.name, err)
	}
	return from, to, nil
}

// oneStream measures one connection of each system. The connections send in turns.
func oneStream(ctx context.Context, o options, systems []*system) (table, error) {
	const write = 128 << 10
	var turn atomic.Int32 // whose it is; negative: the end
	got := make([]atomic.Uint64, len(systems))
	var from []int
	var ended []chan error
	run := func(cpu int, f func() error) {
		done := make(chan error, 1)
		ended = append(ended, done)
		go func() { done <- onCore(cpu, f) }()
	}
	stop := func() (err error) {
		turn.Store(-1)
		for _, done := range ended {
			err = errors.Join(err, <-done)
		}
		return err
	}
	for i, s := range systems {
		f, t, err := s.connect()
		if err != nil {
			return table{}, errors.Join(err, stop())
		}
		defer unix.Close(f)
		defer unix.Close(t)
		from = append(from, f)
		run(1, func() error {
			buffer := make([]byte, write)
			for {
				n, err := unix.Read(t, buffer)
				if n <= 0 {
					return err
				}
				got[i].Add(uint64(n))
			}
		})
	}
	run(0, func() error {
		buffer := make([]byte, write)
		defer func() {
			for _, f := range from {
				unix.Shutdown(f, unix.SHUT_WR)
			}
		}()
		for i := turn.Load(); i >= 0; i = turn.Load() {
			if _, err := unix.Write(from[i], buffer); err != nil {
				return fmt.Errorf("%s: send: %w", systems[i].name, err)
			}
		}
		return nil
	})
	err := takeTurns(ctx, o, systems, func(i int) { turn.Store(int32(i)) }, func(i int) uint64 { return got[i].Load() })
	if err := errors.Join(err, stop()); err != nil {
		return table{}, err
	}
	t := table{Name: "streams-tcp", Title: "One TCP connection host → router → host",
		Columns: []string{"what", "Gbit/s", "compared with, Gbit/s", "ratio", "asked for"}, Raw: raw(systems...),
		Note: fmt.Sprintf("Sender on core 0, receiver on core 1, congestion control cubic, writes of 128 KiB. One "+
			"connection of each system in turns of %v, of which the first %v do not count, "+
			"in random order: medians of %d rounds, ratios round by round, with 95 %% bootstrap intervals. Plain "+
			"veths: the same namespaces joined by veth pairs with GRO on.", streamTurn, streamSettles,
			streamRounds*o.rounds)}
	for _, s := range systems {
		for n := range s.rates {
			s.rates[n] *= 8e-3 // Mbit/s: rows writes millions
		}
	}
	err = compared(&t, o, systems, 0)
	return t, err
}

// compared adds the rows. asked says in which of the first two the promise is written: xdp against guest (0) or plain
// veths (1).
func compared(t *table, o options, systems []*system, asked int) (err error) {
	want := [2]string{}
	want[asked] = "≥ 0.98, the interval reaching 1"
	xdp, guest, plain := systems[0], systems[1], systems[2]
	t.Rows, err = o.rows(
		comparison{"xdp, tc hook", xdp, guest, want[0]},
		comparison{"the same", xdp, plain, want[1]},
		comparison{"guest", guest, plain, ""},
	)
	return err
}

// atOnce is how many connections are under way.
const atOnce = 64

// newConnections measures how many connections a client can make, one after the other, a few at once. Both ends reset
// them as soon as they are established.
func newConnections(ctx context.Context, o options, systems []*system) (t table, err error) {
	var turn atomic.Int32
	made := make([]atomic.Uint64, len(systems))
	var listening []int
	for _, s := range systems {
		fd, err := s.listener()
		if err != nil {
			return t, err
		}
		defer unix.Close(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return t, err
		}
		listening = append(listening, fd)
	}
	served, asked := make(chan error, 1), make(chan error, 1)
	go func() { served <- onCore(1, func() error { return serve(listening, &turn) }) }()
	go func() {
		asked <- onCore(0, func() error {
			for i := turn.Load(); i >= 0; i = turn.Load() {
				if err := systems[i].request(i, &turn, &made[i]); err != nil {
					return fmt.Errorf("%s: %w", systems[i].name, err)
				}
			}
			return nil
		})
	}()
	err = takeTurns(ctx, o, systems, func(i int) { turn.Store(int32(i)) }, func(i int) uint64 { return made[i].Load() })
	turn.Store(-1)
	if err := errors.Join(err, <-asked, <-served); err != nil {
		return t, err
	}
	t = table{Name: "streams-connections", Title: "New TCP connections host → router → host",
		Columns: []string{"what", "thousand a second", "compared with, thousand a second", "ratio", "asked for"},
		Raw:     raw(systems...),
		Note: fmt.Sprintf("Client on core 0 with %d under way, server on core 1; both ends reset a connection as "+
			"soon as it is there. In turns of %v, of which the first %v do not count, in random order: "+
			"medians of %d rounds, ratios round by round, with 95 %% bootstrap intervals.", atOnce, streamTurn,
			streamSettles, streamRounds*o.rounds)}
	for _, s := range systems {
		for n := range s.rates {
			s.rates[n] *= 1e3 // rows writes millions
		}
	}
	err = compared(&t, o, systems, 1)
	return t, err
}

// serve accepts connections and resets them.
func serve(listening []int, turn *atomic.Int32) error {
	polls := each.Of(listening, func(fd int) unix.PollFd { return unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} })
	for turn.Load() >= 0 {
		if _, err := unix.Poll(polls, 100); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, p := range polls {
			for p.Revents != 0 {
				c, _, err := unix.Accept4(int(p.Fd), unix.SOCK_CLOEXEC)
				if err != nil {
					break
				}
				reset(c)
			}
		}
	}
	return nil
}

func reset(fd int) {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) //nolint:errcheck // then it is closed in the usual way
	unix.Close(fd)
}

// request makes connections of a system while it is its turn, on the calling thread.
func (s *system) request(i int32, turn *atomic.Int32, made *atomic.Uint64) error {
	space, err := os.Open(s.chain.space("h1"))
	if err != nil {
		return err
	}
	defer space.Close()
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the host's namespace: %w", err)
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	open := map[int32]bool{}
	defer func() {
		for fd := range open {
			reset(int(fd))
		}
	}()
	events := make([]unix.EpollEvent, atOnce)
	for turn.Load() == i {
		for len(open) < atOnce {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			if err := unix.Connect(fd, s.server()); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				unix.Close(fd)
				return fmt.Errorf("connect: %w", err)
			}
			if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd,
				&unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(fd)}); err != nil {
				unix.Close(fd)
				return err
			}
			open[int32(fd)] = true
		}
		n, err := unix.EpollWait(ep, events, 10)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			code, err := unix.GetsockoptInt(int(e.Fd), unix.SOL_SOCKET, unix.SO_ERROR)
			if err != nil {
				return err
			}
			delete(open, e.Fd)
			reset(int(e.Fd))
			switch unix.Errno(code) {
			case 0, unix.ECONNRESET, unix.EPIPE: // the server may have been the first to reset it
				made.Add(1)
			default:
				return fmt.Errorf("connect: %w", unix.Errno(code))
			}
		}
	}
	return nil
}
