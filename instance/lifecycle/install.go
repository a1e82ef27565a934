package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/instance"
)

// Install is one call of `polyplane install` or `uninstall`.
type Install struct {
	Dirs instance.Dirs
	// Root is the directory that is to become the root of a machine; the machine that runs when empty.
	Root string
	// Args are the arguments of `up`; with none it comes back to what it was.
	Args []string
	// Executable is this program, as the machine will have it; where it is now when empty.
	Executable string
	Out        io.Writer
	// Systemctl runs systemctl; the real one when nil.
	Systemctl func(args ...string) error
}

// unitDir is where an administrator's units are (systemd.unit(5)).
const unitDir = "/etc/systemd/system"

// unitName is the name of an instance's unit.
func unitName(name string) string {
	if name == instance.DefaultName {
		return "polyplane.service"
	}
	return "polyplane-" + name + ".service"
}

func unitPath(root, name string) string { return filepath.Join(root, unitDir, unitName(name)) }

// ours is the first line of every unit that is written here, and of no other. An administrator may have a unit of the
// same name. The Debian package looks at this line, too.
const ours = "# Written by `polyplane install`; `polyplane uninstall` removes it."

// checkOurs refuses a unit that somebody else wrote. It is no error if there is none.
func checkOurs(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if line, _, _ := strings.Cut(string(b), "\n"); line != ours {
		return &RefusedError{fmt.Sprintf("%s was not written by `polyplane install` and is left as it is: its first "+
			"line is %q, not %q; rename it, or choose another instance name (--instance)", path, line, ours)}
	}
	return nil
}

// unit is an instance's unit. KillMode: what the elements run must outlive the platform's processes. Nothing in the
// unit may give it a mount namespace of its own (ProtectSystem and the like), since everybody must see the namespaces
// that are mounted. Nor may it have a filter of system calls or no_new_privs, since the elements would inherit them. It
// drops only capabilities that nothing here uses. CPUWeight: ten times what other services have on a busy machine (see
// precedence.go).
const unit = ours + `
[Unit]
Description=polyplane '%[1]s': virtual networks
Documentation=https://github.com/polyplane/polyplane
Wants=network-online.target
After=network-online.target
RequiresMountsFor=%[2]s
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%[3]s
Restart=always
RestartSec=2
TimeoutStartSec=300
TimeoutStopSec=30
WatchdogSec=120
KillMode=process
Delegate=yes
TasksMax=infinity
CPUWeight=1000
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_TIME CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_SYS_PACCT CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE

[Install]
WantedBy=multi-user.target
`

// Check tells why Run would be refused.
func (i *Install) Check() error {
	_, err := i.unit()
	if err == nil {
		err = checkOurs(unitPath(i.Root, i.Dirs.Name))
	}
	if err == nil && i.Root == "" {
		err = i.systemd()
	}
	return err
}

// Run writes the unit and, on the running machine, makes systemd start it, now and at every boot. An instance that runs
// already goes on under systemd, and no packet is lost.
func (i *Install) Run() error {
	if err := CheckName(i.Dirs.Name); err != nil {
		return err
	}
	text, err := i.unit()
	if err != nil {
		return err
	}
	if i.Root == "" {
		if err := i.systemd(); err != nil {
			return err
		}
	}
	path := unitPath(i.Root, i.Dirs.Name)
	if err := checkOurs(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := durable.Replace(path, []byte(text), 0o644); err != nil {
		return err
	}
	if i.Root != "" {
		want := filepath.Join(i.Root, unitDir, "multi-user.target.wants", unitName(i.Dirs.Name))
		if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(unitDir, unitName(i.Dirs.Name)), want); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
		fmt.Fprintf(i.Out, "%s is written; polyplane '%s' starts when the machine does that %s becomes the root of\n",
			path, i.Dirs.Name, i.Root)
		return nil
	}
	if err := i.systemctl("daemon-reload"); err != nil {
		return err
	}
	// What was started by hand must end first. Its networks stay, and what systemd starts takes them over.
	if err := i.release(); err != nil {
		return err
	}
	for _, args := range [][]string{{"enable", unitName(i.Dirs.Name)}, {"restart", unitName(i.Dirs.Name)}} {
		if err := i.systemctl(args...); err != nil {
			return fmt.Errorf("%w; see journalctl -u %s and %s", err, unitName(i.Dirs.Name), i.Dirs.Logs())
		}
	}
	fmt.Fprintf(i.Out, "polyplane '%s' is run by systemd now (%s), and comes back after a reboot:\n  %s\n", i.Dirs.Name,
		unitName(i.Dirs.Name), instance.Command(i.Dirs.Name, "get nodes"))
	return nil
}

// unit is the unit's text.
func (i *Install) unit() (string, error) {
	executable := i.Executable
	if executable == "" {
		var err error
		if executable, err = os.Executable(); err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		if executable, err = filepath.EvalSymlinks(executable); err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(executable, &st); err != nil {
			return "", err
		}
		if i.Root == "" && (st.Uid != 0 || st.Mode&0o022 != 0) {
			return "", &RefusedError{fmt.Sprintf("%s can be changed by others than root, who would run it at every "+
				"boot: install it first (the Debian package, or `make install`)", executable)}
		}
	}
	words := append([]string{executable, "up", "--instance", i.Dirs.Name}, i.Args...)
	for k, w := range words {
		words[k] = quoted(w)
	}
	return fmt.Sprintf(unit, i.Dirs.Name, i.Dirs.Data, strings.Join(words, " ")), nil
}

// quoted is a word of a command line in a unit (systemd.service(5), systemd.unit(5)).
func quoted(word string) string {
	escaped := strings.NewReplacer("%", "%%", "$", "$$", `\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(word)
	if word == "" || escaped != word || strings.ContainsAny(word, " ';") {
		return `"` + escaped + `"`
	}
	return word
}

// systemd tells why systemd cannot be asked; nil if it can.
func (i *Install) systemd() error {
	if os.Geteuid() != 0 {
		return errors.New("polyplane installs a system service: run it as root")
	}
	if i.Systemctl != nil {
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil { // sd_booted(3)
		return &RefusedError{"this machine is not run by systemd; have whatever runs it start `" +
			instance.Command(i.Dirs.Name, "up") + "` at boot"}
	}
	return nil
}

func (i *Install) systemctl(args ...string) error {
	if i.Systemctl != nil {
		return i.Systemctl(args...)
	}
	return systemctl(args...)
}

func systemctl(args ...string) error {
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err,
			cmp.Or(strings.TrimSpace(string(out)), "no reason given"))
	}
	return nil
}

// release ends an `up` that somebody started by hand.
func (i *Install) release() error {
	// systemd itself must stop one that it runs.
	if err := i.systemctl("stop", unitName(i.Dirs.Name)); err != nil {
		return err
	}
	l, _, err := takeOver(i.Dirs, politeness+5*time.Second)
	if err == nil {
		l.release()
	}
	return err
}

// Remove takes the unit away. Networks stay as they are.
func (i *Install) Remove() error {
	path := unitPath(i.Root, i.Dirs.Name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(i.Out, "polyplane '%s' was not installed: there is no %s\n", i.Dirs.Name, path)
		return nil
	}
	if err := checkOurs(path); err != nil {
		return err
	}
	if i.Root == "" {
		if err := i.systemd(); err != nil {
			return err
		}
		if err := i.systemctl("disable", "--now", unitName(i.Dirs.Name)); err != nil {
			return err
		}
	} else if err := os.Remove(filepath.Join(i.Root, unitDir, "multi-user.target.wants",
		unitName(i.Dirs.Name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if i.Root != "" {
		fmt.Fprintf(i.Out, "%s is removed\n", path)
		return nil
	}
	if err := i.systemctl("daemon-reload"); err != nil {
		return err
	}
	fmt.Fprintf(i.Out, "systemd no longer runs polyplane '%s'. Its networks stay as they are: `%s` takes them over, "+
		"`%s` removes them.\n", i.Dirs.Name, instance.Command(i.Dirs.Name, "up"), instance.Command(i.Dirs.Name, "down"))
	return nil
}

// stopUnit makes systemd stop an instance that it runs. Otherwise systemd would start it again and again.
func stopUnit(d instance.Dirs) (installed bool, err error) {
	path := unitPath("", d.Name)
	if _, err := os.Stat(path); err != nil || checkOurs(path) != nil {
		return false, nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return true, nil
	}
	return true, systemctl("stop", unitName(d.Name))
}

// notify tells systemd, if it has started this process, that all is ready (sd_notify(3)).
func notify() error {
	if err := tellSystemd("READY=1\nSTATUS="); err != nil {
		return fmt.Errorf("tell systemd that all is ready: %w", err)
	}
	return nil
}

// tellSystemd tells systemd something, if it has started this process.
func tellSystemd(word string) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	c, err := net.Dial("unixgram", address) // an abstract one begins with @, in Go too
	if err == nil {
		_, err = c.Write([]byte(word))
		err = errors.Join(err, c.Close())
	}
	return err
}
