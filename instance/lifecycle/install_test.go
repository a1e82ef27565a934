package lifecycle

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
)

func TestInstallForAnotherRoot(t *testing.T) {
	root := t.TempDir()
	var out bytes.Buffer
	i := &Install{Dirs: instance.NewDirs("lab"), Root: root, Executable: "/bin/true", Out: &out,
		Args:      []string{"--listen", ":7455", "--advertise", `100%, "my" $HOST\`},
		Systemctl: func(args ...string) error { t.Errorf("systemctl %v, for another machine", args); return nil }}
	for range 2 { // it may be repeated
		if err := i.Run(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "etc/systemd/system/polyplane-lab.service")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`ExecStart=/bin/true up --instance lab --listen :7455 --advertise "100%%, \"my\" $$HOST\\"`, "Restart=always",
		"KillMode=process", "Delegate=yes", "RequiresMountsFor=/var/lib/polyplane/lab", "After=network-online.target", "WantedBy=multi-user.target"} {
		if !slices.Contains(strings.Split(string(b), "\n"), line) {
			t.Errorf("there is no line %q in\n%s", line, b)
		}
	}
	// A mount namespace of the unit's own would hide the elements' namespaces from everybody else.
	for _, never := range []string{"PrivateTmp", "ProtectSystem", "ProtectHome", "PrivateMounts", "ReadOnlyPaths",
		"NoNewPrivileges", "SystemCallFilter"} {
		if strings.Contains(string(b), never) {
			t.Errorf("the unit has %s", never)
		}
	}
	if target, err := os.Readlink(filepath.Join(root,
		"etc/systemd/system/multi-user.target.wants/polyplane-lab.service")); err != nil ||
		target != "/etc/systemd/system/polyplane-lab.service" {
		t.Errorf("it is not enabled: %q, %v", target, err)
	}
	if _, err := exec.LookPath("systemd-analyze"); err == nil { // systemd's own judgement, where it can be had
		if said, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, said)
		}
	}
	if err := i.Remove(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(root, "etc/systemd/system/*/*"))
	if _, gone := os.Stat(path); err != nil || len(left) > 0 || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("left behind: %v, %v", left, gone)
	}
	out.Reset()
	if err := i.Remove(); err != nil || !strings.Contains(out.String(), "was not installed") {
		t.Errorf("removed twice: %v %q", err, out.String())
	}
	if (&Install{Dirs: instance.NewDirs("../x"), Root: root, Out: &out}).Run() == nil {
		t.Error("an instance's name that leads elsewhere is taken")
	}
}

// An administrator's own unit stays, whatever it is called.
func TestUnitsOfOthersStay(t *testing.T) {
	root := t.TempDir()
	i := &Install{Dirs: instance.NewDirs("exporter"), Root: root, Executable: "/bin/true", Out: io.Discard}
	path := unitPath(root, "exporter")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	const theirs = "[Unit]\nDescription=an exporter\n"
	if err := os.WriteFile(path, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{"check": i.Check, "install": i.Run, "uninstall": i.Remove} {
		var no *RefusedError
		if err := f(); !errors.As(err, &no) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != theirs {
		t.Errorf("it is %q now: %v", b, err)
	}
}

// The Debian package's scripts touch the same units.
func TestThePackageKnowsItsUnits(t *testing.T) {
	mine, theirs := filepath.Join(t.TempDir(), "polyplane-lab.service"),
		filepath.Join(t.TempDir(), "polyplane-exporter.service")
	for path, text := range map[string]string{mine: unit, theirs: "[Unit]\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"prerm", "postinst"} {
		b, err := os.ReadFile(filepath.Join("../../packaging/deb", script))
		if err != nil {
			t.Fatal(err)
		}
		var conditions []string
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "|| continue") && strings.Contains(line, "$unit") {
				conditions = append(conditions, line)
			}
		}
		loop := "for unit in " + mine + " " + theirs + "; do\n" + strings.Join(conditions, "") + "echo $unit\ndone"
		if touched, err := exec.Command("sh", "-ec", loop).CombinedOutput(); err != nil ||
			string(touched) != mine+"\n" {
			t.Errorf("%s touches %q: %v", script, touched, err)
		}
	}
}

// Whoever could change the program could become root by it.
func TestOnlyRootsProgramsAreInstalled(t *testing.T) {
	i := &Install{Dirs: instance.NewDirs(instance.DefaultName),
		Systemctl: func(...string) error { return errors.New("asked too early") }}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(executable)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(executable, 0o777); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(executable, info.Mode()) //nolint:errcheck // it goes with the test
	var no *RefusedError
	if err := i.Run(); !errors.As(err, &no) || !strings.Contains(err.Error(), executable) {
		t.Errorf("a program that everybody may change: %v", err)
	}
	if name := unitName(instance.DefaultName); name != "polyplane.service" {
		t.Errorf("the default instance's unit is %s", name)
	}
}

func TestSystemdIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify(); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := notify(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "READY=1\nSTATUS=" {
		t.Errorf("systemd is told %q: %v", b[:n], err)
	}
}
