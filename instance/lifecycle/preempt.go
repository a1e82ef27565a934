package lifecycle

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// needsBHLock is the kernel option that keeps software interrupts of one processor from preempting each other.
const needsBHLock = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y"

// checkPreemption refuses a kernel on which one run of the fabric's programs may preempt another on the same processor.
// The programs keep the packet that they work on in memory that exists once for each processor, and would mix two
// packets up. Software interrupts preempt each other only with PREEMPT_RT, from Linux 6.18 on, and without
// PREEMPT_RT_NEEDS_BH_LOCK ("softirq: Allow to drop the softirq-BKL lock on PREEMPT_RT"). Earlier PREEMPT_RT kernels
// have a lock for them on each processor.
func checkPreemption() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("ask for the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	return preemption(release, unix.ByteSliceToString(u.Version[:]), func() []byte { return kernelConfig(release) })
}

func preemption(release, version string, config func() []byte) error {
	if !strings.Contains(version, "PREEMPT_RT") {
		return nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 18) {
		return nil
	}
	text := config()
	if bytes.Contains(text, []byte(needsBHLock)) {
		return nil
	}
	why := "and was built without it"
	if text == nil {
		why = "and its configuration, which would tell, is in neither /proc/config.gz nor /boot"
	}
	return errors.New("this kernel, " + release +
		" with PREEMPT_RT, lets software interrupts preempt each other, which the " +
		"fabric's programs do not bear; it needs " + needsBHLock + " " + why +
		": boot a kernel with it, or one without PREEMPT_RT")
}

// kernelConfig is the running kernel's configuration; nil if it cannot be found.
func kernelConfig(release string) []byte {
	if f, err := os.Open("/proc/config.gz"); err == nil {
		defer f.Close()
		if z, err := gzip.NewReader(f); err == nil {
			if text, err := io.ReadAll(z); err == nil {
				return text
			}
		}
	}
	text, err := os.ReadFile("/boot/config-" + release)
	if err != nil {
		return nil
	}
	return text
}
