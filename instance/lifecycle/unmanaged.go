package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/polyplane/polyplane/instance"
)

// Where this machine itself is a node, our ports are devices of the host, and what manages the host's devices must
// leave them alone. The files are in /run, so that a reboot forgets them; each is only written where the directory of
// the program that reads it exists.

// portPattern matches the ports' devices ("ppp0" is shorter).
var portPattern = instance.PortDevicePrefix + strings.Repeat("?", 13)

// tunnelPattern matches the fabric's tunnel device.
var tunnelPattern = instance.PortDevicePrefix + "vx" + strings.Repeat("?", 8)

var unmanaged = []struct{ program, path, text string }{
	{"/run/NetworkManager", "/run/NetworkManager/conf.d/polyplane.conf",
		"[keyfile]\nunmanaged-devices+=interface-name:" + portPattern + ";interface-name:" + tunnelPattern + "\n"},
	{"/run/udev", "/run/udev/rules.d/10-polyplane.rules",
		`SUBSYSTEM=="net", KERNEL=="` + portPattern + "|" + tunnelPattern + `", ENV{NM_UNMANAGED}="1"` + "\n"},
	// udev would give every device a persistent address and may rename it.
	{"/run/systemd", "/run/systemd/network/10-polyplane.link",
		"[Match]\nOriginalName=" + portPattern + " " + tunnelPattern + "\n\n[Link]\nNamePolicy=\nMACAddressPolicy=none\n"},
	{"/run/systemd", "/run/systemd/network/10-polyplane.network",
		"[Match]\nName=" + portPattern + " " + tunnelPattern + "\n\n[Link]\nUnmanaged=yes\n"},
}

// leaveAlone tells the host's network managers to leave our ports alone. root is the root of the file system.
func leaveAlone(root string) error {
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
	}
	return nil
}

// handBack removes these files.
func handBack(root string) error {
	var errs []error
	for _, u := range unmanaged {
		if err := os.Remove(filepath.Join(root, u.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
