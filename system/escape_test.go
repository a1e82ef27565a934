package system

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/system/attack"
)

// caged has an element of every kind: routers with each routing software, in each way of forwarding, hosts and
// switches, whose commands have a container of their own, and one with a way to the Internet.
const caged = `network: caged
routers:
  bird: {software: bird}
  frr: {software: frr}
  static: {software: static}
  none: {software: none}
  xdp: {software: bird, forwarding: xdp}
  kernel: {software: bird, forwarding: router}
  bridge: {software: static, forwarding: bridge}
hosts: [host, near]
switches:
  switch: {}
edges:
  out: {end: near, internet: {}}
links:
  - bird -- host: [192.168.1.0/30, "fd00::/64"]
  - frr -- bird
  - static -- frr
  - none -- frr
  - xdp -- static
  - kernel -- xdp
  - bridge -- kernel
  - switch -- host
  - switch -- near
`

// outside are the ways out that a shell can try. Each must fail.
var outside = []string{
	// Namespaces and mounts.
	"unshare -n true", "unshare -m true", "unshare -C true", "unshare -p -f true",
	"unshare -Urm true", "unshare -i true",
	"nsenter -t 1 -n true", "nsenter -t 1 -m true", "nsenter -t 1 -U true", "nsenter -t 1 -a true",
	"nsenter --net=/proc/1/ns/net true",
	"mkdir -p /root/m && mount -t cgroup -o memory x /root/m", "mkdir -p /root/m && mount -t cgroup2 x /root/m",
	"mkdir -p /root/m && mount -t bpf x /root/m", "mkdir -p /root/m && mount -t proc x /root/m", "mount --bind / /mnt",
	"mount -o remount,rw /sys", "mount -o remount,rw /usr",
	// Files of the kernel.
	"ls /sys/fs/cgroup | grep .", "ls /sys/fs/bpf | grep .", "ls /sys/kernel/debug | grep .",
	"ls /sys/kernel/tracing | grep .",
	"find / -xdev -name release_agent 2>/dev/null | grep .",
	"echo 1 > /sys/kernel/profiling", "echo 0 > /sys/class/net/lo/mtu", "touch /sys/x",
	"echo '|/root/x' > /proc/sys/kernel/core_pattern", "echo /root/x > /proc/sys/kernel/modprobe",
	"echo b > /proc/sysrq-trigger",
	"echo 1 > /proc/sys/vm/panic_on_oom", "echo 1 > /proc/sys/kernel/panic",
	"echo 0 > /proc/sys/kernel/randomize_va_space",
	"echo :x:M::x::/root/x: > /proc/sys/fs/binfmt_misc/register", "echo 1 > /proc/sys/net/netfilter/nf_conntrack_max",
	"echo 1 > /proc/sys/user/max_net_namespaces",
	"echo -17 > /proc/self/oom_score_adj && echo -1000 > /proc/1/oom_score_adj",
	"head -c1 /proc/kcore | grep -a .", "cat /proc/keys | grep .", "dmesg",
	"cat /proc/kallsyms | grep -v '^0000000000000000' | grep .",
	// Devices.
	"head -c1 /dev/mem", "head -c1 /dev/kmsg", "test -e /dev/kvm", "test -e /dev/fuse", "test -e /dev/net/tun",
	"test -e /dev/loop-control",
	"find /dev -type b | grep .", "mknod /root/b b 259 0", "mknod /root/b b 8 0", "mknod /root/c c 1 1",
	"mknod /tmp/c c 5 1",
	"mknod /dev/b b 7 0",
	// Modules, time, the machine.
	"modprobe dummy", "insmod /root/x", "date -s 2000-01-01", "hwclock -w", "losetup -f",
	// The namespace at the other end of a device pair, by the number that the kernel gives it here.
	"ip netns list-id target-nsid 0 | grep .", "ip link add link lo name out link-netnsid 0 type macvlan",
	"ip link add name out link-netnsid 0 type vxlan id 7 dstport 4789 local 127.0.0.1 dev lo",
	// What is the platform's.
	"ls /run/polyplane/*/nodes", "ls /run/polyplane/*.lock", "ls /var/lib/polyplane", "ls /run/netns",
	"ls /var/lib/docker", "cat /etc/shadow",
	"cat /proc/self/mountinfo | grep -o '/var/lib/polyplane/[^ ]*/[^ ]*secret'",
}

// calls makes system calls that a shell has no command for. It prints those that the kernel did not refuse.
const calls = `$| = 1; my %call = (bpf => [321, 0, my $a = "\0" x 128, 128], add_key => [248, "user", "x", "y", 1, -1],
	keyctl => [250, 0, -3, 0], request_key => [249, "user", "x", 0, 0], init_module => [175, my $b = "x", 1, ""], finit_module => [313, 0, "", 0],
	kexec_load => [246, 0, 0, 0, 0], open_by_handle_at => [304, 3, my $c = "\0" x 64, 0], name_to_handle_at => [303, -100, "/", my $d = "\x40" . "\0" x 128, my $e = "\0" x 8, 0],
	io_uring_setup => [425, 8, my $f = "\0" x 256], perf_event_open => [298, my $g = "\0" x 128, 0, -1, -1, 0], userfaultfd => [323, 1],
	pivot_root => [155, ".", "."], fsopen => [430, "proc", 0], open_tree => [428, -100, "/", 1], quotactl => [179, 0, "", 0, 0],
	iopl => [172, 3], acct => [163, "/root/x"], swapon => [167, "/root/x", 0], reboot => [169, 0xfee1dead, 672274793, 0, 0], syslog => [103, 3, my $h = "x" x 64, 64],
	clone_net => [56, 0x40000011, 0, 0, 0, 0], clone_user => [56, 0x10000011, 0, 0, 0, 0], unshare_user => [272, 0x10000000], unshare_net => [272, 0x40000000],
	unshare_mount => [272, 0x20000], unshare_time => [272, 0x80], setns => [308, 0, 0], clone3 => [435, my $j = "\0" x 88, 88],
	mount => [165, "x", "/root", "tmpfs", 0, 0], umount => [166, "/usr", 2], mount_setattr => [442, -100, "/usr", 0, my $k = "\0" x 32, 32],
	open_tree_attr => [467, -100, "/usr", 1, my $l = "\0" x 32, 32], move_mount => [429, -100, "/usr", -100, "/root", 0], fsmount => [432, 0, 0, 0],
	fanotify => [300, 0x200, 0], io_setup => [206, 8, my $m = "\0" x 8], memfd_secret => [447, 0], seccomp => [317, 1, 0, 0],
	prctl_seccomp => [157, 22, 2, my $n = "\1" . "\0" x 15, 0, 0], sethostname => [170, "x", 1], unknown => [600, 0, 0],
	vsock => [41, 40, 1, 0], xdp => [41, 44, 3, 0], alg => [41, 38, 5, 0], tipc => [41, 30, 5, 0], can => [41, 29, 3, 1], bluetooth => [41, 31, 3, 1],
	key => [41, 15, 3, 2], xfrm => [41, 16, 3, 6], xfrm_high => [41, 16, 3, 6 + 2**32], usersock => [41, 16, 3, 2], audit => [41, 16, 3, 9],
	crypto => [41, 16, 3, 21], connector => [41, 16, 3, 11], rdma => [41, 16, 3, 20],
	vmsplice => [278, do { pipe our $out, our $in; fileno $in }, my $o = pack("JJ", unpack("J", pack "P", our $page = "x" x 64), 1), 1, 0],
	settimeofday => [164, my $i = "\0" x 16, 0], capset_ptrace => [101, 16, PID, 0, 0]);
for (sort keys %call) { my $r = syscall shift @{$call{$_}}, @{$call{$_}}; exit if /^clone/ && $r == 0; print "$_ gave $r\n" if $r >= 0 }
socket my $s, 2, 2, 0 or die "socket: $!";
for ([RCVBUFFORCE => 33], [SNDBUFFORCE => 32], [ZEROCOPY => 60]) { print "SO_$_->[0] is allowed\n" if setsockopt $s, 1, $_->[1], $_->[1] == 60 ? 1 : 1 << 30 }
my $policy = pack "x168"; substr($policy, 160, 1) = chr 1; # struct xfrm_userpolicy_info: incoming, let through
print "IP_XFRM_POLICY is allowed\n" if setsockopt $s, 0, 17, $policy;
for (0, 4, 12, 15, 16) { my $r = syscall 41, 16, 3, $_; print "netlink $_: $!\n" if $r < 0 }
print "getpid\n" if syscall(39) == $$`

// narrowCalls asks for a socket that reaches the machine (AF_VSOCK) as a 32-bit program does, for whom the kernel has
// one call for all that sockets do: its arguments are in memory, where no filter sees them.
const narrowCalls = `import ctypes, mmap
m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
def call(eax, ebx, ecx, edx, words):
    m[2048:2048 + 4 * len(words)] = b"".join(w.to_bytes(4, "little") for w in words)
    m[0:23] = b"\x53\xb8" + eax.to_bytes(4, "little") + b"\xbb" + ebx.to_bytes(4, "little") + b"\xb9" + ecx.to_bytes(4, "little") + \
        b"\xba" + edx.to_bytes(4, "little") + b"\xcd\x80"
    m[23:25] = b"\x5b\xc3"
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()
print("trying", flush=True)
for name, r in (("socketcall", call(102, 1, at + 2048, 0, [40, 1, 0])), ("socket", call(359, 40, 1, 0, [])), ("unshare", call(310, 1 << 28, 0, 0, []))):
    if r >= 0: print(name, "gave", r)
`

// TestNoWayOut tries, as the root of an element, what is known to have led out of containers.
func TestNoWayOut(t *testing.T) {
	attack.Tell(t, "the root of every kind of element tries what is known to have led out of containers",
		"nothing leads out")
	p := up(t, 1)
	p.run("apply", "-f", file(t, caged))
	secret := filepath.Join("/run", "secret-"+p.dirs.Name)
	if err := os.WriteFile(secret, []byte("the machine's"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(secret) })
	for _, element := range []string{"caged/bird", "caged/frr", "caged/static", "caged/none", "caged/xdp",
		"caged/kernel", "caged/bridge", "caged/host",
		"caged/near", "caged/switch"} {
		t.Run(element, func(t *testing.T) {
			p := p.with(t)
			inside := func(args ...string) string {
				out, stderr, _ := p.try(append([]string{"exec", element, "--"}, args...)...)
				return out + stderr
			}
			t.Run("commands", func(t *testing.T) {
				// One command tries them all, and names those that succeed.
				var script strings.Builder
				for i, command := range append(outside, "cat "+secret) {
					fmt.Fprintf(&script, "( %s ) >/dev/null 2>&1 && echo succeeded: %d\n", command, i)
				}
				script.WriteString("ip link add name own type veth && ip link del own && echo but this may be\n")
				out := inside("sh", "-c", script.String())
				if !strings.Contains(out, "but this may be") {
					t.Errorf("what is allowed fails, too: %s", out)
				}
				for i, command := range append(outside, "cat "+secret) {
					if strings.Contains(out, fmt.Sprintf("succeeded: %d\n", i)) {
						t.Errorf("%s succeeds", command)
					}
				}
			})
			t.Run("system calls", func(t *testing.T) {
				if runtime.GOARCH != "amd64" {
					t.Log("the numbers are those of amd64: nothing is tried here")
					return
				}
				agent := fmt.Sprint(p.processes()["agent n1"])
				if out := inside("perl", "-e", strings.ReplaceAll(calls, "PID", agent)); out != "getpid\n" {
					t.Errorf("these are not refused: %s", out)
				}
				if out := inside("python3", "-c", narrowCalls); out != "trying\n" {
					t.Errorf("calls of 32-bit programs: %s", out)
				}
			})
			t.Run("processes", func(t *testing.T) {
				for name, pid := range p.processes() {
					if out := inside("sh", "-c",
						fmt.Sprintf("kill -0 %d && echo reached; ls /proc/%d/root 2>/dev/null && echo reached", pid,
							pid)); strings.Contains(out, "reached") {
						t.Errorf("%s is within reach: %s", name, out)
					}
				}
			})
			t.Run("abstract sockets", func(t *testing.T) {
				name := "polyplane-" + p.dirs.Name
				l, err := net.Listen("unix", "@"+name)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if c, err := net.Dial("unix", "@"+name); err != nil {
					t.Errorf("from where it is it cannot be reached: %v", err)
				} else {
					c.Close()
				}
				out := inside("perl", "-e", `socket my $s, 1, 1, 0; print connect($s, pack "Sxa*", 1, "`+name+
					`") ? "reached" : "not reached"`)
				if out != "not reached" {
					t.Errorf("a socket of the machine: %s", out)
				}
			})
			t.Run("open files", func(t *testing.T) {
				// A directory of the machine that somebody left open is a way out of any root. Software may open its
				// own.
				if out := inside("sh", "-c",
					`for f in /proc/[0-9]*/fd/*; do if [ -d "$f" ] && ! [ "$f" -ef "$(readlink "$f")" ]; then readlink "$f"; fi; done`); out != "" {
					t.Errorf("directories are open: %s", out)
				}
			})
			t.Run("chroot", func(t *testing.T) {
				out := inside("perl", "-e", `mkdir "/root/jail"; opendir my $d, "/"; chroot "/root/jail" or die $!; chdir $d; chdir ".." for 1 .. 64; chroot ".";
					print -e "`+secret+`" ? "out" : -d "/root/jail" ? "in" : "lost"`)
				if out != "in" {
					t.Errorf("out of a root within its root an element's root is %q", out)
				}
			})
			t.Run("the runtime's own program", func(t *testing.T) { overwritten(t, p, element) })
		})
	}
}

// overwritten has an element start the program that enters it – what `#!/proc/self/exe` leads to –, and tries to write
// to it meanwhile (as CVE-2019-5736 did).
func overwritten(t *testing.T, p *platform, element string) {
	path, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	sum := func() [sha256.Size]byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(data)
	}
	before := sum()
	const watch = `$| = 1; print "watching\n"; my $end = time + 60; while (time < $end && !-e "/root/enough") { for (glob "/proc/[0-9]*/exe") {
		my $to = readlink or next; next if $to =~ m{^/usr/}; $seen{$to}++; if (open my $f, "+<", $_) { print "open: $to\n"; exit } } }
		print "seen: ", join(" ", keys %seen), "\n"`
	p.run("exec", element, "--", "sh", "-c",
		`rm -f /root/enough; printf '#!/proc/self/exe\n' > /root/trap && chmod +x /root/trap`)
	var said spoken
	c := p.command("exec", element, "--", "perl", "-e", watch)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.await("the watcher", func() bool { return strings.Contains(said.String(), "watching") }, said.String)
	for range 3 {
		p.try("exec", element, "--", "/root/trap") //nolint:errcheck // whatever it does
	}
	p.run("exec", element, "--", "touch", "/root/enough")
	if err := c.Wait(); err != nil {
		t.Errorf("the watcher: %v", err)
	}
	if strings.Contains(said.String(), "open:") || sum() != before {
		t.Errorf("%s could be written to from inside: %s", path, said.String())
	}
}
