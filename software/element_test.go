package software

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// childMark makes the test binary the first process of an element, in namespaces of its own.
const childMark = "POLYPLANE_SOFTWARE_TEST_ELEMENT"

func TestMain(m *testing.M) {
	if os.Getenv(childMark) != "" {
		fmt.Fprintln(os.Stderr, "element:", beElement())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// running is an element whose Plan runs for real: in user, mount, PID, UTS, IPC and network namespaces of its own, with
// the Plan's capabilities and no more.
type running struct {
	el      model.ResolvedElement
	command *exec.Cmd
	plan    io.WriteCloser
	ns      netns.NsHandle
	link    *netlink.Handle
	output  chan string // lines that the processes printed
	change  func(*Plan) // what the test has otherwise than Render plans
}

func newRunning(t *testing.T, el model.ResolvedElement) *running {
	t.Helper()
	r := &running{el: el, output: make(chan string, 1000)}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(model.UIDBase(4000)), Size: model.UIDsPerNetwork}}
	r.command = exec.Command("/proc/self/exe")
	r.command.Env = []string{childMark + "=1", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	r.command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
		Pdeathsig: syscall.SIGKILL,
	}
	var err error
	if r.plan, err = r.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.command.Stdout, r.command.Stderr = in, in
	err = r.command.Start()
	in.Close()
	if err != nil {
		t.Fatalf("starting an element in namespaces of its own: %v", err)
	}
	go func() {
		defer out.Close()
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case r.output <- s.Text():
			default: // nobody waits for it
			}
		}
		close(r.output)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: log\n%s", el.Name,
				r.show("cat /var/log/frr/frr.log /var/log/bird/bird.log 2>/dev/null; ip route; ip -6 route"))
		}
		r.command.Process.Kill() // the first process of its PID namespace: all others end with it
		r.command.Wait()
	})
	if r.ns, err = netns.GetFromPid(r.command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.ns.Close() })
	if r.link, err = netlink.NewHandleAt(r.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.link.Close)
	return r
}

// configure gives the element its addresses, as its driver would, and starts what Render plans.
func (r *running) configure(t *testing.T) {
	t.Helper()
	up := func(device string, addresses ...string) {
		l, err := r.link.LinkByName(device)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			ip, mask, _ := net.ParseCIDR(a)
			err := r.link.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: mask.Mask}, Flags: unix.IFA_F_NODAD})
			if err != nil {
				t.Fatalf("%s: adding %s to %s: %v", r.el.Name, a, device, err)
			}
		}
		if err := r.link.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	strs := func(el model.ResolvedInterface) (out []string) {
		for _, a := range el.Addresses {
			out = append(out, a.String())
		}
		return out
	}
	up("lo", strs(model.ResolvedInterface{Addresses: r.el.Loopback})...)
	for _, i := range r.el.Interfaces {
		up(i.LinuxName(), strs(i)...)
	}
	plan, err := Render("lab", r.el)
	if err != nil {
		t.Fatal(err)
	}
	if r.change != nil {
		r.change(&plan)
	}
	if err := json.NewEncoder(r.plan).Encode(plan); err != nil {
		t.Fatal(err)
	}
	if err := r.plan.Close(); err != nil {
		t.Fatal(err)
	}
}

// awaitReady waits until every daemon is noted to have this configuration, as the element's file says it.
func (r *running) awaitReady(t *testing.T) map[string]Note {
	t.Helper()
	plan, err := Render("lab", r.el)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		notes := map[string]Note{}
		for _, d := range plan.Daemons {
			out, err := r.exec("cat", NotesDir+"/"+d)
			if err != nil {
				break
			}
			note, err := ParseNote([]byte(out))
			if err != nil {
				t.Fatalf("%s: the note of %s: %v", r.el.Name, d, err)
			}
			notes[d] = note
		}
		if len(notes) == len(plan.Daemons) {
			return notes
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not become ready: %v\n%s", r.el.Name, notes,
				r.show("cd "+NotesDir+"; grep . *; ps ax; cat /var/log/frr/frr.log"))
		}
	}
}

// exec runs a command inside the element.
func (r *running) exec(args ...string) (string, error) {
	all := append([]string{"-t", strconv.Itoa(r.command.Process.Pid), "-a"}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%v did not end in %s: %w", args, patience, err)
	}
	return string(out), err
}

func (r *running) show(script string) string {
	out, _ := r.exec("sh", "-c", script)
	return out
}

// beElement is what runs in the new namespaces: it makes the element's own directories and files, gives up what
// capabilities the plan does not ask for, and becomes the init process.
func beElement() error {
	var plan Plan
	if err := json.NewDecoder(os.Stdin).Decode(&plan); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/etc/frr", "/etc/bird", "/etc/pam.d", "/run", "/var/log", "/var/tmp"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting %s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/conf/all/rp_filter": "0"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	for _, d := range plan.Dirs {
		if err := os.MkdirAll(d.Path, 0o755); err != nil {
			return err
		}
		if err := own(d.Path, d.Owner, d.Group, d.Mode); err != nil {
			return err
		}
	}
	for _, f := range plan.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(f.Path, []byte(f.Content), 0o600); err != nil {
			return err
		}
		if err := own(f.Path, f.Owner, f.Group, f.Mode); err != nil {
			return err
		}
	}
	for _, p := range plan.Programs {
		if err := os.MkdirAll(filepath.Dir(p.Path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p.Path, p.Content, p.Mode); err != nil {
			return err
		}
	}
	var keep []string
	for _, c := range plan.Capabilities {
		keep = append(keep, "+"+strings.ToLower(strings.TrimPrefix(c, "CAP_")))
	}
	args := append([]string{"setpriv", "--bounding-set", "-all," + strings.Join(keep, ","), "tini",
		"--"}, plan.Command...)
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
}

func own(path, owner, group string, mode fs.FileMode) error {
	u, err := user.Lookup(owner)
	if err != nil {
		return err
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(g.Gid)
	if err := os.Chown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
