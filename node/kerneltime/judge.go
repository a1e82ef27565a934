package kerneltime

import (
	"slices"
	"time"
)

// What the kernel's work for an element may be. A packet that comes by one of its links is worth work: so much for
// each, and for each byte of it, is nobody's concern. All other work somebody inside has made: by devices that hand
// packets round and round, by rules that take a packet a millisecond.
const (
	perPacket = 40 * time.Microsecond
	perByte   = 2 * time.Nanosecond
	// allowance is what may be made beyond that, in cores, by an element that states no `cpu`, and the least one.
	allowance, leastAllowance = 0.5, 0.1
	// perOrigin is how often an element may be passed by what has begun or ended in its network, or come in from
	// elsewhere: there, and an answer back. What an element passes on beyond that goes round over several elements'
	// links, and is worth nothing.
	perOrigin = 2
	// margin is which part of what an element may make it gets while it is paced.
	margin = 0.8
	// looping is which share of the work must be on devices that are not ports for these to be the cause.
	looping = 0.5
)

// Element is one that packets are worked for.
type Element struct {
	Path    string  // of its network namespace
	Network string  // whose packets come from each other
	Ports   []int   // the indices, on the node, of the ends of its links there
	Inner   []int   // those of their other ends, inside it; 0 for one that is not known
	Outer   []int   // those of them whose links' other ends are on no element of this node
	CPU     float64 // cores that it states; zero for none
	// Stopped is one that shall do nothing.
	Stopped bool
}

// allowed is how many cores of such work it may make.
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
	// origins are the packets a second that began or ended in the element's network; entered those, since ever, that
	// came in by its links from elsewhere. Where all is not known, nobody passes on too much.
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

// Excess is an element that makes more work than it may.
type Excess struct {
	Cores   float64  // of work that it has made itself
	Allowed float64  // of it
	Devices []string // that are not ports and on which the work is; none where it is on ports
	Rate    float64  // packets a second on these, or on the ports
	// Round is set where it passes on more than comes into its network, which is Entered a second.
	Round   bool
	Entered float64
	// Pace is how many packets a second on its ports cost what it may make.
	Pace int
}

// judge compares two looks, and tells of work that is beyond what the element may make at both of them.
func judge(e *Element, was, is *look) (Excess, bool) {
	span := is.at.Sub(was.at).Seconds()
	if span <= 0 {
		return Excess{}, false
	}
	type key struct { // what nothing was charged to has no index here
		index int
		name  string
	}
	of := func(d *Device) key {
		if d.Index != 0 {
			return key{index: d.Index}
		}
		return key{name: d.Name}
	}
	before := map[key]Device{}
	for _, d := range was.devices {
		before[of(&d)] = d
	}
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
		for _, d := range others {
			x.Devices = append(x.Devices, d.Name)
		}
		slices.Sort(x.Devices)
	} else {
		x.Pace = int(margin * portRate * x.Allowed / x.Cores)
	}
	return x, true
}
