package frame

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Sizes says how large frames are, check sequence included. Either Of lists sizes, drawn with equal chance (repeat one
// to give it weight), or frames are uniform between Min and Max, both included.
type Sizes struct {
	Of       []int
	Min, Max int
}

// Fixed gives every frame one size.
func Fixed(size int) Sizes { return Sizes{Of: []int{size}} }

// IMIX is the common "simple IMIX": 64, 594 and 1518 bytes in parts of 7 : 4 : 1 (RFC 6985 names it as one genome).
func IMIX() Sizes {
	return Sizes{Of: []int{64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518}}
}

// Uniform draws every size from min to max.
func Uniform(least, most int) Sizes { return Sizes{Min: least, Max: most} }

// ParseSizes reads "64", "imix", or "79-1518".
func ParseSizes(s string) (Sizes, error) {
	if strings.EqualFold(s, "imix") {
		return IMIX(), nil
	}
	a, b, isRange := strings.Cut(s, "-")
	low, err := strconv.Atoi(a)
	if err != nil {
		return Sizes{}, fmt.Errorf("frame size %q: want a number of bytes (64), a range (79-1518) or imix", s)
	}
	if !isRange {
		return Fixed(low), nil
	}
	high, err := strconv.Atoi(b)
	if err != nil {
		return Sizes{}, fmt.Errorf("frame size %q: want a number of bytes (64), a range (79-1518) or imix", s)
	}
	return Uniform(low, high), nil
}

// Validate checks the sizes against what a kind of frame needs.
func (s Sizes) Validate(k Kind) error {
	low, high := s.Min, s.Max
	if len(s.Of) > 0 {
		low, high = slices.Min(s.Of), slices.Max(s.Of)
	}
	switch {
	case len(s.Of) > MaxSizes:
		return fmt.Errorf("frame sizes: %d of them, at most %d", len(s.Of), MaxSizes)
	case low > high:
		return fmt.Errorf("frame sizes: %d to %d, the smaller comes first", low, high)
	case low < k.MinSize():
		return fmt.Errorf("frame size %d: %v frames need at least %d bytes (headers, %d bytes of tag, check sequence)",
			low, k, k.MinSize(), TagSize)
	case high > MaxSize:
		return fmt.Errorf("frame size %d: at most %d bytes", high, MaxSize)
	}
	return nil
}

// MaxSizes is how many sizes Of may list.
const MaxSizes = 64

// Mean is the expected size in bytes.
func (s Sizes) Mean() float64 {
	if len(s.Of) == 0 {
		return float64(s.Min+s.Max) / 2
	}
	sum := 0
	for _, v := range s.Of {
		sum += v
	}
	return float64(sum) / float64(len(s.Of))
}

// Draw picks one size.
func (s Sizes) Draw(rng *rand.Rand) int {
	if len(s.Of) > 0 {
		return s.Of[rng.IntN(len(s.Of))]
	}
	return s.Min + rng.IntN(s.Max-s.Min+1)
}

// String is what ParseSizes reads, or the list.
func (s Sizes) String() string {
	switch {
	case slices.Equal(s.Of, IMIX().Of):
		return "imix"
	case len(s.Of) == 1:
		return strconv.Itoa(s.Of[0])
	case len(s.Of) > 1:
		return fmt.Sprint(s.Of)
	}
	return fmt.Sprintf("%d-%d", s.Min, s.Max)
}
