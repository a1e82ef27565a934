package kernelmemory

import (
	"errors"
	"testing"

	"github.com/polyplane/polyplane/linux"
)

// TestManySessionsAreTooMany: reading L2TP's sessions ends at a number, since it takes the kernel ever longer. So that
// number is too many even for who has much memory.
func TestManySessionsAreTooMany(t *testing.T) {
	for _, c := range []struct {
		tunnels, sessions int
		memory            int64
		more              bool
	}{
		{0, 100, 256 << 20, false}, {1, 1023, 256 << 20, false}, {1, 1024, 256 << 20, true},
		{1, 2000, 2 << 30, false}, {1, 3000, 2 << 30, true}, {3000, 0, 2 << 30, true}, {3000, 3000, 1 << 40, true},
		{1024, 1025, 2 << 30, true},
	} {
		read := 0
		r := reader{table: Sessions, passes: 1, read: func(_ *space, _ int, each visit) error {
			return countSessions(func(command uint8, each func([]byte) error) error {
				n := c.sessions
				if command == getTunnels {
					n = c.tunnels
				}
				for range n {
					read++
					if err := each(nil); err != nil {
						return err
					}
				}
				return nil
			}, each)
		}}
		e := Element{Memory: c.memory}
		more, err := r.exceeds(nil, e.limit(Sessions))
		if more != c.more || err != nil {
			t.Errorf("%d tunnels and %d sessions, with %d bytes of memory: too many is %v (%v)", c.tunnels, c.sessions,
				c.memory, more, err)
		}
		if _, err := r.count(nil); err != nil && !errors.Is(err, linux.ErrEnough) {
			t.Error(err)
		}
		if read > 2*(2*mostSessions+2) {
			t.Errorf("%d were read", read)
		}
	}
}
