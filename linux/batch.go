// Package linux makes narrow calls to the kernel: route netlink in batches, queueing disciplines and filters, tunnel
// devices, namespaces.
package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rtnetlink is a route netlink connection (rtnetlink(7)) for many requests at once. It sends several hundred of them
// with one system call, and the kernel answers only with errors. It may be used by several goroutines. It speaks to the
// network namespace that the thread was in when DialRtnetlink was called, whichever thread uses it later.
type Rtnetlink struct {
	mu   sync.Mutex // held until requests have their answers, so that these are nobody else's
	fd   int
	port uint32
	seq  uint32
	buf  []byte
}

// Limits of one sendmsg. The kernel carries out all of its requests before the call returns. Meanwhile errors wait in
// the receive buffer, which has room for all of them at about 1 KiB of memory each.
const (
	batchMessages = 512
	batchBytes    = 256 << 10
	socketBuffer  = 4 << 20
	receiveBytes  = 64 << 10
)

// ErrDumpInterrupted is returned by Dump if the kernel's tables changed while they were read. The caller has to ask
// again.
var ErrDumpInterrupted = errors.New("the kernel's tables changed while they were read")

// ErrEnough is what a callback of Dump returns when it does not need the rest.
var ErrEnough = errors.New("the rest is not wanted")

// DialRtnetlink opens a connection in the calling thread's network namespace.
func DialRtnetlink() (*Rtnetlink, error) { return dialNetlink(unix.NETLINK_ROUTE) }

func dialNetlink(protocol int) (*Rtnetlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket of protocol %d: %w", protocol, err)
	}
	c := &Rtnetlink{fd: fd, buf: make([]byte, receiveBytes)}
	if err := c.prepare(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return c, nil
}

func (c *Rtnetlink) prepare() error {
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind a route netlink socket: %w", err)
	}
	name, err := unix.Getsockname(c.fd)
	if err != nil {
		return fmt.Errorf("read the name of a route netlink socket: %w", err)
	}
	c.port = name.(*unix.SockaddrNetlink).Pid
	for _, o := range []struct{ level, option, value int }{
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer},
		{unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1},        // errors in words
		{unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1},        // answers do not repeat the request
		{unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1}, // dumps heed their filters
	} {
		if err := unix.SetsockoptInt(c.fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("set option %d of a route netlink socket: %w", o.option, err)
		}
	}
	return nil
}

// Close closes the connection.
func (c *Rtnetlink) Close() error { return unix.Close(c.fd) }

// Batch collects requests for Do. The zero value is an empty batch.
type Batch struct {
	buf    []byte
	starts []int // of each request in buf
	nests  []int // of each open attribute in buf
}

// Len is the number of requests.
func (b *Batch) Len() int { return len(b.starts) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.buf, b.starts, b.nests = b.buf[:0], b.starts[:0], b.nests[:0] }

// Request begins the next request and returns its position, that of its error in what Do returns. kind is an RTM_*
// number, flags are NLM_F_* (NLM_F_REQUEST is added); what follows – Struct, then attributes – belongs to it.
func (b *Batch) Request(kind, flags uint16) int {
	b.finish()
	b.starts = append(b.starts, len(b.buf))
	b.buf = append(b.buf, make([]byte, unix.SizeofNlMsghdr)...)
	h := b.buf[len(b.buf)-unix.SizeofNlMsghdr:]
	binary.NativeEndian.PutUint16(h[4:], kind)
	binary.NativeEndian.PutUint16(h[6:], flags|unix.NLM_F_REQUEST)
	return len(b.starts) - 1
}

// Bytes are the requests as they are sent, for a connection that Do is not for.
func (b *Batch) Bytes() []byte {
	b.finish()
	return b.buf
}

// finish writes the length of the request in work.
func (b *Batch) finish() {
	if len(b.starts) == 0 {
		return
	}
	if len(b.nests) != 0 {
		panic("linux.Batch: an attribute was begun and not ended")
	}
	start := b.starts[len(b.starts)-1]
	binary.NativeEndian.PutUint32(b.buf[start:], uint32(len(b.buf)-start))
}

// Link writes the fixed part of an RTM_*LINK request: flags are set where change has ones.
func (b *Batch) Link(index int, flags, change uint32) {
	m := unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: int32(index), Flags: flags, Change: change}
	b.Raw((*[unix.SizeofIfInfomsg]byte)(unsafe.Pointer(&m))[:])
}

// Address writes the fixed part of an RTM_*ADDR request. flags are IFA_F_*, those below 256 (IFA_FLAGS takes the rest).
func (b *Batch) Address(index int, family, prefixLength, scope, flags uint8) {
	m := unix.IfAddrmsg{Family: family, Prefixlen: prefixLength, Scope: scope, Flags: flags, Index: uint32(index)}
	b.Raw((*[unix.SizeofIfAddrmsg]byte)(unsafe.Pointer(&m))[:])
}

// Raw appends bytes, padded to four: a request's fixed part.
func (b *Batch) Raw(data []byte) {
	b.buf = append(b.buf, data...)
	b.pad()
}

func (b *Batch) pad() {
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
}

// Attr appends an attribute. Its value must be shorter than 64 KiB.
func (b *Batch) Attr(kind uint16, value []byte) {
	b.header(kind, len(value))
	b.buf = append(b.buf, value...)
	b.pad()
}

func (b *Batch) header(kind uint16, length int) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(length+unix.SizeofRtAttr))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
}

// Uint8 appends an attribute of one byte.
func (b *Batch) Uint8(kind uint16, v uint8) { b.Attr(kind, []byte{v}) }

// Uint16 appends an attribute of two bytes in the machine's order.
func (b *Batch) Uint16(kind, v uint16) { b.Attr(kind, binary.NativeEndian.AppendUint16(nil, v)) }

// Uint16BE appends an attribute of two bytes in network order.
func (b *Batch) Uint16BE(kind, v uint16) { b.Attr(kind, binary.BigEndian.AppendUint16(nil, v)) }

// Uint32 appends an attribute of four bytes in the machine's order.
func (b *Batch) Uint32(kind uint16, v uint32) {
	b.Attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}

// Flag appends an attribute without a value.
func (b *Batch) Flag(kind uint16) { b.Attr(kind, nil) }

// String appends a text attribute, ended by a zero byte.
func (b *Batch) String(kind uint16, s string) {
	b.header(kind, len(s)+1)
	b.buf = append(b.buf, s...)
	b.buf = append(b.buf, 0)
	b.pad()
}

// Begin opens an attribute that holds what is appended until End.
func (b *Batch) Begin(kind uint16) {
	b.nests = append(b.nests, len(b.buf))
	b.header(kind, 0)
}

// End closes the attribute that was begun last.
func (b *Batch) End() {
	start := b.nests[len(b.nests)-1]
	b.nests = b.nests[:len(b.nests)-1]
	binary.NativeEndian.PutUint16(b.buf[start:], uint16(len(b.buf)-start))
}

// Do sends the requests and returns when the kernel has carried them out, in order; a request that fails does not stop
// those after it. It returns nil when all succeeded, else one error a request, nil for those that succeeded. Errors are
// *KernelError, for errors.Is with the unix.E* numbers. The batch stays as it is: Reset it before using it anew.
//
// Requests that answer with messages of their own (RTM_GET*, NLM_F_ECHO) are not for Do.
func (c *Rtnetlink) Do(b *Batch) []error {
	b.finish()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(b.starts))
		}
		errs[i] = err
	}
	for first := 0; first < len(b.starts); {
		end := first + 1
		for end < len(b.starts) && end-first < batchMessages && b.end(end)-b.starts[first] <= batchBytes {
			end++
		}
		if err := c.exchange(b, first, end, fail); err != nil {
			for i := first; i < len(b.starts); i++ {
				fail(i, err)
			}
			return errs
		}
		first = end
	}
	return errs
}

// end is where request i ends in the buffer.
func (b *Batch) end(i int) int {
	if i+1 < len(b.starts) {
		return b.starts[i+1]
	}
	return len(b.buf)
}

// exchange sends the requests first ≤ i < end and reads their answers. Only the last one asks for an acknowledgement.
// The kernel answers in order and reports every error, so a request without an answer before that has succeeded.
func (c *Rtnetlink) exchange(b *Batch, first, end int, fail func(int, error)) error {
	base := c.seq + 1
	for i := first; i < end; i++ {
		h := b.buf[b.starts[i]:]
		flags := binary.NativeEndian.Uint16(h[6:]) &^ unix.NLM_F_ACK
		if i == end-1 {
			flags |= unix.NLM_F_ACK
		}
		binary.NativeEndian.PutUint16(h[6:], flags)
		c.seq++
		binary.NativeEndian.PutUint32(h[8:], c.seq)
		binary.NativeEndian.PutUint32(h[12:], c.port)
	}
	if err := c.send(b.buf[b.starts[first]:b.end(end-1)]); err != nil {
		return err
	}
	for {
		data, err := c.receive()
		if err != nil {
			return err
		}
		for m := range messages(data) {
			n := m.seq - base
			if m.port != c.port || n >= uint32(end-first) || m.kind != unix.NLMSG_ERROR {
				continue
			}
			if err := kernelError(m); err != nil {
				fail(first+int(n), err)
			}
			if n == uint32(end-first)-1 {
				return nil
			}
		}
	}
}

// Dump sends the one request of b with NLM_F_DUMP and calls each for every message of the answer with its RTM_* kind
// and its payload (fixed part, then attributes), which are valid during the call only. It stops at the first error of
// each. After ErrDumpInterrupted what was read is not one consistent picture.
func (c *Rtnetlink) Dump(b *Batch, each func(kind uint16, payload []byte) error) error {
	if b.Len() != 1 {
		panic("linux.Rtnetlink.Dump: takes exactly one request")
	}
	b.finish()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	seq := c.seq
	flags := binary.NativeEndian.Uint16(b.buf[6:])
	binary.NativeEndian.PutUint16(b.buf[6:], flags|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b.buf[8:], seq)
	binary.NativeEndian.PutUint32(b.buf[12:], c.port)
	if err := c.send(b.buf); err != nil {
		return err
	}
	var result error
	for {
		data, err := c.receive()
		if err != nil {
			return err
		}
		for m := range messages(data) {
			if m.port != c.port || m.seq != seq {
				continue
			}
			if m.flags&unix.NLM_F_DUMP_INTR != 0 && result == nil {
				result = ErrDumpInterrupted
			}
			switch m.kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if err := kernelError(m); err != nil {
					return err
				}
				return result
			}
			if result == nil || result == ErrDumpInterrupted {
				if err := each(m.kind, m.payload); err != nil {
					if err == ErrEnough {
						return err
					}
					result = err
				}
			}
		}
	}
}

func (c *Rtnetlink) send(data []byte) error {
	for {
		err := unix.Sendto(c.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("send %d bytes of route netlink requests: %w", len(data), err)
			}
			return nil
		}
	}
}

// receive reads one datagram. The buffer grows if the datagram is longer.
func (c *Rtnetlink) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_PEEK|unix.MSG_TRUNC)
		if err == nil && n > len(c.buf) {
			c.buf = make([]byte, n)
		}
		if err == nil {
			n, _, err = unix.Recvfrom(c.fd, c.buf, 0)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read route netlink answers: %w", err)
		}
		return c.buf[:n], nil
	}
}

type message struct {
	kind, flags uint16
	seq, port   uint32
	payload     []byte
}

func messages(data []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(data) >= unix.SizeofNlMsghdr {
			n := int(binary.NativeEndian.Uint32(data))
			if n < unix.SizeofNlMsghdr || n > len(data) {
				return
			}
			m := message{kind: binary.NativeEndian.Uint16(data[4:]), flags: binary.NativeEndian.Uint16(data[6:]),
				seq: binary.NativeEndian.Uint32(data[8:]), port: binary.NativeEndian.Uint32(data[12:]),
				payload: data[unix.SizeofNlMsghdr:n]}
			if !yield(m) {
				return
			}
			data = data[min(align(n), len(data)):]
		}
	}
}

// Messages are the netlink messages of datagrams, each as its type and what follows its header.
func Messages(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for m := range messages(data) {
			if !yield(m.kind, m.payload) {
				return
			}
		}
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// Uint32Of is the number in an attribute of four bytes, or zero if it is shorter.
func Uint32Of(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

// Attrs walks over the attributes in data, with their kind (without the nested flag) and value. It ends where the rest
// is malformed.
func Attrs(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(data))
			if n < unix.SizeofRtAttr || n > len(data) {
				return
			}
			kind := binary.NativeEndian.Uint16(data[2:]) & ^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, data[unix.SizeofRtAttr:n]) {
				return
			}
			data = data[min(align(n), len(data)):]
		}
	}
}

// KernelError is a request that the kernel refused.
type KernelError struct {
	Errno   unix.Errno
	Message string // the kernel's own words, often empty
}

func (e *KernelError) Error() string {
	if e.Message == "" {
		return e.Errno.Error()
	}
	return e.Errno.Error() + " (kernel: " + e.Message + ")"
}

// Unwrap lets errors.Is compare with unix.E*.
func (e *KernelError) Unwrap() error { return e.Errno }

// kernelError reads an NLMSG_ERROR (capped) or NLMSG_DONE message; nil when it tells of success.
func kernelError(m message) error {
	if len(m.payload) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(m.payload))
	if code == 0 {
		return nil
	}
	e := &KernelError{Errno: unix.Errno(-code)}
	rest := m.payload[4:]
	if m.kind == unix.NLMSG_ERROR {
		rest = rest[min(unix.SizeofNlMsghdr, len(rest)):]
	}
	if m.flags&unix.NLM_F_ACK_TLVS != 0 {
		for kind, value := range Attrs(rest) {
			if kind == unix.NLMSGERR_ATTR_MSG {
				e.Message = unix.ByteSliceToString(value)
			}
		}
	}
	return e
}
