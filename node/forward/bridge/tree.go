package bridge

import (
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// tree is what a bridge does as a part of a spanning tree (IEEE 802.1D). In network namespaces the kernel itself runs
// the protocol. Times are in hundredths of a second (USER_HZ), as the kernel takes them.
type tree struct {
	on                bool
	priority          uint16
	delay, hello, age uint32
}

// treeOf is what a switch's bridge shall do.
func treeOf(s model.STP) (t tree) {
	if t.priority, t.on = s.Priority(); !t.on {
		return tree{}
	}
	ticks := func(d model.Duration) uint32 { return uint32(time.Duration(d) / (10 * time.Millisecond)) }
	t.delay, t.hello, t.age = ticks(model.STPForwardDelay), ticks(model.STPHello), ticks(model.STPMaxAge)
	return t
}

// attributes appends it. The kernel takes times outside of the standard's bounds only while the protocol is off.
func (t tree) attributes(b *linux.Batch) {
	if !t.on {
		b.Uint32(iflaBrSTPState, 0)
		return
	}
	b.Uint32(iflaBrForwardDelay, t.delay)
	b.Uint32(iflaBrHelloTime, t.hello)
	b.Uint32(iflaBrMaxAge, t.age)
	b.Uint32(iflaBrSTPState, 1)
	b.Uint16(iflaBrPriority, t.priority)
}
