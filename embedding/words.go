package embedding

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// minus is a-b, or zero where more is taken than there is.
func minus[T model.CPU | model.Bytes | model.Bandwidth](a, b T) T {
	if b > a {
		return 0
	}
	return a - b
}

// demand is an amount of CPU and memory in words.
func demand(cpu model.CPU, memory model.Bytes) string {
	var parts []string
	if cpu > 0 || memory == 0 {
		parts = append(parts, cores(cpu))
	}
	if memory > 0 {
		parts = append(parts, size(memory))
	}
	return strings.Join(parts, " and ")
}

func cores(c model.CPU) string {
	n := strconv.FormatFloat(float64(c)/1000, 'f', -1, 64)
	if c == 1000 {
		return n + " core"
	}
	return n + " cores"
}

func size(b model.Bytes) string {
	for _, u := range []struct {
		name string
		n    model.Bytes
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.n {
			return trim(float64(b)/float64(u.n)) + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", b)
}

func rate(b model.Bandwidth) string {
	for _, u := range []struct {
		name string
		n    model.Bandwidth
	}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Kbit", 1e3}} {
		if b >= u.n {
			return trim(float64(b)/float64(u.n)) + " " + u.name + "/s"
		}
	}
	return fmt.Sprintf("%d bit/s", b)
}

// trim shows at most two digits after the point.
func trim(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}
