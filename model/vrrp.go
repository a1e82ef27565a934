package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VRRP is a virtual router of a switch's segment (RFC 5798): an address that the segment's hosts have as their gateway,
// and that one of several routers answers for, the master. Another one takes its place when it is not heard any more.
type VRRP struct {
	// Address is the virtual router's; the segment's last one where it is not said.
	Address netip.Addr `json:"address,omitzero"`
	// Priority says which routers take part, the highest being the master; all of the segment's where it says nothing.
	Priority map[string]int `json:"priority,omitempty"`
	// Preempt is whether a router with a higher priority becomes the master when it comes back; it does when empty.
	Preempt YesNo `json:"preempt,omitempty"`
	VRRPKeys
}

// String is what is said of it, for people.
func (v VRRP) String() string {
	var words []string
	if v.ID != 0 {
		words = append(words, "number "+strconv.Itoa(v.ID))
	}
	if v.Address.IsValid() {
		words = append(words, v.Address.String())
	}
	for _, name := range slices.Sorted(maps.Keys(v.Priority)) {
		words = append(words, fmt.Sprintf("%s %d", name, v.Priority[name]))
	}
	if v.Interval != 0 {
		words = append(words, "every "+v.Interval.String())
	}
	if v.Preempt != "" {
		words = append(words, "preempt "+string(v.Preempt))
	}
	if len(words) == 0 {
		return "true"
	}
	return strings.Join(words, " ")
}

// VRRPKeys are those of its keys that have a list.
type VRRPKeys struct {
	// ID is its number on the segment. Where it is not said, it is the first that is free.
	ID       int      `json:"id,omitempty"`
	Interval Duration `json:"interval,omitempty"`
}

// Bounds of VRRP (RFC 5798, section 5.2), and what counts where nobody says anything. Priority 255 is of a router whose
// own address is the virtual router's, which is none here.
const (
	MaxVRRP             = 255
	MinVRRPPriority     = 1
	UsualVRRPPriority   = 100
	MaxVRRPPriority     = 254
	UsualVRRPInterval   = second
	MostVRRPOfSegment   = 16
	vrrpCentisecond     = 10 * Duration(time.Millisecond)
	maxVRRPCentiseconds = 4095
)

// Keys are what a file may say of a virtual router by a single value.
func (VRRPKeys) Keys() []Key[VRRPKeys] { return vrrpKeys }

var vrrpKeys = []Key[VRRPKeys]{
	newKey("id", func(v *VRRPKeys) *int { return &v.ID }, parseVRRPID, about[int]{example: "1",
		meaning: "Its number (VRID), which is a part of its MAC address, 00:00:5e:00:01:XX; the first that is free " +
			"on the segment when left out.",
		least: 1, few: "that VRRP can say",
		most: MaxVRRP, many: "than VRRP can say"}),
	newKey("interval", func(v *VRRPKeys) *Duration { return &v.Interval }, parseVRRPInterval, about[Duration]{
		example: "1s",
		meaning: "How often the master says that it lives, in hundredths of a second; {usual} when left out. Who " +
			"hears nothing for three times that, and a little more the lower its priority is, takes its place.",
		usual: UsualVRRPInterval,
		least: vrrpCentisecond, few: "that VRRP can say",
		most: maxVRRPCentiseconds * vrrpCentisecond, many: "than VRRP can say"}),
}

func parseVRRPID(s string) (int, error) {
	n, err := parseCount(s)
	if err == nil && (n < 1 || n > MaxVRRP) {
		err = fmt.Errorf("the number %d is not between 1 and %d", n, MaxVRRP)
	}
	return n, err
}

// ParseVRRPPriority reads a router's priority.
func ParseVRRPPriority(s string) (int, error) {
	n, err := parseCount(s)
	if err == nil && (n < MinVRRPPriority || n > MaxVRRPPriority) {
		err = fmt.Errorf("the priority %d is not between %d and %d", n, MinVRRPPriority, MaxVRRPPriority)
	}
	return n, err
}

func parseVRRPInterval(s string) (Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d%vrrpCentisecond != 0 {
		err = fmt.Errorf("%s is no whole number of hundredths of a second; write it like 1s or 100ms", d)
	}
	return d, err
}

// VirtualRouter is a router's part in a virtual router, at one of its interfaces.
type VirtualRouter struct {
	ID       int        `json:"id"`
	Address  netip.Addr `json:"address"`
	Priority int        `json:"priority"`
	Interval Duration   `json:"interval"`
	Preempt  bool       `json:"preempt,omitempty"`
	// Device is what Linux calls the interface that has the virtual router's addresses, inside the element.
	Device string `json:"device"`
}

// MAC is the virtual router's, for IPv4 (RFC 5798, section 7.3).
func (v VirtualRouter) MAC() [6]byte { return VRRPMAC(v.ID) }

// VRRPMAC is the MAC address of the virtual router with a number.
func VRRPMAC(id int) [6]byte { return [6]byte{0, 0, 0x5e, 0, 1, byte(id)} }
