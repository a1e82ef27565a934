package sockets

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// netfilterHook sees each message to netfilter.
var netfilterHook = hook{load: loadNetfilter, pin: "netfilter", asModule: netfilterProgSends,
	before: netfilterProgSendsBefore, limits: netfilterMapLimits, seen: netfilterMapMessages, ask: askNetfilter}

// askNetfilter sends netfilter a message that asks for nothing.
func askNetfilter() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	nothing := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(nothing, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint16(nothing[4:], unix.NLMSG_NOOP)
	return unix.Sendto(fd, nothing, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}
