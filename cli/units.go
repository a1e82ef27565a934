package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// age is a time span as people say it, in the largest unit that is exact enough.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func (c *CLI) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(c.Now().Sub(t))
}

// elapsed is a measured time span.
func elapsed(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// scaled writes a number with three digits and one of the units, each 1,000 times the one before.
func scaled(v float64, units ...string) string {
	i := 0
	for v >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	digits := 0
	switch {
	case v == 0 || v >= 99.95 || i == 0:
	case v >= 9.995:
		digits = 1
	default:
		digits = 2
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s + units[i]
}

func bitRate(v float64) string {
	return scaled(v, " bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s")
}
func packetRate(v float64) string { return scaled(v, " p/s", " kp/s", " Mp/s") }
func count(v uint64) string       { return scaled(float64(v), "", " k", " M", " G", " T") }

// byteCount writes bytes in 2¹⁰ steps.
func byteCount(v uint64) string { return model.Bytes(v).Rounded() }

func cores(v model.CPU) string {
	if v == 0 {
		return ""
	}
	return v.String()
}

func usedOf(used, total string) string {
	used = cmp.Or(used, "0")
	if total == "" {
		return used
	}
	return used + "/" + total
}

// bandwidth is a link's, nothing when it is unlimited.
func bandwidth(v model.Bandwidth) string {
	if v == 0 {
		return ""
	}
	return v.String()
}

func percent(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v*100, 'f', -1, 64) + "%"
}

// shortDuration writes 10ms, 1.5s.
func shortDuration(d model.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func join[T fmt.Stringer](values []T) string {
	return strings.Join(each.Of(values, func(v T) string { return v.String() }), ", ")
}
