package model

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// BFD is whether the routers at a link's ends watch each other by BFD (RFC 5880): empty where they do not, BFDUsual, or
// how often they send and how many packets they may miss, like "100ms x 5".
type BFD string

// BFDUsual is BFD with the usual times.
const BFDUsual BFD = "true"

// Of BFD's packets: the usual interval and how many may be missed, and between what FRR and BIRD take both.
const (
	UsualBFDInterval                   = 300 * Duration(time.Millisecond)
	UsualBFDMultiplier                 = 3
	MinBFDInterval, MaxBFDInterval     = 10 * Duration(time.Millisecond), 60 * second
	minBFDMultiplier, maxBFDMultiplier = 2, 255
)

const bfdForm = "write true, how often packets are sent, like 100ms, or that and how many may be missed, like 100ms x 5"

// ParseBFD reads a link's BFD, and returns it as files have it.
func ParseBFD(s string) (BFD, error) {
	switch s {
	case "false":
		return "", nil
	case string(BFDUsual):
		return BFDUsual, nil
	}
	interval, times, several := strings.Cut(s, "x")
	d, err := ParseDuration(strings.TrimSpace(interval))
	n := UsualBFDMultiplier
	if several && err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(times))
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is no BFD; %s", s, bfdForm)
	case d < MinBFDInterval || d > MaxBFDInterval || d%Duration(time.Millisecond) != 0:
		return "", fmt.Errorf("the interval %s is none of %s to %s, in whole milliseconds", d, MinBFDInterval,
			MaxBFDInterval)
	case n < minBFDMultiplier || n > maxBFDMultiplier:
		return "", fmt.Errorf("%d packets cannot be missed: %d to %d can", n, minBFDMultiplier, maxBFDMultiplier)
	case !several:
		return BFD(d.String()), nil
	}
	return BFD(fmt.Sprintf("%s x %d", d, n)), nil
}

// Times are the interval and how many packets may be missed; on tells whether there is BFD at all.
func (b BFD) Times() (interval Duration, multiplier int, on bool) {
	interval, multiplier = UsualBFDInterval, UsualBFDMultiplier
	if b == "" || b == BFDUsual {
		return interval, multiplier, b != ""
	}
	text, times, several := strings.Cut(string(b), " x ")
	if d, err := ParseDuration(text); err == nil {
		interval = d
	}
	if n, err := strconv.Atoi(times); several && err == nil {
		multiplier = n
	}
	return interval, multiplier, true
}

// newBFD makes a key of BFD.
func newBFD[T any](of func(*T) *BFD, a about[BFD]) Key[T] {
	k := newKey("bfd", of, ParseBFD, a)
	k.Check = func(t *T) string {
		if v := *of(t); v != "" {
			if is, err := ParseBFD(string(v)); err != nil {
				return "bfd " + err.Error()
			} else if is != v {
				return fmt.Sprintf("bfd %q is written as %q", string(v), string(is))
			}
		}
		return ""
	}
	text := k.Text
	k.Text = func(t *T) string {
		if *of(t) == "" {
			return "false"
		}
		return text(t)
	}
	return k
}
