package linux

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolSetGRO is ETHTOOL_SGRO of linux/ethtool.h.
const ethtoolSetGRO = 0x2c

// SetGRO switches generic receive offload of a device on or off (ethtool(8), by ioctl, which any socket of the device's
// namespace takes). With it a veth receives by NAPI, in rounds, instead of frame by frame.
func (c *Rtnetlink) SetGRO(device string, on bool) error {
	value := struct{ command, data uint32 }{command: ethtoolSetGRO}
	if on {
		value.data = 1
	}
	request := struct { // struct ifreq of linux/if.h
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	if copy(request.name[:unix.IFNAMSIZ-1], device) != len(device) {
		return fmt.Errorf("switch GRO of %s: no device has so long a name", device)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("switch GRO of %s: %w", device, errno)
	}
	return nil
}
