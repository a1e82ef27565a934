package bridge

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// Attributes of a bridge's port (linux/if_link.h) that golang.org/x/sys/unix does not have.
const (
	iflaBrportState          = 1  // IFLA_BRPORT_STATE
	iflaBrportCost           = 3  // IFLA_BRPORT_COST
	iflaBrportBridgeID       = 14 // IFLA_BRPORT_BRIDGE_ID
	iflaBrportDesignatedPort = 15 // IFLA_BRPORT_DESIGNATED_PORT
	iflaBrportID             = 17 // IFLA_BRPORT_ID
	iflaBrportNo             = 18 // IFLA_BRPORT_NO
)

// treeStates are a port's states, by the kernel's numbers (linux/if_bridge.h, BR_STATE_*).
var treeStates = []model.TreePortState{model.TreeDisabled, model.TreeListening, model.TreeLearning,
	model.TreeForwarding, model.TreeBlocking}

// bridgeID is a struct ifla_bridge_id: the priority in the network's order, and the address.
type bridgeID [8]byte

func (b bridgeID) model() model.BridgeID {
	return model.BridgeID{Priority: binary.BigEndian.Uint16(b[:]), MAC: net.HardwareAddr(b[2:]).String()}
}

// treeLook is what is read of a bridge's spanning tree.
type treeLook struct {
	on        bool
	own, root bridgeID
	rootPort  uint16
	cost      uint32
	ports     map[string]portLook
}

// portLook is what is read of one of its ports.
type portLook struct {
	state              uint8
	cost               uint32
	id, no, designated uint16
	bridge             bridgeID // the designated bridge of what is behind the port
}

// Tree tells what a switch's bridge knows of its spanning tree.
func (p *Plane) Tree(id model.ID) (model.Tree, error) {
	p.mu.Lock()
	was, there := p.done[id]
	p.mu.Unlock()
	if _, on := was.job.Element.STP.Priority(); !there || !on {
		return model.Tree{}, forward.ErrNotForwarded
	}
	look := treeLook{ports: map[string]portLook{}}
	if err := p.enter(id, look.read); err != nil {
		return model.Tree{}, err
	}
	if !look.on {
		return model.Tree{}, forward.ErrNotForwarded
	}
	t := model.Tree{Bridge: look.own.model(), Root: look.root.model(), Cost: look.cost}
	for i := range was.job.Element.Interfaces {
		ifc := &was.job.Element.Interfaces[i]
		if port, ok := look.ports[ifc.LinuxName()]; ok {
			t.Ports = append(t.Ports, look.port(ifc.Name, port))
		}
	}
	return t, nil
}

// port says what a port is. The standard's alternate and backup ports are alternate here (IEEE 802.1D-2004, 17.3.1).
func (l *treeLook) port(name string, p portLook) model.TreePort {
	t := model.TreePort{Interface: name, Role: model.TreeAlternate, State: treeStates[0], Cost: p.cost}
	if int(p.state) < len(treeStates) {
		t.State = treeStates[p.state]
	}
	switch {
	case t.State == model.TreeDisabled:
		t.Role = model.TreeNone
	case p.no == l.rootPort:
		t.Role = model.TreeRoot
	case p.bridge == l.own && p.designated == p.id:
		t.Role = model.TreeDesignated
	}
	return t
}

// read reads the bridge of the namespace that it runs in.
func (l *treeLook) read() error {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	return dumpLinks(c, func() { *l = treeLook{ports: map[string]portLook{}} }, func(p []byte) {
		name := ""
		var info []byte
		for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
			switch kind {
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(v)
			case unix.IFLA_LINKINFO:
				info = v
			}
		}
		for kind, data := range linux.Attrs(info) {
			switch {
			case kind == unix.IFLA_INFO_DATA && name == device:
				l.bridge(data)
			case kind == unix.IFLA_INFO_SLAVE_DATA:
				l.ports[name] = parsePort(data)
			}
		}
	})
}

func (l *treeLook) bridge(data []byte) {
	for k, v := range linux.Attrs(data) {
		switch {
		case k == iflaBrSTPState && len(v) >= 4:
			l.on = binary.NativeEndian.Uint32(v) != 0
		case k == iflaBrRootID && len(v) >= 8:
			l.root = bridgeID(v)
		case k == iflaBrBridgeID && len(v) >= 8:
			l.own = bridgeID(v)
		case k == iflaBrRootPort && len(v) >= 2:
			l.rootPort = binary.NativeEndian.Uint16(v)
		case k == iflaBrRootCost && len(v) >= 4:
			l.cost = binary.NativeEndian.Uint32(v)
		}
	}
}

func parsePort(data []byte) (p portLook) {
	for k, v := range linux.Attrs(data) {
		switch {
		case k == iflaBrportState && len(v) >= 1:
			p.state = v[0]
		case k == iflaBrportCost && len(v) >= 4:
			p.cost = binary.NativeEndian.Uint32(v)
		case k == iflaBrportBridgeID && len(v) >= 8:
			p.bridge = bridgeID(v)
		case k == iflaBrportDesignatedPort && len(v) >= 2:
			p.designated = binary.NativeEndian.Uint16(v)
		case k == iflaBrportID && len(v) >= 2:
			p.id = binary.NativeEndian.Uint16(v)
		case k == iflaBrportNo && len(v) >= 2:
			p.no = binary.NativeEndian.Uint16(v)
		}
	}
	return p
}
