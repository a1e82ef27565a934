package discover

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// port listens on one device and sends by it. Its goroutine sleeps until a frame of LLDP comes.
type port struct {
	index int
	up    bool // as of the last look
	f     *os.File
	over  atomic.Bool // nobody reads any more
}

// received is a frame that came by a device.
type received struct {
	device string
	frame  []byte
}

// What is taken of one device: burst frames at once and perSecond more each second. Beyond that the kernel drops what
// its small buffer does not hold.
const (
	burst     = 32
	perSecond = 8
	portRoom  = 64 << 10
)

// openPort opens a packet socket that is bound to one device and takes no other frames than those of LLDP.
func openPort(device string, index int, to chan<- received) (*port, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, portRoom)
	if err == nil {
		m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
		copy(m.Address[:], group)
		err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m)
	}
	if err == nil {
		// Until it is bound it gets nothing, since its protocol is none. Its own frames do not come back.
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherType>>8 | etherType&0xff<<8, Ifindex: index})
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // the first error counts
		return nil, err
	}
	p := &port{index: index, f: os.NewFile(uintptr(fd), device)}
	go p.read(device, to)
	return p, nil
}

func (p *port) close() { p.f.Close() } //nolint:errcheck // nothing is left to be written

// ended tells whether the device has gone from under the socket.
func (p *port) ended() bool { return p.over.Load() }

// read hands on what comes until the port is closed.
func (p *port) read(device string, to chan<- received) {
	defer p.over.Store(true)
	buf := make([]byte, maxFrame)
	left, at := float64(burst), time.Now()
	for {
		n, err := p.f.Read(buf)
		if lacksCarrier(err) {
			continue // the device was switched off; that is told once
		}
		if err != nil {
			return
		}
		now := time.Now()
		left = min(burst, left+perSecond*now.Sub(at).Seconds()) - 1
		if at = now; left < 0 {
			time.Sleep(time.Second)
		}
		select {
		case to <- received{device, append([]byte(nil), buf[:n]...)}:
		case <-time.After(time.Second): // the loop is busy, or has ended
		}
	}
}

func (p *port) send(frame []byte) error {
	_, err := p.f.Write(frame)
	return err
}

// lacksCarrier tells of errors that a device has which is off.
func lacksCarrier(err error) bool {
	return errors.Is(err, unix.ENETDOWN)
}
