package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// bootFile holds the identity of the boot that the run directory is from. /run is usually lost at a reboot, but not
// everywhere.
func bootFile(d instance.Dirs) string { return filepath.Join(d.Run, "boot") }

// bootID is the kernel's random identity of this boot (random(4), /proc/sys/kernel/random/boot_id).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// forgetLastBoot clears a run directory that is from another boot: everything it speaks of is gone.
func forgetLastBoot(d instance.Dirs) error {
	b, err := os.ReadFile(bootFile(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := bootID()
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(b)) == now {
		return nil
	}
	if err := unmountBelow(d.Run, 1); err != nil {
		return err
	}
	if err := linux.RemoveTree(d.Run); err != nil {
		return fmt.Errorf("clear what the last boot left: %w", err)
	}
	return nil
}

// noteBoot writes down which boot the run directory is from.
func noteBoot(d instance.Dirs) error {
	id, err := bootID()
	if err != nil {
		return err
	}
	return os.WriteFile(bootFile(d), []byte(id+"\n"), 0o600)
}

// enoughFiles is how many files an agent may need open: a namespace and a few sockets for thousands of elements.
const enoughFiles = 1 << 16

// raiseFileLimit raises the limit of open files for this process and its children; it never lowers it. Where that is
// not allowed (in a container without CAP_SYS_RESOURCE), the limit stays as it is.
func raiseFileLimit() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Max >= enoughFiles {
		return // Go takes what there is
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: enoughFiles, Max: enoughFiles}) //nolint:errcheck // as said
}
