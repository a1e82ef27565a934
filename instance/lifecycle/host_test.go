package lifecycle

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

const onOneNode = `network: lab
routers:
  r1: {software: static}
hosts: [h1, h2, h3]
links:
  - h1 -- r1
  - h2 -- r1
  - h3 -- r1
edges:
  out: {end: r1, device: ppp0}
`

// This machine – here a network namespace that stands for it – as the only node: ports are among its devices, and none
// is left after `down`, while a device of somebody else stays.
func TestHostIsTheOnlyNode(t *testing.T) {
	p := newPlatform(t)
	host := filepath.Join(t.TempDir(), "host.net")
	if err := os.WriteFile(host, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not given back: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", host, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(host, unix.MNT_DETACH) })
	on := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"--net=" + host, built.path}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("polyplane %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	devices := func() (names []string) {
		t.Helper()
		p.inside(host, func() error {
			links, err := linux.Whole(netlink.LinkList)
			for _, l := range links {
				names = append(names, l.Attrs().Name)
			}
			return err
		})
		return names
	}
	p.inside(host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "ppp0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "theirs"})
	})
	before := len(devices())

	if out := on("up", "--name", p.dirs.Name, "--host", "-d"); !strings.Contains(out, "this machine is the only node") {
		t.Errorf("up says %q", out)
	}
	p.apply(onOneNode)
	p.check()
	if n := len(devices()); n < before+7 {
		t.Errorf("there are %d devices, want the 7 ports beside %d", n, before)
	}
	edge := func() string {
		t.Helper()
		out, err := exec.Command("nsenter", "--net="+host, "sh", "-c",
			"tc filter show dev ppp0 ingress; ip -d link show ppp0").CombinedOutput()
		if err != nil {
			t.Fatalf("look at the edge: %v: %s", err, out)
		}
		return string(out)
	}
	if out := edge(); !strings.Contains(out, "polyplane edge") || strings.Contains(out, "promiscuity 0") {
		t.Errorf("the edge is not attached:\n%s", out)
	}
	old := p.pids()
	unix.Kill(old["up"], unix.SIGKILL)
	on("up", "--name", p.dirs.Name, "-d")
	p.check()
	on("down", "--name", p.dirs.Name)
	if now := devices(); len(now) != before {
		t.Errorf("left are %v, want the %d devices that were there", now, before)
	}
	if out := edge(); strings.Contains(out, "polyplane") || !strings.Contains(out, "promiscuity 0") {
		t.Errorf("after down the edge's device has\n%s", out)
	}
	p.nothingLeft(nil)
}

func TestLeaveAlone(t *testing.T) {
	root, programs := t.TempDir(), t.TempDir()
	told := filepath.Join(programs, "told")
	for _, name := range []string{"nmcli", "udevadm", "networkctl"} {
		script := "#!/bin/sh\necho " + name + " $@ >> " + told + "\n"
		if err := os.WriteFile(filepath.Join(programs, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs)
	expectTold := func(when string, want ...string) {
		t.Helper()
		b, err := os.ReadFile(told)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		os.Remove(told)
		got := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s, %q was run: want %q", when, got, want)
		}
	}
	all := []string{"networkctl reload", "nmcli general reload conf", "udevadm control --reload"}
	if err := leaveAlone(root); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 0 {
		t.Errorf("files were written for programs that are not there: %v", entries)
	}
	for _, dir := range []string{"run/NetworkManager", "run/udev", "run/systemd"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := leaveAlone(root); err != nil {
		t.Fatal(err)
	}
	expectTold("after the files were written", all...)
	if err := leaveAlone(root); err != nil {
		t.Fatal(err)
	}
	expectTold("when the files were there")
	port := instance.NewDirs("x").Node("n1").PortDevice(model.PortID{ID: model.ID{Network: "a",
		Element: "b"}, Interface: "c"})
	for _, u := range unmanaged {
		b, err := os.ReadFile(filepath.Join(root, u.path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), portPattern) {
			t.Errorf("%s says nothing of %s: %s", u.path, portPattern, b)
		}
	}
	for name, want := range map[string]bool{port: true, "ppp0": false, "pppoe-wan": false, "eth0": false} {
		if got, _ := filepath.Match(portPattern, name); got != want {
			t.Errorf("%s matches %s: %t, want %t", portPattern, name, got, want)
		}
	}
	if err := handBack(root); err != nil {
		t.Fatal(err)
	}
	for _, u := range unmanaged {
		if _, err := os.Stat(filepath.Join(root, u.path)); !os.IsNotExist(err) {
			t.Errorf("%s is left", u.path)
		}
	}
	expectTold("after the files were removed", all...)
}

// What another boot left in a run directory that outlives reboots is cleared; what this boot made is kept.
func TestForgetLastBoot(t *testing.T) {
	dir := t.TempDir()
	d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "x"), Data: filepath.Join(dir, "data")}
	if err := forgetLastBoot(d); err != nil {
		t.Fatal(err)
	}
	leftover := d.Node("n1").NodeNamespace()
	if err := os.MkdirAll(filepath.Dir(leftover), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(leftover, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := noteBoot(d); err != nil {
		t.Fatal(err)
	}
	if err := forgetLastBoot(d); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); err != nil {
		t.Errorf("this boot's files were cleared: %v", err)
	}
	if err := os.WriteFile(bootFile(d), []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := forgetLastBoot(d); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("another boot's files are left: %v", err)
	}
}
