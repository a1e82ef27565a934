package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Of linux/lwtunnel.h and linux/mpls_iptunnel.h.
const (
	EncapMPLS          = 1 // LWTUNNEL_ENCAP_MPLS, of RTA_ENCAP_TYPE
	EncapMPLSLabels    = 1 // MPLS_IPTUNNEL_DST, in RTA_ENCAP
	labelShift         = 12
	bottomOfLabelStack = 1 << 8
)

// LabelStack are labels as routes have them: label stack entries of RFC 3032, the outermost first.
func LabelStack(labels []int) []byte {
	var b []byte
	for i, l := range labels {
		entry := uint32(l) << labelShift
		if i == len(labels)-1 {
			entry |= bottomOfLabelStack
		}
		b = binary.BigEndian.AppendUint32(b, entry)
	}
	return b
}

// LabelsOf reads such labels.
func LabelsOf(stack []byte) (labels []int) {
	for ; len(stack) >= 4; stack = stack[4:] {
		labels = append(labels, int(binary.BigEndian.Uint32(stack)>>labelShift))
	}
	return labels
}

// Labelled appends what has packets of a route get labels.
func (b *Batch) Labelled(labels []int) {
	b.Uint16(unix.RTA_ENCAP_TYPE, EncapMPLS)
	b.Begin(unix.RTA_ENCAP)
	b.Attr(EncapMPLSLabels, LabelStack(labels))
	b.End()
}

// ProbeMPLS says why this kernel switches no labels, in words that begin with "its kernel". It returns nil if it does.
// That loads the modules, which nothing else does: a route with labels asks for mpls_iptunnel, which needs mpls_router.
func ProbeMPLS() error {
	return inScratch(func(c *Rtnetlink) error {
		index, err := numberOf(c, "lo")
		if err != nil {
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
		}
		var b Batch
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(index, unix.IFF_UP, unix.IFF_UP)
		b.Request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE)
		b.Raw([]byte{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_LINK,
			unix.RTN_UNICAST, 0, 0, 0, 0})
		b.Attr(unix.RTA_DST, []byte{192, 0, 2, 1})
		b.Uint32(unix.RTA_OIF, uint32(index))
		b.Labelled([]int{16})
		errs := c.Do(&b)
		_, missing := os.Stat("/proc/sys/net/mpls/platform_labels")
		switch {
		case errs == nil && missing == nil:
			return nil
		case errs == nil, errors.Is(errs[1], unix.EOPNOTSUPP), errors.Is(errs[1], unix.EINVAL):
			return fmt.Errorf("its kernel %s switches no labels (CONFIG_MPLS_ROUTING and CONFIG_MPLS_IPTUNNEL, the "+
				"modules mpls_router and mpls_iptunnel)", release())
		}
		return fmt.Errorf("its kernel %s refuses a route with labels: %w", release(), errors.Join(errs...))
	})
}
