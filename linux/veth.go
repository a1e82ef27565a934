package linux

import "golang.org/x/sys/unix"

// vethPeer is VETH_INFO_PEER of linux/veth.h.
const vethPeer = 1

// AddVeth requests a pair of veth devices (veth(4)) in the connection's own namespace. They are down.
func (b *Batch) AddVeth(name, peer string, mtu int) int {
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Uint32(unix.IFLA_MTU, uint32(mtu))
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "veth")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Begin(vethPeer)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, peer)
	b.Uint32(unix.IFLA_MTU, uint32(mtu))
	b.End()
	b.End()
	b.End()
	return i
}
