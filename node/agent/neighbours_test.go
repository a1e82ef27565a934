package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// cable is a link between two namespaces that delays what it carries: a tun device at each end, and this process
// between them.
type cable struct {
	delay atomic.Int64 // one way
	cut   atomic.Bool
	ends  [2]*os.File
	group sync.WaitGroup
}

// layCable makes the namespaces; f is run in each, on a thread of its own, with the addresses of its end and of the
// other. What f opens belongs to the namespace, which goes with it.
func layCable(t *testing.T, f func(i int, own, far netip.Addr)) *cable {
	t.Helper()
	w := &cable{}
	addresses := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	var made, ended sync.WaitGroup
	var failed [2]error
	begin := make(chan struct{})
	for i := range 2 {
		made.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // not given back: the thread ends with the goroutine
			w.ends[i], failed[i] = tun(addresses[i])
			made.Done()
			if <-begin; failed[i] == nil {
				f(i, addresses[i], addresses[1-i])
			}
		})
	}
	made.Wait()
	t.Cleanup(func() {
		ended.Wait()
		for _, end := range w.ends {
			if end != nil {
				end.Close()
			}
		}
		w.group.Wait()
	})
	if err := errors.Join(failed[:]...); err != nil {
		close(begin)
		t.Fatal(err)
	}
	for i := range 2 {
		w.group.Go(func() { w.carry(w.ends[i], w.ends[1-i]) })
	}
	close(begin)
	return w
}

// tun gives the calling thread a namespace of its own with a tun device of that address in it.
func tun(own netip.Addr) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq("wire")
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a tun device: %w", err)
	}
	device, err := netlink.LinkByName("wire")
	if err == nil {
		err = netlink.AddrAdd(device, &netlink.Addr{IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(24, 32)}})
	}
	if err == nil {
		err = netlink.LinkSetUp(device)
	}
	return os.NewFile(uintptr(fd), "tun"), err
}

func (w *cable) carry(from, to *os.File) {
	for {
		packet := make([]byte, 2048)
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		if w.cut.Load() {
			continue
		}
		w.group.Add(1)
		time.AfterFunc(time.Duration(w.delay.Load()), func() {
			defer w.group.Done()
			to.Write(packet[:n]) //nolint:errcheck // the test may be over
		})
	}
}

// testRound is a round of four probes, all of which are answered.
func (n *neighbours) testRound(now time.Time) {
	for range 4 {
		n.probe()
	}
	for range 4 {
		a := <-n.echo.answers
		a.at = now // the test's clock goes from round to round
		n.answered(a)
	}
	n.account(now)
}

// A change of a link's delay, of what it is used for, of its rate and of whether it answers is told with the round in
// which it came. Time does not count: rounds do.
func TestChangesAreToldWithinARound(t *testing.T) {
	const delay = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background()) // the ends work until the clean-up waits for them
	wired := make(chan *cable, 1)
	w := layCable(t, func(i int, own, far netip.Addr) {
		var told *model.Measures
		n := newNeighbours(newWork(fmt.Sprintf("n%d", i+1)), slog.New(slog.DiscardHandler),
			func(m model.Measures) { told = &m })
		link := model.NodeLink{To: fmt.Sprintf("n%d", 2-i), Address: far, Bandwidth: 4e6}
		if i == 1 {
			// The other end does what it does in an agent.
			n.set([]model.NodeLink{link})
			n.run(ctx) //nolint:errcheck // it ends with the context
			return
		}
		defer cancel()
		w := <-wired
		if n.take([]model.NodeLink{link}); n.problem != "" {
			t.Error(n.problem)
			return
		}
		defer n.close()
		now := time.Now()
		next := func(what string) *model.LinkMeasure {
			told = nil
			now = now.Add(roundEvery)
			n.testRound(now)
			if told == nil {
				t.Errorf("%s was not told", what)
				return &model.LinkMeasure{}
			}
			return told.Link("n2")
		}
		// The other end may not listen yet.
		for n.links[0].heard.IsZero() {
			n.probe()
			select {
			case a := <-n.echo.answers:
				n.answered(a)
			case <-time.After(20 * time.Millisecond):
			}
		}
		for range n.echo.outstanding() {
			select { // answers to probes sent before the other end listened never come
			case a := <-n.echo.answers:
				n.answered(a)
			case <-time.After(200 * time.Millisecond):
			}
		}
		n.echo.expire(time.Now().Add(time.Hour))

		if m := next("the first round"); !m.Up || m.RTTMin <= 0 || m.RTTMedian < m.RTTMin ||
			m.Device != "wire" || m.Capacity != 4e6 {
			t.Errorf("the first round came to %+v", m)
		}
		w.delay.Store(int64(delay))
		if m := next("a longer delay"); m.RTTMin < 2*delay {
			t.Errorf("with 2 × %v the smallest round-trip time is %v", delay, m.RTTMin)
		}
		w.delay.Store(0)
		// A machine that is busy elsewhere delays too: what counts is that the link does not.
		for n.links[0].measure.RTTMin >= 2*delay {
			now = now.Add(roundEvery)
			n.testRound(now)
		}

		const datagrams, size = 200, 1000 // below what a tun device holds for a reader that is late
		// Not connected: it would tell of an ICMP error instead of sending.
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own.AsSlice()})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range datagrams {
			if _, err := c.WriteToUDP(make([]byte, size), &net.UDPAddr{IP: far.AsSlice(), Port: 9}); err != nil {
				t.Error(err)
			}
		}
		const least = datagrams * (size + 28) * 8
		if m := next("traffic"); m.Used < least || m.Used > 2*least || m.Available != m.Capacity-m.Used {
			t.Errorf("%d bits were sent: %+v", least, m)
		}
		if m := next("the end of traffic"); m.Used >= least {
			t.Errorf("nothing was sent: %+v", m)
		}
		device, err := netlink.LinkByName("wire")
		if err != nil {
			t.Error(err)
			return
		}
		if err := netlink.QdiscReplace(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Attrs().Index,
			Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT}, Rate: 250e3, Buffer: 1 << 20, Limit: 1 << 20}); err != nil {
			t.Error(err)
			return
		}
		if m := next("a lower rate"); m.Capacity != 2e6 || m.Available > 2e6 {
			t.Errorf("at 2 Mbit/s: %+v", m)
		}

		w.cut.Store(true)
		lost, sent := n.links[0].measure.Lost, n.links[0].measure.Sent
		for range 4 {
			n.probe()
		}
		told = nil
		n.account(now.Add(lostAfter + time.Second))
		if told == nil || told.Link("n2").Up || told.Link("n2").Lost != lost+4 || told.Link("n2").Sent != sent+4 {
			t.Errorf("of a link that was cut %+v was told", told)
		}
	})
	wired <- w
}

// outstanding is how many probes wait for an answer.
func (e *echo) outstanding() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending)
}

// Only neighbours are answered, and answers are not: two nodes cannot be set to answer each other for ever.
func TestOnlyNeighboursAreAnswered(t *testing.T) {
	socket := func(address string) *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	neighbour, stranger := socket("127.0.0.2"), socket("127.0.0.3")
	free := socket("127.0.0.1")
	port := uint16(free.LocalAddr().(*net.UDPAddr).Port)
	free.Close()
	e, err := openEcho(port, []netip.Addr{netip.MustParseAddr("127.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}
	tail := string(make([]byte, runLen+8))
	for _, x := range []struct {
		from   *net.UDPConn
		packet string
	}{{stranger, linkQuestion + tail}, {neighbour, linkReply + tail}, {neighbour, linkQuestion + tail + "x"},
		{neighbour, "nonsense"},
		{neighbour, linkQuestion + tail}} {
		if _, err := x.from.WriteToUDP([]byte(x.packet), to); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 256)
	n, from, err := neighbour.ReadFromUDP(buf)
	if err != nil || string(buf[:n]) != linkReply+tail || from.Port != int(port) || !from.IP.Equal(to.IP) {
		t.Errorf("the neighbour got %q from %v, %v", buf[:n], from, err)
	}
	// All that came before has been dealt with, since it came by one socket.
	for name, c := range map[string]*net.UDPConn{"stranger": stranger, "neighbour": neighbour} {
		c.SetReadDeadline(time.Now().Add(-time.Second))
		raw, _ := c.SyscallConn()
		var got int
		raw.Control(func(fd uintptr) { got, _ = unix.Read(int(fd), buf) })
		if got > 0 {
			t.Errorf("the %s got %q beside", name, buf[:got])
		}
	}
}

func TestNews(t *testing.T) {
	base := model.LinkMeasure{To: "n2", Up: true, RTTMin: time.Millisecond, RTTMedian: 2 * time.Millisecond,
		Capacity: 1e9, Used: 1e8}
	for name, c := range map[string]struct {
		change func(*model.LinkMeasure)
		news   bool
	}{
		"nothing":            {func(*model.LinkMeasure) {}, false},
		"probes":             {func(m *model.LinkMeasure) { m.Sent, m.Lost = 10, 1 }, false},
		"noise of delay":     {func(m *model.LinkMeasure) { m.RTTMedian += 300 * time.Microsecond }, false},
		"delay":              {func(m *model.LinkMeasure) { m.RTTMin += time.Millisecond }, true},
		"a little traffic":   {func(m *model.LinkMeasure) { m.Used += 4e7 }, false},
		"traffic":            {func(m *model.LinkMeasure) { m.Used += 6e7 }, true},
		"less traffic":       {func(m *model.LinkMeasure) { m.Used -= 6e7 }, true},
		"another capacity":   {func(m *model.LinkMeasure) { m.Capacity = 9e8 }, true},
		"down":               {func(m *model.LinkMeasure) { m.Up = false }, true},
		"cannot be measured": {func(m *model.LinkMeasure) { m.Problem = "no route" }, true},
	} {
		is := base
		c.change(&is)
		if got := isNews([]model.LinkMeasure{base}, []model.LinkMeasure{is}); got != c.news {
			t.Errorf("%s: news %v, want %v", name, got, c.news)
		}
	}
	if !isNews(nil, []model.LinkMeasure{base}) || !isNews([]model.LinkMeasure{base}, nil) {
		t.Error("a link that comes or goes is news")
	}
}

func TestWork(t *testing.T) {
	w := newWork("n1")
	w.passed(3 * time.Millisecond)
	w.audited(0)
	w.audited(2)
	m := w.measures()
	w.passed(time.Hour)
	if m.Passes.Counts[2] != 1 || m.Passes.Counts[len(passBounds)] != 0 || m.Audits != 2 || m.Findings != 2 {
		t.Errorf("measured %+v", m)
	}
	if m.CPU <= 0 || m.Memory < 1<<20 || m.Memory%model.Bytes(os.Getpagesize()) != 0 || m.Started.IsZero() {
		t.Errorf("of this process %+v is measured", m)
	}
}

// A neighbour's probes come while the sockets of others are being opened.
func TestProbesComeWhileSocketsAreOpened(t *testing.T) {
	free, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	to := free.LocalAddr().(*net.UDPAddr)
	free.Close()
	from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var addresses []netip.Addr
	for i := range 1 << 16 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}))
	}
	probe := []byte(linkQuestion + string(make([]byte, runLen+8)))
	sent, opened := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-opened:
				return
			default:
				from.WriteToUDP(probe, to) //nolint:errcheck // nobody listens yet
			}
		}
	}()
	e, err := openEcho(uint16(to.Port), addresses)
	close(opened)
	<-sent
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if len(e.known) != len(addresses) || len(e.conns) != 1 {
		t.Errorf("%d neighbours by %d sockets", len(e.known), len(e.conns))
	}
}

// TestNobodyIsCutOffByALateRound has an agent get no processor for a while, in which it neither asks nor hears. It must
// not say that its neighbours are silent. One that is silent on is told, twice in succession.
func TestNobodyIsCutOffByALateRound(t *testing.T) {
	var told []model.Measures
	n := newNeighbours(newWork("n1"), slog.New(slog.DiscardHandler), func(m model.Measures) { told = append(told, m) })
	now := time.Now()
	l := &neighbour{NodeLink: model.NodeLink{To: "n2"},
		measure: model.LinkMeasure{To: "n2", RTT: model.NewHistogram(rttBounds...)}, heard: now}
	n.links, n.every = []*neighbour{l}, roundEvery
	up := func(what string, after time.Duration, want bool) {
		t.Helper()
		now = now.Add(after)
		n.tick(now)
		if l.measure.Up != want {
			t.Errorf("%s: up is %v", what, l.measure.Up)
		}
	}
	up("at first", time.Second, true)
	before := len(told)
	up("a late round", 8*time.Second, true)
	if len(told) != before {
		t.Error("a late round was told")
	}
	up("just after it", 100*time.Millisecond, true)
	l.heard = now
	up("heard again", time.Second, true)
	up("silent", time.Second, false)
	before = len(told)
	up("silent", time.Second, false)
	up("silent on", time.Second, false)
	if len(told) != before+1 || told[before].Round != told[before-1].Round+1 {
		t.Errorf("told %d times: %+v", len(told)-before, told)
	}
	up("late", 8*time.Second, false)
	up("silent for its own part", lostAfter, false)
}
