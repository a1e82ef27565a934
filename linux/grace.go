package linux

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Grace returns when every run of an eBPF program that had begun before the call has ended. It returns false if the
// context ends first.
func Grace(ctx context.Context) bool {
	// MEMBARRIER_CMD_GLOBAL waits for an RCU grace period; kernels with nohz_full refuse it.
	const global = 1
	if _, _, err := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); err == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Second): // far longer than a run can take
		return true
	}
}
