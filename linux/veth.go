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

// AddVethInto requests a pair of veth devices, with the peer in the network namespace that fd stands for. If mac is
// nil, the kernel chooses the peer's MAC address; if segments is zero, it chooses how many segments one of the peer's
// packets may have (IFLA_GSO_MAX_SEGS). Both devices are down, and name has no ARP. Each has one queue. By itself the
// kernel would make as many queues as there are processors and use one, after waiting for an RCU grace period for each
// end to say so (netif_set_real_num_tx_queues). That is a third of the time that a pair takes.
func (b *Batch) AddVethInto(name string, fd int, peer string, mac []byte, mtu int, segments uint32) int {
	queues := func() {
		b.Uint32(unix.IFLA_NUM_TX_QUEUES, 1)
		b.Uint32(unix.IFLA_NUM_RX_QUEUES, 1)
	}
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, unix.IFF_NOARP, unix.IFF_NOARP)
	b.String(unix.IFLA_IFNAME, name)
	b.Uint32(unix.IFLA_MTU, uint32(mtu))
	queues()
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "veth")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Begin(vethPeer)
	b.Link(0, 0, 0) // the kernel cannot take it up yet
	b.String(unix.IFLA_IFNAME, peer)
	b.Uint32(unix.IFLA_MTU, uint32(mtu))
	if segments != 0 {
		b.Uint32(unix.IFLA_GSO_MAX_SEGS, segments)
	}
	queues()
	if mac != nil {
		b.Attr(unix.IFLA_ADDRESS, mac)
	}
	b.Uint32(unix.IFLA_NET_NS_FD, uint32(fd))
	b.End()
	b.End()
	b.End()
	return i
}
