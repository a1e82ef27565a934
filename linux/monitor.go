package linux

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Monitor is a netlink connection for notifications, with dumps among them. A part of a dump may be older than
// notifications that arrived before it, by the time that it took to make that part. One goroutine may wait; any may
// read and send.
type Monitor struct {
	fd   int
	port uint32
	wake chan struct{} // there is something to read
	seq  atomic.Uint32 // of the last request; answers carry it

	reading  sync.Mutex // guards the four below: one goroutine may read while another waits
	from     unix.RawSockaddrNetlink
	fromSize uint32
	overrun  bool // not reported yet
	waits    bool // for the end of an overrun

	interrupted atomic.Pointer[chan struct{}] // closed by Interrupt
}

// MonitorDatagram is the longest datagram that a Monitor receives, in bytes. Dumps use at most 32 KiB, and a
// notification is about one object.
const MonitorDatagram = 64 << 10

// DialMonitor opens a connection in the calling thread's network namespace that gets the notifications of these groups
// (RTNLGRP_*). buffer is how many bytes of them may wait to be read, including what the kernel needs to keep them.
func DialMonitor(buffer int, groups ...int) (*Monitor, error) {
	return dialMonitor(unix.NETLINK_ROUTE, buffer, groups)
}

// DialFilterMonitor is DialMonitor for nfnetlink's groups (NFNLGRP_*).
func DialFilterMonitor(buffer int, groups ...int) (*Monitor, error) {
	return dialMonitor(unix.NETLINK_NETFILTER, buffer, groups)
}

func dialMonitor(protocol, buffer int, groups []int) (*Monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	m := &Monitor{fd: fd, wake: make(chan struct{}, 1)}
	m.interrupted.Store(new(make(chan struct{})))
	if err = m.prepare(fd, buffer, groups); err == nil {
		err = waiters.add(m)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return m, nil
}

func (m *Monitor) prepare(fd, buffer int, groups []int) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind a route netlink socket: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read the name of a route netlink socket: %w", err)
	}
	m.port = name.(*unix.SockaddrNetlink).Pid
	type option struct{ level, option, value int }
	options := []option{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer},
		{unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1},
		{unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1},
	}
	for _, g := range groups {
		options = append(options, option{unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("set option %d of a route netlink socket to %d: %w", o.option, o.value, err)
		}
	}
	return nil
}

// Close closes the connection. No goroutine may be waiting.
func (m *Monitor) Close() error {
	waiters.remove(m)
	return unix.Close(m.fd)
}

// Interrupt makes Wait return os.ErrDeadlineExceeded, now and until Resume.
func (m *Monitor) Interrupt() {
	select {
	case <-*m.interrupted.Load():
	default:
		close(*m.interrupted.Load())
	}
}

// Resume ends Interrupt. The two may not be called at the same time.
func (m *Monitor) Resume() {
	select {
	case <-*m.interrupted.Load():
		m.interrupted.Store(new(make(chan struct{})))
	default:
	}
}

// Dump sends the one request of b with NLM_F_DUMP. Its answer is among what Read returns, with this number.
func (m *Monitor) Dump(b *Batch) (seq uint32, err error) {
	if b.Len() != 1 {
		panic("linux.Monitor.Dump: takes exactly one request")
	}
	b.finish()
	seq = m.seq.Add(1)
	flags := binary.NativeEndian.Uint16(b.buf[6:])
	binary.NativeEndian.PutUint16(b.buf[6:], flags|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b.buf[8:], seq)
	binary.NativeEndian.PutUint32(b.buf[12:], m.port)
	for {
		switch err = unix.Sendto(m.fd, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err {
		case unix.EINTR:
		case nil:
			return seq, nil
		default:
			return 0, fmt.Errorf("send a route netlink request: %w", err)
		}
	}
}

// Answers returns whether a message (its header) answers the request with this number.
func (m *Monitor) Answers(header []byte, seq uint32) bool {
	return m.Own(header) && binary.NativeEndian.Uint32(header[8:]) == seq
}

// Own returns whether a message (its header) answers any request of this connection.
func (m *Monitor) Own(header []byte) bool { return binary.NativeEndian.Uint32(header[12:]) == m.port }

// Wait returns when Read will return something.
func (m *Monitor) Wait() error {
	for {
		select {
		case <-*m.interrupted.Load():
			return fmt.Errorf("wait for route netlink messages: %w", os.ErrDeadlineExceeded)
		default:
		}
		switch there, err := m.peek(); {
		case err == unix.EINTR:
			continue
		case err != 0:
			return fmt.Errorf("read route netlink messages: %w", err)
		case there:
			return nil
		}
		if err := waiters.arm(m); err != nil {
			return err
		}
		select {
		case <-m.wake:
		case <-*m.interrupted.Load():
		}
	}
}

// peek returns whether Read has something to return now.
func (m *Monitor) peek() (bool, unix.Errno) {
	var first [1]byte
	m.reading.Lock()
	defer m.reading.Unlock()
	switch _, err := m.receive(m.fd, first[:], unix.MSG_PEEK); err {
	case 0:
		return true, 0
	case unix.ENOBUFS:
		m.overrun = true
		return true, 0
	case unix.EAGAIN:
		return m.overrun || m.waits, 0
	default:
		return false, err
	}
}

// Received tells of a Read.
type Received struct {
	Bytes   int
	Overrun bool // messages were lost before, among or after these
	// Recovered says that after an overrun everything that waited has been read. From here on no notification is
	// missing.
	Recovered bool
}

// Read fills buf with whole datagrams, as many as there are and fit, without waiting. It appends the end of each to
// ends. It leaves out messages that are not from the kernel. buf must have room for at least MonitorDatagram.
func (m *Monitor) Read(buf []byte, ends []int) (Received, []int, error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	var r Received
	for len(buf)-r.Bytes >= MonitorDatagram {
		n, err := m.receive(m.fd, buf[r.Bytes:], unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			r.Overrun, r.Recovered = m.overrun, m.overrun || m.waits
			m.overrun, m.waits = false, false
			return r, ends, nil
		case err == unix.ENOBUFS, err == 0 && n > len(buf)-r.Bytes:
			m.overrun = true
		case err != 0:
			return r, ends, fmt.Errorf("read route netlink messages: %w", err)
		case m.from.Pid == 0:
			r.Bytes += n
			ends = append(ends, r.Bytes)
		}
	}
	if m.overrun {
		r.Overrun, m.overrun, m.waits = true, false, true
	}
	return r, ends, nil
}

// receive reads one datagram without waiting and without allocating. When another thread sends in the moment in which
// this one makes the kernel continue a dump that has just ended, the socket reports EINVAL, which means nothing.
func (m *Monitor) receive(fd int, buf []byte, flags uintptr) (n int, errno unix.Errno) {
	for range 16 {
		m.fromSize = unix.SizeofSockaddrNetlink
		var read uintptr
		read, _, errno = unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)),
			flags|unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&m.from)), uintptr(unsafe.Pointer(&m.fromSize)))
		if n = int(read); errno != unix.EINVAL && errno != unix.EINTR {
			break
		}
	}
	return n, errno
}

// waiters wakes the monitors that wait. A socket is armed for a single wake-up, because whoever changes routes pays for
// waking. Go's own poller would be woken for each message, whether or not somebody waits for it.
var waiters waiting

// waiting is the one epoll descriptor of the process, and who waits by it. What is in epoll and in by changes together.
type waiting struct {
	mu    sync.Mutex
	epoll int // 0 until it is made
	by    map[int32]*Monitor
}

func (w *waiting) add(m *Monitor) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("wait for route netlink sockets: %w", err)
		}
		w.epoll, w.by = fd, map[int32]*Monitor{}
		go w.run()
	}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, m.fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT,
		Fd: int32(m.fd)}); err != nil {
		return fmt.Errorf("wait for a route netlink socket: %w", err)
	}
	w.by[int32(m.fd)] = m
	return nil
}

func (w *waiting) remove(m *Monitor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.by, int32(m.fd))
	unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, m.fd, nil) //nolint:errcheck // it is closed next
}

func (w *waiting) arm(m *Monitor) error {
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, m.fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(m.fd)})
	if err != nil {
		return fmt.Errorf("wait for a route netlink socket: %w", err)
	}
	return nil
}

// run waits on behalf of all monitors, on one thread, as long as the process lives.
func (w *waiting) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			panic("linux: wait for route netlink sockets: " + err.Error()) // the descriptor is no longer ours
		}
		w.mu.Lock()
		for _, e := range events[:max(n, 0)] {
			if m := w.by[e.Fd]; m != nil {
				select {
				case m.wake <- struct{}{}:
				default:
				}
			}
		}
		w.mu.Unlock()
	}
}
