package linux

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const vrfTable = 1 // IFLA_VRF_TABLE of linux/if_link.h

// Of linux/fib_rules.h.
const (
	fraPriority  = 6
	fraTable     = 15
	fraL3mdev    = 19
	fraProtocol  = 21
	frActToTable = 1
	sizeOfRule   = 12 // struct fib_rule_hdr
)

// AddVRF requests a VRF with a table, a device by whose name it is known. It is down.
func (b *Batch) AddVRF(name string, table, group uint32) int {
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.VRF(name, table, group)
	return i
}

// VRF continues a request for a new device with what makes it a VRF.
func (b *Batch) VRF(name string, table, group uint32) {
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Uint32(unix.IFLA_GROUP, group)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "vrf")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Uint32(vrfTable, table)
	b.End()
	b.End()
}

// TableOfVRF reads a device's IFLA_LINKINFO: the table of a VRF, or 0.
func TableOfVRF(info []byte) uint32 { return Uint32Of(dataOf(info, "vrf", vrfTable)) }

// Rule is a rule by which the kernel chooses tables.
type Rule struct {
	Family   uint8
	Priority uint32
	Table    uint32
	VRFs     bool // the table is that of the VRF that a packet is in, whatever Table says
	Protocol uint8
}

// Rule continues a request about a rule.
func (b *Batch) Rule(r Rule) {
	head := make([]byte, sizeOfRule)
	head[0], head[4], head[7] = r.Family, uint8(r.Table), frActToTable
	b.Raw(head)
	b.Uint32(fraPriority, r.Priority)
	b.Uint8(fraProtocol, r.Protocol)
	if r.VRFs {
		b.Uint8(fraL3mdev, 1)
	} else {
		b.Uint32(fraTable, r.Table)
	}
}

// Rules reads the rules of an address family that choose a table and ask for nothing but the VRF: others are left out.
func Rules(c *Rtnetlink, family uint8) ([]Rule, error) {
	var b Batch
	b.Request(unix.RTM_GETRULE, 0)
	head := make([]byte, sizeOfRule)
	head[0] = family
	b.Raw(head)
	var all []Rule
	err := c.Dump(&b, func(kind uint16, p []byte) error {
		if kind != unix.RTM_NEWRULE || len(p) < sizeOfRule || p[0] != family || p[7] != frActToTable ||
			p[1] != 0 || p[2] != 0 || p[3] != 0 {
			return nil
		}
		r := Rule{Family: family, Table: uint32(p[4])}
		plain := true
		for kind, v := range Attrs(p[sizeOfRule:]) {
			switch kind {
			case fraPriority:
				r.Priority = Uint32Of(v)
			case fraTable:
				r.Table = Uint32Of(v)
			case fraL3mdev:
				r.VRFs = len(v) > 0 && v[0] == 1
			case fraProtocol:
				if len(v) > 0 {
					r.Protocol = v[0]
				}
			case fraSuppress:
			default:
				plain = false
			}
		}
		if plain {
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

const fraSuppress = 14 // FRA_SUPPRESS_PREFIXLEN, which every rule has

// ProbeVRF says why this kernel has no VRFs, in words that begin with "its kernel". It returns nil if it has. It loads
// the module.
func ProbeVRF() error {
	return inScratch(func(c *Rtnetlink) error {
		var b Batch
		b.AddVRF("a", 1001, 0)
		if err := refused(c.Do(&b), "VRFs", "CONFIG_NET_VRF, the module vrf"); err != nil {
			return err
		}
		rules, err := Rules(c, unix.AF_INET)
		if err != nil {
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
		}
		for _, r := range rules {
			if r.VRFs {
				return nil
			}
		}
		return fmt.Errorf("its kernel %s has VRFs whose tables it does not look into", release())
	})
}
