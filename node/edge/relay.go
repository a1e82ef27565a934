package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// relayed is a forwarded port with its edge.
type relayed struct {
	edge    *Edge
	gateway *gateway
	forward model.Forward
}

// key tells relays apart. It includes where they lead, and which life of the gateway they belong to.
func (x relayed) key() string {
	return fmt.Sprint(x.edge.ID, x.forward, x.edge.Internet.Targets[x.forward.Element], x.gateway.fd)
}

// name tells forwards apart, as the file writes them.
func (x relayed) name() string { return x.edge.ID.String() + " " + x.forward.String() }

// errOthers says that a process of somebody else has a port. The forward does not get it later by itself: a service
// that is restarted must find its port free, whatever forwards were asked for meanwhile.
var errOthers = errors.New("is taken by")

// relay listens on a forwarded port in the machine's own namespace, and hands what comes to the element. That is
// connections of the machine's own processes, and connections to addresses that are not the uplink's. What comes by the
// uplink never gets here, since the tc hook takes it first. The listening socket also keeps others from taking the
// port.
type relay struct {
	targets []netip.AddrPort
	inside  int // the gateway's namespace
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Bounds of one relay.
const (
	maxStreams  = 256             // connections at a time, or senders of datagrams
	dialTimeout = 5 * time.Second // for each of the element's addresses
	udpSilence  = time.Minute     // a sender that is silent for so long is forgotten
)

// applyRelays makes relays listen on exactly these ports, and tells which ports it could not get.
func (d *Driver) applyRelays(want []relayed) map[relayed]error {
	wanted, names := map[string]bool{}, map[string]bool{}
	for _, x := range want {
		wanted[x.key()], names[x.name()] = true, true
	}
	maps.DeleteFunc(d.taken, func(name string, _ error) bool { return !names[name] })
	for key, r := range d.relays {
		if !wanted[key] {
			r.close()
			delete(d.relays, key)
		}
	}
	failed := map[relayed]error{}
	for _, x := range want {
		if d.relays[x.key()] != nil {
			continue
		}
		if err := d.taken[x.name()]; err != nil {
			failed[x] = err
			continue
		}
		r, err := d.listen(x)
		if err != nil {
			if errors.Is(err, errOthers) {
				d.taken[x.name()] = err
			}
			failed[x] = err
			continue
		}
		d.relays[x.key()] = r
	}
	return failed
}

// listen starts a relay. If somebody else has the port, the error names him.
func (d *Driver) listen(x relayed) (*relay, error) {
	r := &relay{}
	for _, a := range x.edge.Internet.Targets[x.forward.Element] {
		r.targets = append(r.targets, netip.AddrPortFrom(a, x.forward.To))
	}
	if len(r.targets) == 0 {
		return nil, fmt.Errorf("%s has no address", x.forward.Element)
	}
	address := ":" + strconv.Itoa(int(x.forward.Port))
	if x.forward.Address.IsValid() {
		address = netip.AddrPortFrom(x.forward.Address, x.forward.Port).String()
	}
	var stream net.Listener
	var packets net.PacketConn
	err := linux.Inside(d.machine.fd, func() (err error) {
		if x.forward.Network() == model.UDP {
			packets, err = net.ListenPacket("udp", address)
		} else {
			stream, err = net.Listen("tcp", address)
		}
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		who := linux.Listener(d.machine.fd, x.forward.Network(), x.forward.Port)
		switch {
		case who == "":
			who = "another process"
		case !strings.HasPrefix(who, "polyplane "): // who has it for another edge gives it back with that one
			return nil, fmt.Errorf("%s port %d of the machine %w %s; choose another, or free it, take the forward out "+
				"and put it in again", x.forward.Network(), x.forward.Port, errOthers, who)
		}
		return nil, fmt.Errorf("%s port %d of the machine is taken by %s; choose another", x.forward.Network(),
			x.forward.Port, who)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s port %d of the machine: %w", x.forward.Network(), x.forward.Port, err)
	}
	// A descriptor of its own: the gateway's may be closed, and its number become another's.
	if r.inside, err = unix.FcntlInt(uintptr(x.gateway.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	if stream != nil {
		r.done.Go(func() { r.accept(ctx, stream) })
	} else {
		r.done.Go(func() { r.receive(ctx, packets) })
	}
	return r, nil
}

func (r *relay) close() {
	r.stop()
	r.done.Wait()
	unix.Close(r.inside)
}

// dial opens a connection out of the gateway, to the first address that answers, until the context ends.
func (r *relay) dial(ctx context.Context, network string) (c net.Conn, err error) {
	for _, to := range r.targets {
		err = linux.Inside(r.inside, func() (err error) {
			c, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, to.String())
			return err
		})
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return c, err
}

// accept takes connections until the relay ends, at most maxStreams at a time.
func (r *relay) accept(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	room := make(chan struct{}, maxStreams)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, for a moment
			continue
		}
		select {
		case room <- struct{}{}:
			r.done.Go(func() {
				defer func() { <-room }()
				r.stream(ctx, c)
			})
		default:
			c.Close()
		}
	}
}

// stream joins a connection to one to the element, until both directions have ended.
func (r *relay) stream(ctx context.Context, c net.Conn) {
	defer c.Close()
	to, err := r.dial(ctx, "tcp")
	if err != nil {
		return
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, func() { c.Close(); to.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{c, to}, {to, c}} {
		both.Go(func() {
			io.Copy(ends[1], ends[0]) //nolint:errcheck // its end is all there is to know
			ends[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// receive hands datagrams to the element. Each sender has a socket of its own, by which its answers come back.
func (r *relay) receive(ctx context.Context, l net.PacketConn) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var mu sync.Mutex // guards senders, which the goroutines that answer shorten
	senders := map[string]net.Conn{}
	buf := make([]byte, 64<<10)
	for {
		n, from, err := l.ReadFrom(buf)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			continue // of a datagram before
		}
		mu.Lock()
		to := senders[from.String()]
		full := len(senders) >= maxStreams
		mu.Unlock()
		if to == nil {
			if full {
				continue
			}
			if to, err = r.dial(ctx, "udp"); err != nil {
				continue
			}
			mu.Lock()
			senders[from.String()] = to
			mu.Unlock()
			r.done.Go(func() {
				r.answer(l, from, to)
				mu.Lock()
				delete(senders, from.String())
				mu.Unlock()
			})
		}
		to.SetDeadline(time.Now().Add(udpSilence))
		to.Write(buf[:n]) //nolint:errcheck // a datagram may get lost
	}
	mu.Lock()
	defer mu.Unlock()
	for _, c := range senders {
		c.Close()
	}
}

// answer sends back what the element answers to one sender, until the sender has been silent for udpSilence.
func (r *relay) answer(l net.PacketConn, from net.Addr, c net.Conn) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue
		}
		if err != nil {
			return
		}
		l.WriteTo(buf[:n], from) //nolint:errcheck // a datagram may get lost
	}
}
