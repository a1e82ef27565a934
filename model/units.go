package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// In JSON all of these are plain numbers in the unit named here; people write and read them with the Parse functions
// and String.

// Bandwidth is in bit/s; written "10Mbit", "1.5Gbit" (10³ steps), never in bytes.
type Bandwidth uint64

// Bytes is a size; written "512MiB", "2GiB" (2¹⁰ steps).
type Bytes uint64

// CPU is in thousandths of a core; written in cores: 0.5, 2.
type CPU uint32

// Duration is a time span, in nanoseconds; written "10ms", "1.5s".
type Duration time.Duration

type unit struct {
	name   string
	factor uint64
}

// Ascending; the first is the unit itself.
var (
	bandwidthUnits = []unit{{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}}
	byteUnits      = []unit{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}
)

// ParseBandwidth reads "10Mbit", "1.5 Gbit": a number and one of bit, kbit, Mbit, Gbit, Tbit.
func ParseBandwidth(s string) (Bandwidth, error) {
	v, err := parseUnit(s, bandwidthUnits)
	if err != nil {
		return 0, fmt.Errorf("%q is no bandwidth: %w; write it like 10Mbit or 1.5Gbit (bit, kbit, Mbit, Gbit, Tbit; "+
			"steps of 1000)", s, err)
	}
	return Bandwidth(v), nil
}

// ParseBytes reads "512MiB", "1.5 GiB": a number and one of B, KiB, MiB, GiB, TiB.
func ParseBytes(s string) (Bytes, error) {
	v, err := parseUnit(s, byteUnits)
	if err != nil {
		return 0, fmt.Errorf("%q is no size: %w; write it like 512MiB or 2GiB (B, KiB, MiB, GiB, TiB; steps of 1024)",
			s, err)
	}
	return Bytes(v), nil
}

// ParseCPU reads cores: "0.5", "2".
func ParseCPU(s string) (CPU, error) {
	f, err := parseDecimal(strings.TrimSpace(s))
	if err == nil && f*1000 > math.MaxUint32 {
		err = fmt.Errorf("the number is too large")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no number of CPU cores: %w; write cores, like 0.5 or 2", s, err)
	}
	c := CPU(math.Round(f * 1000))
	if c == 0 && f > 0 {
		return 0, fmt.Errorf("%q is no number of CPU cores: it is less than a thousandth of one", s)
	}
	return c, nil
}

// ParseDuration reads "10ms", "1.5s" (ns, us, ms, s, m, h), never negative.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(strings.ReplaceAll(s, " ", ""))
	switch {
	case err != nil && isDecimal(strings.TrimSpace(s)):
		err = fmt.Errorf("it has no unit")
	case err != nil:
		err = fmt.Errorf("it is not a number and a unit")
	case d < 0:
		err = fmt.Errorf("it is negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no time span: %w; write it like 10ms or 1.5s (ns, us, ms, s, m, h)", s, err)
	}
	return Duration(d), nil
}

// ParseLoss reads a share of packets: "0.01" or "1%", 0…1.
func ParseLoss(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	f, err := parseDecimal(strings.TrimSpace(number))
	if percent {
		// Through the decimal digits, so that 1% is 0.01 and not its neighbour.
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f/100, 'g', 15, 64), 64)
	}
	if err == nil && f > 1 {
		err = fmt.Errorf("it is more than all packets")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no loss: %w; write a share from 0 to 1, or a percentage like 1%%", s, err)
	}
	return f, nil
}

func parseUnit(s string, units []unit) (uint64, error) {
	s = strings.TrimSpace(s)
	end := strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
	if end < 0 {
		if s == "" {
			return 0, fmt.Errorf("it is empty")
		}
		return 0, fmt.Errorf("it has no unit")
	}
	number, name := s[:end], strings.TrimSpace(s[end:])
	if number == "" {
		return 0, fmt.Errorf("it does not begin with a number")
	}
	var factor uint64
	for _, u := range units {
		if u.name == name {
			factor = u.factor
		}
	}
	if factor == 0 {
		return 0, fmt.Errorf("the unit %q is unknown", name)
	}
	if v, err := strconv.ParseUint(number, 10, 64); err == nil {
		if v > math.MaxInt64/factor {
			return 0, fmt.Errorf("the number is too large")
		}
		return v * factor, nil
	}
	f, err := parseDecimal(number)
	if err != nil {
		return 0, err
	}
	f = math.Round(f * float64(factor))
	if f >= 1<<53 {
		return 0, fmt.Errorf("the number is too large")
	}
	return uint64(f), nil
}

func isDecimal(s string) bool {
	_, err := parseDecimal(s)
	return err == nil
}

// parseDecimal reads plain digits with at most one point: no sign, exponent, hexadecimal, infinity.
func parseDecimal(s string) (float64, error) {
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("it is negative")
	}
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("it is not a plain number")
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("it is not a plain number")
	}
	return f, nil
}

func formatUnit(v uint64, units []unit) string {
	u := units[0]
	for _, next := range units[1:] {
		if v != 0 && v%next.factor == 0 {
			u = next
		}
	}
	return strconv.FormatUint(v/u.factor, 10) + u.name
}

// String is the shortest exact form that ParseBandwidth reads.
func (b Bandwidth) String() string { return formatUnit(uint64(b), bandwidthUnits) }

// String is the shortest exact form that ParseBytes reads.
func (b Bytes) String() string { return formatUnit(uint64(b), byteUnits) }

// Rounded is the size to a tenth, for people: "7.8GiB", "512MiB". It is rounded down, so that what is said to be free
// is there.
func (b Bytes) Rounded() string {
	f, i := float64(b), 0
	for f >= 1024 && i < len(byteUnits)-1 {
		f /= 1024
		i++
	}
	f = math.Floor(f*10) / 10
	if f >= 100 {
		f = math.Floor(f)
	}
	return strconv.FormatFloat(f, 'f', -1, 64) + byteUnits[i].name
}

// String is in cores.
func (c CPU) String() string { return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) }

// String is what ParseDuration reads, in ASCII.
func (d Duration) String() string { return strings.ReplaceAll(time.Duration(d).String(), "µ", "u") }

// String is what the link does, in words.
func (s Shape) String() string {
	var words []string
	if s.Bandwidth > 0 {
		words = append(words, s.Bandwidth.String())
	}
	if s.Delay > 0 || s.Jitter > 0 {
		words = append(words, fmt.Sprintf("%s ± %s", s.Delay, s.Jitter))
	}
	if s.Loss > 0 {
		words = append(words, fmt.Sprintf("%g%% loss", s.Loss*100))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}
