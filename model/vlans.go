package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxVLAN is the largest number of a VLAN (IEEE 802.1Q, table 9-2), DefaultVLAN that of what says nothing at a switch
// that has VLANs.
const (
	MaxVLAN     = 4094
	DefaultVLAN = 1
)

// VLANTag is what a tag adds to a frame (IEEE 802.1Q), in bytes.
const VLANTag = 4

// VLANs are the VLANs whose frames have tags on a link: numbers and ranges in their order, like "10,20,30-39", or
// AllVLANs; empty where there are none.
type VLANs string

// AllVLANs are all that the switches of the link have.
const AllVLANs VLANs = "all"

const vlansForm = "write numbers and ranges like 10,20,30-39, or all"

// ParseVLANs reads VLANs, and returns them as files have them.
func ParseVLANs(s string) (VLANs, error) {
	if strings.TrimSpace(s) == string(AllVLANs) {
		return AllVLANs, nil
	}
	var all []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := parseVLAN(first)
		to := from
		if ranged && err == nil {
			to, err = parseVLAN(last)
		}
		switch {
		case err != nil:
			return "", fmt.Errorf("%q are no VLANs: %w; %s", s, err, vlansForm)
		case to < from:
			return "", fmt.Errorf("%q are no VLANs: %d-%d ends before it begins", s, from, to)
		}
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
	}
	return VLANsOf(all), nil
}

func parseVLAN(s string) (int, error) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || n > MaxVLAN {
		return 0, fmt.Errorf("%q is not between 1 and %d", s, MaxVLAN)
	}
	return int(n), nil
}

// VLANsOf writes numbers as VLANs. It sorts them.
func VLANsOf(all []int) VLANs {
	slices.Sort(all)
	all = slices.Compact(all)
	var parts []string
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 {
			last++
		}
		switch {
		case last-i > 1:
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[last]))
		default: // two are no shorter as a range
			for ; i < last; i++ {
				parts = append(parts, strconv.Itoa(all[i]))
			}
			parts = append(parts, strconv.Itoa(all[last]))
		}
		i = last + 1
	}
	return VLANs(strings.Join(parts, ","))
}

// List are the numbers; none for AllVLANs.
func (v VLANs) List() (all []int) {
	for from, to := range v.ranges {
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
	}
	return all
}

// Count is how many numbers there are in List.
func (v VLANs) Count() (n int) {
	for from, to := range v.ranges {
		n += max(0, to-from+1)
	}
	return n
}

// ranges yields the first and last number of each part.
func (v VLANs) ranges(yield func(from, to int) bool) {
	if v == "" || v == AllVLANs {
		return
	}
	for part := range strings.SplitSeq(string(v), ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := parseVLAN(first)
		to := from
		if ranged && err == nil {
			to, err = parseVLAN(last)
		}
		if err == nil && !yield(from, to) {
			return
		}
	}
}

// Parts are the numbers and ranges, as a list in a file has them.
func (v VLANs) Parts() []string { return strings.Split(string(v), ",") }

// Problem says what is wrong with VLANs; empty if nothing is.
func (v VLANs) Problem() string {
	if v == "" {
		return ""
	}
	is, err := ParseVLANs(string(v))
	switch {
	case err != nil:
		return err.Error()
	case is != v:
		return fmt.Sprintf("%q is written as %q", string(v), string(is))
	}
	return ""
}

// VLANSubnets are the subnets of a switch's VLANs, by their numbers.
type VLANSubnets map[string][]netip.Prefix

// Of are those of a VLAN.
func (v VLANSubnets) Of(vlan int) []netip.Prefix { return v[strconv.Itoa(vlan)] }

// VLANInterface is what an interface of a VLAN is called, on one that is called name.
func VLANInterface(name string, vlan int) string { return name + "." + strconv.Itoa(vlan) }

// newVLANs makes a key of VLANs.
func newVLANs[T any](of func(*T) *VLANs, a about[VLANs]) Key[T] {
	k := newKey("vlans", of, func(s string) (VLANs, error) {
		if s == "none" {
			return "", nil
		}
		return ParseVLANs(s)
	}, a)
	k.Check = func(t *T) string {
		if problem := of(t).Problem(); problem != "" {
			return "vlans " + problem
		}
		return ""
	}
	text := k.Text
	k.Text = func(t *T) string {
		if *of(t) == "" {
			return "none"
		}
		return text(t)
	}
	return k
}
