package sockets

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/system/attack"
)

// TestAllowedModules: what networks are built of, and nothing else.
func TestAllowedModules(t *testing.T) {
	all := allowedModules()
	if len(all) > 2048 {
		t.Errorf("%d names are more than the program's table takes", len(all))
	}
	for i, name := range all {
		if len(name) > 55 || name == "" || strings.Contains(name, "*") {
			t.Errorf("the kernel asks for no %q", name)
		}
		if slices.Contains(all[:i], name) {
			t.Errorf("%s is there twice", name)
		}
	}
	for _, name := range []string{"rtnl-link-vxlan", "rtnl-link-vlan", "net-pf-16-proto-16-family-wireguard",
		"net-pf-16-proto-12", "nfnetlink-subsys-10", "nft-chain-2-nat", "nft-expr-masq", "nft-expr-2-masq", "sch_htb",
		"net-sch-htb", "cls_u32", "act_mirred", "iptable_nat", "ip6t_REJECT", "xt_conntrack", "nf_log_syslog", "crypto-cmac(aes)", "crypto-md5-all", "net-pf-16-proto-4-type-2-6"} {
		if !slices.Contains(all, name) {
			t.Errorf("elements may not have the kernel load %s", name)
		}
	}
	for _, name := range []string{"net-pf-2-proto-132", "net-pf-26", "net-pf-16-proto-16-family-l2tp", "nfnetlink-subsys-6",
		"nfnetlink-subsys-4", "nft-expr-connlimit", "xt_hashlimit", "ipt_hashlimit", "ipt_recent", "nfct-helper-ftp",
		"binfmt-4c46", "tty-ldisc-13", "fs-nfs", "crypto-des", "rtnl-link-can", "rtnl-link-gtp", "br_netfilter"} {
		if slices.Contains(all, name) {
			t.Errorf("elements may have the kernel load %s", name)
		}
	}
}

// family is a protocol family that is in a module, which few machines have loaded.
type family struct {
	number int
	module string
}

func (f family) loaded() bool { _, err := os.Stat("/sys/module/" + f.module); return err == nil }

// forModules skips the test if this kernel cannot load one of the modules, and puts the kernel back.
func forModules(t *testing.T, g *Guard, all ...family) {
	t.Helper()
	if !loadsModules() {
		t.Skip("this kernel loads no modules")
	}
	if g.LackingModules != nil {
		skipLacking(t, g.LackingModules, "kernel_module_request")
	}
	for _, f := range all {
		if out, err := exec.Command("modprobe", "-n", fmt.Sprintf("net-pf-%d", f.number)).CombinedOutput(); err != nil || f.loaded() {
			t.Skipf("%s cannot be loaded here, or was before: %v: %s", f.module, err, out)
		}
		t.Cleanup(func() {
			if f.loaded() {
				exec.Command("modprobe", "-r", f.module).Run() //nolint:errcheck // something may use it by now
			}
		})
	}
}

// opened is a guard, and where it is pinned.
func opened(t *testing.T) (*Guard, string) {
	t.Helper()
	dir := t.TempDir()
	g, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), Destroy(dir)); err != nil {
			t.Error(err)
		}
	})
	return g, dir
}

func ask(f family) error {
	fd, err := unix.Socket(f.number, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// TestModulesAreRefused: whoever asks for a protocol has the kernel load its module, for everybody and for good.
func TestModulesAreRefused(t *testing.T) {
	attack.Tell(t, "protocols that are in modules of the kernel (AppleTalk, LLC), which a question loads",
		"none: they are not loaded")
	for _, way := range []string{"as a security module", "before the security modules"} {
		t.Run(way, func(t *testing.T) {
			appletalk, llc := family{5, "appletalk"}, family{26, "llc2"}
			g, dir := opened(t)
			forModules(t, g, appletalk, llc)
			if way != "as a security module" {
				g.modules.Close()
				if err := os.Remove(dir + "/" + layout + "/modules"); err != nil {
					t.Fatal(err)
				}
				var err error
				if g.modules, err = modulesHook.attachOne(modulesHook.before, dir+"/"+layout, g.limits); err != nil {
					skipLackingBefore(t, err, "kernel_module_request")
				}
			}
			runtime.LockOSThread() // never unlocked
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Fatal(err)
			}
			cookie, err := Cookie()
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Bound(cookie, 0); err != nil {
				t.Fatal(err)
			}
			for _, f := range []family{appletalk, llc} {
				if err := ask(f); !errors.Is(err, unix.EAFNOSUPPORT) || f.loaded() {
					t.Errorf("a socket of %s: %v; the module is loaded: %v", f.module, err, f.loaded())
				}
			}
			if names, err := g.RefusedModules(); err != nil || !slices.Equal(names, []string{"net-pf-26", "net-pf-5"}) {
				t.Errorf("refused were %v (%v)", names, err)
			}
			if names, err := g.RefusedModules(); err != nil || names != nil {
				t.Errorf("told again were %v (%v)", names, err)
			}
			if out, err := exec.Command("ip", "link", "add", "i", "type", "ifb").CombinedOutput(); err != nil {
				t.Errorf("what networks are built of cannot be had: %v: %s", err, out)
			}
			g.Forget(cookie)
			if err := ask(llc); !llc.loaded() {
				t.Errorf("who is not bounded cannot have %s: %v", llc.module, err)
			}
		})
	}
}

// TestAgentLoadsModules: the agent works in elements' namespaces, from outside of their user namespace.
func TestAgentLoadsModules(t *testing.T) {
	g, _ := opened(t)
	phonet, atm := family{35, "phonet"}, family{8, "atm"}
	forModules(t, g, phonet, atm)
	element := exec.Command("unshare", "-Urn", "sh", "-c", "echo; read x; exec perl -e 'socket my $s, 8, 2, 0; print int $!'")
	in, err := element.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := element.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := element.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { element.Process.Kill(); element.Wait() }) //nolint:errcheck // it may have ended
	buf := make([]byte, 64)
	if _, err := out.Read(buf); err != nil {
		t.Fatal(err)
	}
	inside := func(f func() error) {
		t.Helper()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := linux.InsideOf(fmt.Sprintf("/proc/%d/ns/net", element.Process.Pid), f); err != nil {
			t.Fatal(err)
		}
	}
	inside(func() error {
		cookie, err := Cookie()
		if err != nil {
			return err
		}
		return g.Bound(cookie, 0)
	})
	inside(func() error { ask(phonet); return nil }) //nolint:errcheck // loaded is what counts
	if !phonet.loaded() {
		t.Errorf("who works in an element from outside cannot have %s", phonet.module)
	}
	fmt.Fprintln(in)
	n, _ := out.Read(buf)
	if got := string(buf[:n]); got != fmt.Sprint(int(unix.EAFNOSUPPORT)) || atm.loaded() {
		t.Errorf("a process of the element got error %q for %s, which is loaded: %v", got, atm.module, atm.loaded())
	}
}
