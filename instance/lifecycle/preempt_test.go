package lifecycle

import (
	"strings"
	"testing"
)

func TestPreemption(t *testing.T) {
	const (
		realTime = "#1 SMP PREEMPT_RT Debian 6.18.1-1 (2026-01-01)"
		dynamic  = "#1 SMP PREEMPT_DYNAMIC @0"
		locked   = "CONFIG_PREEMPT_RT=y\n" + needsBHLock + "\n"
		unlocked = "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n"
	)
	for _, c := range []struct {
		name, release, version, config string
		refused                        string // part of the reason; empty when the kernel will do
	}{
		{"not real-time", "6.18.44-fc-v445", dynamic, unlocked, ""},
		{"real-time before the lock could go", "6.1.0-56-rt-amd64", realTime, "", ""},
		{"real-time, just before", "6.17.9-rt1", realTime, unlocked, ""},
		{"real-time with the lock", "6.18.1-rt-amd64", realTime, locked, ""},
		{"real-time without the lock", "6.18.1-rt-amd64", realTime, unlocked, "built without it"},
		{"later", "7.2.0-rt-arm64", realTime, unlocked, "built without it"},
		{"nobody tells", "6.19.0-rt", realTime, "", "neither /proc/config.gz nor /boot"},
		{"a release of another form", "custom", realTime, "", "neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := preemption(c.release, c.version, func() []byte {
				if c.config == "" {
					return nil
				}
				return []byte(c.config)
			})
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) ||
				!strings.Contains(err.Error(), needsBHLock)):
				t.Errorf("the reason is %v: want one that says %q", err, c.refused)
			}
		})
	}
	if err := checkPreemption(); err != nil {
		t.Errorf("this machine's kernel: %v", err)
	}
}
