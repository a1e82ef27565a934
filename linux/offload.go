package linux

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offloads are what a device does for the network stack, as far as it matters to XDP programs.
type Offloads struct {
	Checksum bool // packets are sent before their checksum is filled in (ethtool's tx)
	GRO      bool // with it a veth receives in rounds (NAPI) instead of frame by frame
	TxVLAN   bool // the tag of a sent frame is kept beside the frame and not in it
	RxVLAN   bool // so does that of what was received
}

// Commands of linux/ethtool.h that read. The one that writes has the next number.
const (
	ethtoolGetChecksum = 0x16 // ETHTOOL_GTXCSUM
	ethtoolGetFlags    = 0x25 // ETHTOOL_GFLAGS
	ethtoolGetGRO      = 0x2b // ETHTOOL_GGRO

	flagTxVLAN = 1 << 7 // ETH_FLAG_TXVLAN
	flagRxVLAN = 1 << 8 // ETH_FLAG_RXVLAN
)

// ethtool is an ioctl of ethtool(8) with one number, which any socket of the device's namespace takes.
func (c *Rtnetlink) ethtool(device string, command, data uint32) (uint32, error) {
	value := struct{ command, data uint32 }{command, data}
	err := c.ethtoolInto(device, unsafe.Pointer(&value))
	return value.data, err
}

// ethtoolInto is any ioctl of ethtool(8), which reads value and writes into it.
func (c *Rtnetlink) ethtoolInto(device string, value unsafe.Pointer) error {
	request := struct { // struct ifreq of linux/if.h
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: value}
	if copy(request.name[:unix.IFNAMSIZ-1], device) != len(device) {
		return fmt.Errorf("no device has so long a name")
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// Offloads reads a device's.
func (c *Rtnetlink) Offloads(device string) (o Offloads, err error) {
	for command, read := range map[uint32]func(uint32){
		ethtoolGetChecksum: func(v uint32) { o.Checksum = v != 0 },
		ethtoolGetGRO:      func(v uint32) { o.GRO = v != 0 },
		ethtoolGetFlags:    func(v uint32) { o.TxVLAN, o.RxVLAN = v&flagTxVLAN != 0, v&flagRxVLAN != 0 },
	} {
		v, err := c.ethtool(device, command, 0)
		if err != nil {
			return o, fmt.Errorf("read the offloads of %s: %w", device, err)
		}
		read(v)
	}
	return o, nil
}

// ChangeOffloads gives a device the offloads that change makes of those that it has. If change fails, nothing is done.
func (c *Rtnetlink) ChangeOffloads(device string, change func(*Offloads) error) error {
	is, err := c.Offloads(device)
	if err != nil {
		return err
	}
	to := is
	if err := change(&to); err != nil || to == is {
		return err
	}
	set := func(what string, command, v uint32) {
		if _, e := c.ethtool(device, command+1, v); e != nil && err == nil {
			err = fmt.Errorf("switch %s of %s: %w", what, device, e)
		}
	}
	number := func(on bool) uint32 {
		if on {
			return 1
		}
		return 0
	}
	if is.Checksum != to.Checksum {
		set("tx checksumming", ethtoolGetChecksum, number(to.Checksum))
	}
	if is.GRO != to.GRO {
		set("GRO", ethtoolGetGRO, number(to.GRO))
	}
	if is.TxVLAN != to.TxVLAN || is.RxVLAN != to.RxVLAN {
		flags, e := c.ethtool(device, ethtoolGetFlags, 0)
		if e != nil {
			return fmt.Errorf("read the offloads of %s: %w", device, e)
		}
		flags = flags&^(flagTxVLAN|flagRxVLAN) | number(to.TxVLAN)*flagTxVLAN | number(to.RxVLAN)*flagRxVLAN
		set("VLAN tags", ethtoolGetFlags, flags)
	}
	return err
}

// SetGRO switches generic receive offload of a device on or off.
func (c *Rtnetlink) SetGRO(device string, on bool) error {
	v := uint32(0)
	if on {
		v = 1
	}
	if _, err := c.ethtool(device, ethtoolGetGRO+1, v); err != nil {
		return fmt.Errorf("switch GRO of %s: %w", device, err)
	}
	return nil
}

// Speed is what a device says of its own, in Mbit/s. It is zero when it says nothing (ethtool(8), ETHTOOL_GSET).
func (c *Rtnetlink) Speed(device string) uint32 {
	const (
		get     = 0x1
		unknown = 0xffff // in each half, SPEED_UNKNOWN
	)
	var value struct { // struct ethtool_cmd of linux/ethtool.h
		command, supported, advertising uint32
		low                             uint16
		_                               [6]uint8
		_                               [2]uint32
		high                            uint16
		_                               [2]uint8
		_                               [3]uint32
	}
	value.command = get
	if c.ethtoolInto(device, unsafe.Pointer(&value)) != nil || value.low == unknown {
		return 0
	}
	return uint32(value.high)<<16 | uint32(value.low)
}
