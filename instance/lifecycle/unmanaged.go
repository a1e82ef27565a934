package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/polyplane/polyplane/instance"
)

// Where this machine itself is a node, our ports are devices of the host. Programs that manage the host's devices must
// leave them alone, and these files tell them to. They are in /run, so that a reboot forgets them. Each is written only
// where the directory of the program that reads it exists.

// portPattern matches the ports' devices ("ppp0" is shorter).
var portPattern = instance.PortDevicePrefix + strings.Repeat("?", 13)

// tunnelPattern matches the fabric's tunnel device.
var tunnelPattern = instance.PortDevicePrefix + "vx" + strings.Repeat("?", 8)

// unmanaged is a file for one such program, and the command that makes the program read it while it runs.
var unmanaged = []struct{ program, reload, path, text string }{
	{"/run/NetworkManager", "nmcli general reload conf", "/run/NetworkManager/conf.d/polyplane.conf",
		"[keyfile]\nunmanaged-devices+=interface-name:" + portPattern + ";interface-name:" + tunnelPattern + "\n"},
	{"/run/udev", "udevadm control --reload", "/run/udev/rules.d/10-polyplane.rules",
		`SUBSYSTEM=="net", KERNEL=="` + portPattern + "|" + tunnelPattern + `", ENV{NM_UNMANAGED}="1"` + "\n"},
	// udev would give every device a persistent address and may rename it.
	{"/run/systemd", "udevadm control --reload", "/run/systemd/network/10-polyplane.link",
		"[Match]\nOriginalName=" + portPattern + " " + tunnelPattern +
			"\n\n[Link]\nNamePolicy=\nMACAddressPolicy=none\n"},
	{"/run/systemd", "networkctl reload", "/run/systemd/network/10-polyplane.network",
		"[Match]\nName=" + portPattern + " " + tunnelPattern + "\n\n[Link]\nUnmanaged=yes\n"},
}

// leaveAlone tells the host's network managers to leave our ports alone. root is the root of the file system.
func leaveAlone(root string) error {
	stale := map[string]bool{}
	for _, u := range unmanaged {
		if _, err := os.Stat(filepath.Join(root, u.program)); err != nil {
			continue
		}
		text := "# Written by `polyplane up`; `polyplane down` removes it.\n" + u.text
		path := filepath.Join(root, u.path)
		if b, err := os.ReadFile(path); err == nil && string(b) == text {
			continue
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			return fmt.Errorf("tell the host's network manager to leave our devices alone: %w", err)
		}
		stale[u.reload] = true
	}
	reload(stale)
	return nil
}

// reload runs commands, each for a few seconds at most. If one fails, or is not there, its program does not run, and
// will read its files when it starts.
func reload(commands map[string]bool) {
	const patience = 5 * time.Second
	for command := range commands {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		words := strings.Fields(command)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Env = withoutSystemd(os.Environ()) // networkctl, when it fails, would tell systemd so
		cmd.Run()                              //nolint:errcheck // as said
		cancel()
	}
}

// handBack removes these files.
func handBack(root string) error {
	var errs []error
	stale := map[string]bool{}
	for _, u := range unmanaged {
		switch err := os.Remove(filepath.Join(root, u.path)); {
		case err == nil:
			stale[u.reload] = true
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, err)
		}
	}
	reload(stale)
	return errors.Join(errs...)
}
