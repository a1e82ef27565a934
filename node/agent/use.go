package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// devices reads the underlay's devices.
type devices struct {
	h *netlink.Handle
	c *linux.Rtnetlink
}

func openDevices() (*devices, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	c, err := linux.DialRtnetlink()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	return &devices{h, c}, nil
}

func (d *devices) close() {
	d.h.Close()
	d.c.Close() //nolint:errcheck // nothing was written
}

// towards returns the device by which packets to an address leave.
func (d *devices) towards(a netip.Addr) (netlink.Link, error) {
	routes, err := d.h.RouteGet(a.AsSlice())
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return nil, fmt.Errorf("find the way to %s: %w", a, err)
	}
	link, err := d.h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return nil, fmt.Errorf("read the device that leads to %s: %w", a, err)
	}
	return link, nil
}

// use computes how much of a link is in use.
type use struct {
	index int // the device that bytes are of
	bytes uint64
	at    time.Time
}

// read enters how much the device sent since the last call, and how much it could have sent.
func (u *use) read(d *devices, l *neighbour, now time.Time) error {
	link, err := d.towards(l.Address)
	if err != nil {
		l.measure.Device, l.measure.Used, l.measure.Available, u.index = "", 0, 0, 0
		return err
	}
	at := link.Attrs()
	m := &l.measure
	m.Device = at.Name
	m.Capacity = capacity(l.Bandwidth, queueRate(at.Index), d.speed(link))
	if at.Statistics != nil {
		sent := at.Statistics.TxBytes
		if span := now.Sub(u.at); at.Index == u.index && sent >= u.bytes && span > 0 {
			m.Used = model.Bandwidth(float64(sent-u.bytes) * 8 / span.Seconds())
		}
		u.index, u.bytes, u.at = at.Index, sent, now
	}
	m.Available = m.Capacity - min(m.Used, m.Capacity)
	return nil
}

// capacity is the least of what is known.
func capacity(known ...model.Bandwidth) (least model.Bandwidth) {
	for _, b := range known {
		if b > 0 && (least == 0 || b < least) {
			least = b
		}
	}
	return least
}

// speed is what a device says of itself. It is zero when it says nothing, and for devices that are no hardware: the
// speed of a veth is made up.
func (d *devices) speed(link netlink.Link) model.Bandwidth {
	if link.Type() != "device" {
		return 0
	}
	return model.Bandwidth(d.c.Speed(link.Attrs().Name)) * 1e6
}

// queueRate is the rate of a token bucket filter (tc-tbf(8)) that is a device's root queue; zero when it has another.
func queueRate(index int) model.Bandwidth {
	// The kernel answers this request with an echoed notification, and may send nothing for some queues. So the
	// acknowledgement is what ends the answer.
	request := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ECHO|unix.NLM_F_ACK)
	request.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil || len(messages) != 1 || len(messages[0]) < nl.SizeofTcMsg {
		return 0
	}
	var kind string
	var rate uint64 // bytes a second
	for attr, v := range linux.Attrs(messages[0][nl.SizeofTcMsg:]) {
		switch attr {
		case nl.TCA_KIND:
			kind = unix.ByteSliceToString(v)
		case nl.TCA_OPTIONS:
			for option, w := range linux.Attrs(v) {
				switch {
				case option == nl.TCA_TBF_PARMS && len(w) >= 12 && rate == 0:
					rate = uint64(binary.NativeEndian.Uint32(w[8:])) // struct tc_tbf_qopt begins with a tc_ratespec
				case option == nl.TCA_TBF_RATE64 && len(w) >= 8:
					rate = binary.NativeEndian.Uint64(w)
				}
			}
		}
	}
	if kind != "tbf" {
		return 0
	}
	return model.Bandwidth(rate * 8)
}
