package kerneltime

import (
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
)

// How much the kernel may work for an element. A packet that comes by one of its links is worth some work: so much for
// each packet, and for each of its bytes, is allowed to everybody. All other work was caused by somebody inside, with
// devices that hand packets round and round, or with rules that take a millisecond for a packet.
const (
	perPacket = 40 * time.Microsecond
	perByte   = 2 * time.Nanosecond
	// allowance is how much other work an element may cause, in cores, if it states no `cpu`; and the least that any
	// element may cause.
	allowance, leastAllowance = 0.5, 0.1
	// perOrigin is how often an element may be passed for each packet that began or ended in its network, or came in
	// from elsewhere: once on the way there, and once for an answer. What an element passes on beyond that goes round
	// over several elements' links, and is worth nothing.
	perOrigin = 2
	// margin is the part of what an element may cause that it gets while it is paced.
	margin = 0.8
	// looping: devices that are not ports are the cause if at least this share of the work is on them.
	looping = 0.5
)

// Element is an element for whose packets the kernel works.
type Element struct {
	Path    string  // of its network namespace
	Network string  // whose packets come from each other
	Ports   []int   // the indices, on the node, of its links' ends there
	Inner   []int   // the indices of their other ends inside the element; 0 if one is not known
	Outer   []int   // those of them whose links' other ends are on no element of this node
	CPU     float64 // cores that it states; zero for none
	// Stopped is one that shall do nothing.
	Stopped bool
}

// allowed is how many cores of other work it may cause.
func (e *Element) allowed() float64 {
	switch {
	case e.Stopped:
		return leastAllowance
	case e.CPU == 0:
		return allowance
	}
	return max(e.CPU, leastAllowance)
}

// look is what was seen of an element at one time.
type look struct {
	at      time.Time
	cores   map[int]float64 // nobody's time, by device
	devices []Device
	// origins is how many packets a second began or ended in the element's network. entered is how many have ever come
	// in by its links from elsewhere. If not all of that is known, nobody counts as passing on too much.
	origins float64
	entered uint64
	unknown bool
}

func (l *look) total() (sum float64) {
	for _, c := range l.cores {
		sum += c
	}
	return sum
}

// Excess is an element that causes more work than it may.
type Excess struct {
	Cores   float64  // of work that it has made itself
	Allowed float64  // of it
	Devices []string // the devices, other than ports, that the work is on; none if it is on ports
	Rate    float64  // packets a second on these, or on the ports
	// Round is set if it passes on more than comes into its network. Entered is what comes in, in packets a second.
	Round   bool
	Entered float64
	// Pace is how many packets a second on its ports cost what it may cause.
	Pace int
}

// judge compares two looks, and returns work beyond what the element may cause at both of them.
func judge(e *Element, was, is *look) (Excess, bool) {
	span := is.at.Sub(was.at).Seconds()
	if span <= 0 {
		return Excess{}, false
	}
	type key struct { // a device that nothing was charged to has no index here
		index int
		name  string
	}
	of := func(d *Device) key {
		if d.Index != 0 {
			return key{index: d.Index}
		}
		return key{name: d.Name}
	}
	before := each.By(was.devices, func(d Device) key { return of(&d) })
	grown := func(now, then uint64) float64 {
		if now < then {
			then = 0
		}
		return float64(now-then) / span
	}
	var worth, portRate, received, otherRate float64
	var others []Device
	ports := map[int]bool{}
	for _, d := range is.devices {
		then := before[of(&d)]
		rate := grown(d.Packets, then.Packets)
		if d.Port {
			ports[d.Index] = true
			worth += grown(d.Received, then.Received)*perPacket.Seconds() + grown(d.Bytes, then.Bytes)*perByte.Seconds()
			portRate += rate
			received += grown(d.Received, then.Received)
			continue
		}
		if otherRate += rate; is.cores[d.Index] > 0 || rate >= 1 {
			others = append(others, d)
		}
	}
	x := Excess{Allowed: e.allowed(), Rate: portRate}
	x.Entered = max(was.origins, is.origins) + grown(is.entered, was.entered)
	if most := perOrigin * x.Entered; !is.unknown && received > most && portRate >= 1.5*received {
		x.Round = true
		worth *= most / received
	}
	x.Cores = min(was.total(), is.total()) - worth
	if x.Cores <= x.Allowed {
		return Excess{}, false
	}
	elsewhere := 0.0
	for index, c := range is.cores {
		if !ports[index] {
			elsewhere += c
		}
	}
	if elsewhere >= looping*is.total() && len(others) > 0 {
		x.Rate, x.Round = otherRate, false
		x.Devices = append(x.Devices, each.Of(others, func(d Device) string { return d.Name })...)
		slices.Sort(x.Devices)
	} else {
		x.Pace = int(margin * portRate * x.Allowed / x.Cores)
	}
	return x, true
}
