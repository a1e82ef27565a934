package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Monitor is a route netlink connection for notifications, and for dumps that come in the same order: what the kernel
// tells in a dump is never older than the notifications before it. One goroutine may read; any may send.
type Monitor struct {
	file     *os.File
	raw      syscall.RawConn
	port     uint32
	seq      atomic.Uint32
	from     unix.RawSockaddrNetlink
	fromSize uint32
	overrun  bool // not reported yet
	waits    bool // for the end of an overrun
}

// MonitorDatagram is the longest datagram that a Monitor takes in, in bytes. Dumps keep to 32 KiB; a notification is one
// object.
const MonitorDatagram = 64 << 10

// DialMonitor opens a connection in the calling thread's network namespace that gets the notifications of these groups
// (RTNLGRP_*). buffer bytes of them, with what the kernel needs to keep them, may wait to be read.
func DialMonitor(buffer int, groups ...int) (*Monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	m := &Monitor{}
	if err := m.prepare(fd, buffer, groups); err != nil {
		unix.Close(fd)
		return nil, err
	}
	m.file = os.NewFile(uintptr(fd), "rtnetlink")
	if m.raw, err = m.file.SyscallConn(); err != nil {
		m.file.Close()
		return nil, fmt.Errorf("wait for a route netlink socket: %w", err)
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

// Close closes the connection.
func (m *Monitor) Close() error { return m.file.Close() }

// Interrupt has Wait answer os.ErrDeadlineExceeded, now and until Resume.
func (m *Monitor) Interrupt() { m.file.SetReadDeadline(time.Unix(1, 0)) } //nolint:errcheck // fails when closed

// Resume ends Interrupt.
func (m *Monitor) Resume() error { return m.file.SetReadDeadline(time.Time{}) }

// Dump sends the one request of b with NLM_F_DUMP. Its answer comes among what is read, with this number.
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
	var sent error
	err = m.raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return sent != unix.EAGAIN && sent != unix.EINTR
	})
	if err = errors.Join(err, sent); err != nil {
		return 0, fmt.Errorf("send a route netlink request: %w", err)
	}
	return seq, nil
}

// Answers tells whether a message (its header) answers the request with this number.
func (m *Monitor) Answers(header []byte, seq uint32) bool {
	return m.Own(header) && binary.NativeEndian.Uint32(header[8:]) == seq
}

// Own tells whether a message (its header) answers any request of this connection.
func (m *Monitor) Own(header []byte) bool { return binary.NativeEndian.Uint32(header[12:]) == m.port }

// Wait returns when Read will have something to tell.
func (m *Monitor) Wait() error {
	var failed error
	var peek [1]byte
	err := m.raw.Read(func(fd uintptr) bool {
		for {
			switch _, err := m.receive(int(fd), peek[:], unix.MSG_PEEK); err {
			case unix.EINTR:
			case unix.EAGAIN:
				return m.overrun || m.waits
			case unix.ENOBUFS:
				m.overrun = true
			case 0:
				return true
			default:
				failed = err
				return true
			}
		}
	})
	if err != nil {
		return fmt.Errorf("wait for route netlink messages: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("read route netlink messages: %w", failed)
	}
	return nil
}

// Received tells of a Read.
type Received struct {
	Bytes   int
	Overrun bool // messages were lost before, among, or after these
	// Recovered says that after an overrun all that waited has been read, so that from here on the kernel tells all again.
	Recovered bool
}

// Read fills buf with whole datagrams, as many as there are and fit, without waiting. It appends to ends where each ends.
// Messages that are not the kernel's are left out. buf must have room for MonitorDatagram at least.
func (m *Monitor) Read(buf []byte, ends []int) (Received, []int, error) {
	var r Received
	var failed error
	err := m.raw.Control(func(fd uintptr) {
		for len(buf)-r.Bytes >= MonitorDatagram {
			n, err := m.receive(int(fd), buf[r.Bytes:], unix.MSG_TRUNC)
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN:
				if m.overrun || m.waits {
					r.Recovered = true
				}
				r.Overrun = r.Overrun || m.overrun
				m.overrun, m.waits = false, false
				return
			case err == unix.ENOBUFS, err == 0 && n > len(buf)-r.Bytes:
				m.overrun = true
			case err != 0:
				failed = err
				return
			case m.from.Pid == 0:
				r.Bytes += n
				ends = append(ends, r.Bytes)
			}
		}
	})
	if m.overrun {
		r.Overrun, m.overrun, m.waits = true, false, true
	}
	if err = errors.Join(err, failed); err != nil {
		return r, ends, fmt.Errorf("read route netlink messages: %w", err)
	}
	return r, ends, nil
}

// receive reads one datagram without waiting and without allocating. A dump that ends, by what another thread sends, in the
// moment in which this one would have it go on, is an error of the socket (EINVAL) that says nothing.
func (m *Monitor) receive(fd int, buf []byte, flags uintptr) (n int, errno unix.Errno) {
	for range 16 {
		m.fromSize = unix.SizeofSockaddrNetlink
		var read uintptr
		read, _, errno = unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)),
			flags|unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&m.from)), uintptr(unsafe.Pointer(&m.fromSize)))
		if n = int(read); errno != unix.EINVAL && errno != unix.EINTR {
			break
		}
	}
	return n, errno
}
