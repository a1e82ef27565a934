package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/netdev"
)

// ConnectOptions describe a test of new TCP connections.
type ConnectOptions struct {
	Client, Server string         // namespaces
	Address        netip.AddrPort // where the server listens; port 0: 8080
	Rate           float64        // connections requested per second
	Duration       time.Duration
	Timeout        time.Duration // to be established; 0: 1 s
}

// Connect is what became of the connections.
type Connect struct {
	Requested   int         `json:"requested"`
	Established int         `json:"established"`
	Refused     int         `json:"refused"`
	TimedOut    int         `json:"timed_out"`
	Unsent      int         `json:"unsent"`  // the client itself was too slow, or out of ports and descriptors
	Offered     float64     `json:"offered"` // requests/s
	Rate        float64     `json:"rate"`    // connections established/s
	Time        hist.Digest `json:"time"`    // from request to established
}

// openAtOnce bounds the connections under way.
const openAtOnce = 4096

// RunConnect requests connections at a steady rate, whatever became of the ones before, and closes each as soon as it
// is established. It closes with a reset, so that none lingers and ports do not run out.
func RunConnect(ctx context.Context, o ConnectOptions) (Connect, error) {
	if o.Address.Port() == 0 {
		o.Address = netip.AddrPortFrom(o.Address.Addr(), 8080)
	}
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	if !(o.Rate > 0) || o.Duration <= 0 {
		return Connect{}, fmt.Errorf("connections to %v: %v a second for %v; both must be above 0",
			o.Address, o.Rate, o.Duration)
	}
	stop, err := listen(o)
	if err != nil {
		return Connect{}, fmt.Errorf("connections to %v: %w", o.Address, err)
	}
	defer stop()
	var c Connect
	err = netdev.In(o.Client, func() error {
		runtime.LockOSThread()
		return c.run(ctx, o)
	})
	if err != nil {
		return c, fmt.Errorf("connections to %v: %w", o.Address, err)
	}
	return c, nil
}

func address(a netip.AddrPort) (int, unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// listen accepts connections and closes them, until stop is called.
func listen(o ConnectOptions) (stop func(), err error) {
	domain, at := address(o.Address)
	ready, wake := make(chan error, 1), [2]int{}
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := netdev.In(o.Server, func() error {
			runtime.LockOSThread()
			fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at),
				unix.Listen(fd, 65535)); err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			ready <- nil
			return accept(fd, wake[0])
		})
		if err != nil {
			select {
			case ready <- err:
			default:
			}
		}
	}()
	stop = func() {
		unix.Close(wake[1])
		<-ended
		unix.Close(wake[0])
	}
	if err := <-ready; err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func accept(fd, wake int) error {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if p[1].Revents != 0 {
			return nil
		}
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			reset(c)
		}
	}
}

func reset(fd int) {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}

// attempt is one connection under way.
type attempt struct{ since time.Time }

func (c *Connect) run(ctx context.Context, o ConnectOptions) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	domain, to := address(o.Address)
	open := map[int]attempt{}
	defer func() {
		for fd := range open {
			reset(fd)
		}
	}()
	var times hist.Histogram
	start := time.Now()
	gap := time.Duration(float64(time.Second) / o.Rate)
	total := int(o.Rate*o.Duration.Seconds() + 0.5)
	events := make([]unix.EpollEvent, 256)
	for c.Requested+c.Unsent < total || len(open) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		for due := start.Add(time.Duration(c.Requested+c.Unsent) * gap); c.Requested+c.Unsent < total &&
			!time.Now().Before(due); due = due.Add(gap) {
			if len(open) >= openAtOnce || !c.request(ep, domain, to, open) {
				c.Unsent++
			}
		}
		n, err := unix.EpollWait(ep, events, 1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			c.finish(int(e.Fd), open, &times)
		}
		for fd, a := range open {
			if time.Since(a.since) > o.Timeout {
				delete(open, fd)
				reset(fd)
				c.TimedOut++
			}
		}
	}
	elapsed := max(time.Since(start), o.Duration).Seconds()
	c.Offered, c.Rate, c.Time = float64(c.Requested)/elapsed, float64(c.Established)/elapsed, times.Digest()
	return nil
}

// request starts a connection; false when the client could not even try.
func (c *Connect) request(ep, domain int, to unix.Sockaddr, open map[int]attempt) bool {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	open[fd] = attempt{time.Now()}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		delete(open, fd)
		unix.Close(fd)
		return false
	}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLERR,
		Fd: int32(fd)}); err != nil {
		delete(open, fd)
		unix.Close(fd)
		return false
	}
	c.Requested++
	return true
}

// finish looks at what became of a connection. One that was established and already reset by the server counts as
// established.
func (c *Connect) finish(fd int, open map[int]attempt, times *hist.Histogram) {
	a, ok := open[fd]
	if !ok {
		return
	}
	delete(open, fd)
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil, code == int(unix.ECONNREFUSED):
		c.Refused++
	case code == 0, code == int(unix.ECONNRESET), code == int(unix.EPIPE):
		c.Established++
		times.Add(uint64(time.Since(a.since)))
	default:
		c.TimedOut++
	}
	reset(fd)
}
