package embedding

import (
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
		parts = append(parts, memory.Rounded())
	}
	return strings.Join(parts, " and ")
}

func cores(c model.CPU) string {
	if c == 1000 {
		return c.String() + " core"
	}
	return c.String() + " cores"
}
