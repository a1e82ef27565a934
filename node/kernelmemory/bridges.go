package kernelmemory

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Of linux/rtnetlink.h, if_bridge.h and if_link.h.
const (
	rtmDelMDB = 85
	rtmGetMDB = 86

	portMsg    = 8  // sizeof(struct br_port_msg)
	groupEntry = 28 // sizeof(struct br_mdb_entry)

	mdbGroups     = 1 // MDBA_MDB
	mdbGroup      = 1 // MDBA_MDB_ENTRY
	mdbMember     = 1 // MDBA_MDB_ENTRY_INFO
	mdbSources    = 2 // MDBA_MDB_EATTR_SRC_LIST
	mdbSource     = 4 // MDBA_MDB_EATTR_SOURCE
	mdbSetEntry   = 1 // MDBA_SET_ENTRY
	mdbSetDetails = 2 // MDBA_SET_ENTRY_ATTRS
	mdbSetSource  = 1 // MDBE_ATTR_SOURCE

	bridgeFiltering = 7  // IFLA_BR_VLAN_FILTERING
	bridgeSnooping  = 23 // IFLA_BR_MCAST_SNOOPING
)

// bridgeRequest is about a bridge.
func bridgeRequest(b *linux.Batch, kind uint16, index []byte) {
	b.Request(kind, 0)
	m := make([]byte, portMsg)
	m[0] = unix.AF_BRIDGE
	copy(m[4:], index)
	b.Raw(m)
}

// groupsOf calls each for every member of every multicast group of every bridge, and since Linux 6.4 of every VXLAN
// device.
func (s *space) groupsOf(each func(of *device, index, member []byte) error) error {
	links, err := s.devices()
	if err != nil {
		return err
	}
	devices := map[uint32]*device{}
	for i := range links {
		if d := &links[i]; d.bridge || d.vxlan {
			devices[uint32(d.index)] = d
		}
	}
	if len(devices) == 0 {
		return nil
	}
	var b linux.Batch
	bridgeRequest(&b, rtmGetMDB, nil)
	return s.dump(&b, func(p []byte) error {
		if len(p) < portMsg {
			return nil
		}
		of := devices[binary.NativeEndian.Uint32(p[4:])]
		if of == nil {
			return nil
		}
		for kind, groups := range linux.Attrs(p[portMsg:]) {
			if kind != mdbGroups {
				continue
			}
			for _, group := range linux.Attrs(groups) {
				for kind, member := range linux.Attrs(group) {
					if kind != mdbMember || len(member) < groupEntry {
						continue
					}
					if err := each(of, p[4:8], member); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// readBridgeGroups reads the multicast groups that bridges have learnt, or that somebody has given them, with the hosts
// that are in them.
func readBridgeGroups(s *space, _ int, each visit) error {
	links, err := s.devices()
	if err != nil {
		return err
	}
	for _, d := range links {
		if d.hosts > 0 {
			if err := each(d.hosts*hostOfGroupBytes, nil); err != nil {
				return err
			}
		}
	}
	return s.groupsOf(func(of *device, index, member []byte) error {
		if !of.bridge {
			return nil
		}
		return eachMember(index, member, each)
	})
}

// readTunnelGroups reads the groups of VXLAN devices. Such a device goes with its groups: before Linux 6.7 they cannot
// be removed at once, and a single one only by all that is known of it.
func readTunnelGroups(s *space, _ int, each visit) error {
	gone := map[int]bool{}
	return s.groupsOf(func(of *device, _, _ []byte) error {
		if !of.vxlan {
			return nil
		}
		return each(memberOfGroupBytes, func(b *linux.Batch) {
			if !gone[of.index] {
				b.Request(unix.RTM_DELLINK, 0)
				b.Link(of.index, 0, 0)
			}
			gone[of.index] = true
		})
	})
}

// eachMember is about a port, or the bridge itself, that is in a group.
func eachMember(bridge, member []byte, each visit) error {
	size, source := int64(memberOfGroupBytes), []byte(nil)
	for kind, v := range linux.Attrs(member[groupEntry:]) {
		switch kind {
		case mdbSources:
			for range linux.Attrs(v) {
				size += sourceOfGroupBytes
			}
		case mdbSource:
			source = v
		}
	}
	return each(size, func(b *linux.Batch) {
		bridgeRequest(b, rtmDelMDB, bridge)
		b.Attr(mdbSetEntry, member[:groupEntry])
		if source != nil {
			b.Begin(mdbSetDetails)
			b.Attr(mdbSetSource, source)
			b.End()
		}
	})
}

// wakeBridges sets the bridges up that have groups, and has them look for groups: otherwise the kernel refuses to
// remove any. A bridge that filters by VLAN does not find those it got before it did, so it stops that until after is
// called. Nobody takes the rest back: who has so many groups gets a bridge that works.
func wakeBridges(s *space) (after func() error, err error) {
	indices := map[uint32]bool{}
	err = s.groupsOf(func(of *device, bridge, _ []byte) error {
		if of.bridge {
			indices[binary.NativeEndian.Uint32(bridge)] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	links, err := s.links()
	if err != nil {
		return nil, err
	}
	var b linux.Batch
	var filtering []int
	for _, d := range links {
		if !indices[uint32(d.index)] {
			continue
		}
		changeBridge(&b, d.index, unix.IFF_UP, bridgeSnooping, 1)
		if d.filters {
			changeBridge(&b, d.index, 0, bridgeFiltering, 0)
			filtering = append(filtering, d.index)
		}
	}
	return func() error {
		var b linux.Batch
		for _, index := range filtering {
			changeBridge(&b, index, 0, bridgeFiltering, 1)
		}
		return s.doAll(&b)
	}, s.doAll(&b)
}

func changeBridge(b *linux.Batch, index int, up uint32, option uint16, value uint8) {
	b.Request(unix.RTM_NEWLINK, 0)
	b.Link(index, up, up)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Uint8(option, value)
	b.End()
	b.End()
}

// doAll tells of an error, unless a device is gone.
func (s *space) doAll(b *linux.Batch) (err error) {
	for _, failed := range s.c.Do(b) {
		if failed != nil && !errors.Is(failed, unix.ENODEV) {
			err = failed
		}
	}
	return err
}

// filtersByVLAN decides by a bridge's IFLA_LINKINFO.
func filtersByVLAN(info []byte) bool {
	for kind, v := range linux.Attrs(info) {
		if kind != unix.IFLA_INFO_DATA {
			continue
		}
		for kind, v := range linux.Attrs(v) {
			if kind == bridgeFiltering && len(v) == 1 {
				return v[0] != 0
			}
		}
	}
	return false
}
