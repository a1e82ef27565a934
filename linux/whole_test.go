package linux

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	interrupted := fmt.Errorf("read: %w", netlink.ErrDumpInterrupted)
	for _, c := range []struct {
		name  string
		fails int
		with  error
		asked int
		err   error
	}{
		{"at once", 0, nil, 1, nil},
		{"after two interruptions", 2, interrupted, 3, nil},
		{"changes all the time", 1000, interrupted, 20, netlink.ErrDumpInterrupted},
		{"another error is no interruption", 1, errors.ErrUnsupported, 1, errors.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			all, err := Whole(func() ([]int, error) {
				if asked++; asked <= c.fails {
					return []int{asked}, c.with
				}
				return []int{asked}, nil
			})
			if !errors.Is(err, c.err) || asked != c.asked || !slices.Equal(all, []int{c.asked}) {
				t.Errorf("%v, %v after %d questions", all, err, asked)
			}
		})
	}
}
