package netns

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// setting is a sysctl below /proc/sys/net and its wanted value.
type setting struct{ name, value string }

// sysctls are the settings of an element's namespace, in the order in which they are written, since some reset others.
// All of them are written because a new namespace copies many from the machine. The `default` ones apply to every
// device that is made later, so they are written before there is any.
func sysctls(kind model.Kind) []setting { return sysctlsOf[kind]() }

var sysctlsOf = map[model.Kind]func() []setting{
	model.Router: sync.OnceValue(func() []setting { return stackSysctls("1") }),
	model.Host:   sync.OnceValue(func() []setting { return stackSysctls("0") }),
	model.Switch: sync.OnceValue(switchSysctls),
}

// stackSysctls are the settings of routers and hosts, which differ in whether they forward
// (Documentation/networking/ip-sysctl.rst of the kernel says what each is).
func stackSysctls(forwarding string) []setting {
	s := []setting{
		{"ipv4/ip_forward", forwarding}, // first: it resets others
		{"ipv6/conf/all/forwarding", forwarding},
		{"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv4/conf/all/arp_evict_nocarrier", "0"}, // neighbours that were entered stay when a link goes down
		{"ipv6/conf/all/ndisc_evict_nocarrier", "0"},
	}
	// The kernel uses the greater of `all` and the device's value, or either of them. So both are set.
	for _, of := range []string{"all", "default"} {
		v4, v6 := "ipv4/conf/"+of+"/", "ipv6/conf/"+of+"/"
		s = append(s,
			setting{v4 + "rp_filter", "0"}, // asymmetric paths are no error between routers
			setting{v4 + "arp_accept", "0"},
			setting{v4 + "arp_filter", "0"},
			setting{v4 + "accept_redirects", "0"},
			setting{v4 + "send_redirects", "0"},
			setting{v4 + "accept_source_route", "0"},
			setting{v4 + "accept_local", "0"},
			setting{v4 + "proxy_arp", "0"},
			setting{v4 + "route_localnet", "0"},
			setting{v4 + "log_martians", "0"},
			// addresses can be used at once; polyplane assigns them, so there are no duplicates
			setting{v6 + "accept_dad", "0"},
			setting{v6 + "proxy_ndp", "0"},
		)
	}
	return append(s,
		// An address belongs to its interface. Without these settings every router would answer ARP for all of its
		// addresses on all of its links.
		setting{"ipv4/conf/default/arp_ignore", "1"},
		setting{"ipv4/conf/default/arp_announce", "2"},
		setting{"ipv4/conf/default/promote_secondaries", "1"}, // removing one address keeps the others of the subnet
		setting{"ipv4/conf/default/ignore_routes_with_linkdown", "1"},
		setting{"ipv6/conf/default/accept_ra", "0"},
		setting{"ipv6/conf/default/autoconf", "0"},
		setting{"ipv6/conf/default/router_solicitations", "0"},
		setting{"ipv6/conf/default/accept_redirects", "0"},
		setting{"ipv6/conf/default/accept_source_route", "0"},
		setting{"ipv6/conf/default/dad_transmits", "0"},
		setting{"ipv6/conf/default/addr_gen_mode", "0"},
		setting{"ipv6/conf/default/use_tempaddr", "0"},
		setting{"ipv6/conf/default/keep_addr_on_down", "1"},
		setting{"ipv6/conf/default/ignore_routes_with_linkdown", "1"},
		setting{"ipv4/fib_multipath_hash_policy", "1"}, // by flow, not by address pair
		setting{"ipv6/fib_multipath_hash_policy", "1"},
		setting{"ipv4/fib_multipath_use_neigh", "1"},
		setting{"ipv4/nexthop_compat_mode", "1"}, // as on any machine: `ip route` shows next hops
		setting{"ipv4/igmp_max_memberships", "4096"},
		setting{"ipv6/route/max_size", "2147483647"},
	)
}

// switchSysctls keep the kernel's own stack quiet: a switch has no address.
func switchSysctls() []setting {
	s := []setting{{"ipv4/ip_forward", "0"}}
	for _, of := range []string{"all", "default"} {
		s = append(s,
			setting{"ipv4/conf/" + of + "/arp_ignore", "8"}, // never
			setting{"ipv6/conf/" + of + "/disable_ipv6", "1"},
			setting{"ipv6/conf/" + of + "/accept_ra", "0"},
		)
	}
	return s
}

// sysctlWriter sets the sysctls of fresh namespaces. These are all alike, so the first one shows which settings differ.
type sysctlWriter struct {
	settings []setting
	differ   []setting
	known    bool
}

// write sets them in the calling thread's namespace through the proc file system. The namespace must be fresh.
func (w *sysctlWriter) write(proc int) error {
	t, err := openSysctls(proc)
	if err != nil {
		return err
	}
	defer t.close()
	if !w.known {
		differ, err := t.repair(w.settings)
		w.differ, w.known = differ, err == nil
		return err
	}
	for _, s := range w.differ {
		if err := t.write(s); err != nil {
			return err
		}
	}
	return nil
}

// procfs is a proc file system of our own.
type procfs struct {
	fd   int
	uses int
}

// procfsUses is for how many namespaces one procfs is used. With more it becomes slow.
const procfsUses = 64

func newProcfs() (*procfs, error) {
	fd, err := linux.OpenProc()
	if err != nil {
		return nil, err
	}
	return &procfs{fd: fd}, nil
}

func (p *procfs) close() { unix.Close(p.fd) }

// sysctlReader hands out sysctl trees, for one thread.
type sysctlReader struct{ proc *procfs }

// tree opens the sysctls of the calling thread's namespace. The thread must not leave it before it closes the tree.
func (r *sysctlReader) tree() (*sysctlTree, error) {
	if r.proc != nil && r.proc.uses >= procfsUses {
		r.close()
	}
	if r.proc == nil {
		var err error
		if r.proc, err = newProcfs(); err != nil {
			return nil, err
		}
	}
	r.proc.uses++
	return openSysctls(r.proc.fd)
}

func (r *sysctlReader) close() {
	if r.proc != nil {
		r.proc.close()
	}
	r.proc = nil
}

// sysctlTree holds the directories of one network namespace's sysctls. Kernels that switch no labels have none for
// that.
type sysctlTree struct{ v4, v6, mpls int }

func openSysctls(proc int) (*sysctlTree, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	t := &sysctlTree{v4: -1, v6: -1, mpls: -1}
	var err error
	if t.v4, err = unix.Openat(proc, "sys/net/ipv4", flags, 0); err == nil {
		t.v6, err = unix.Openat(proc, "sys/net/ipv6", flags, 0)
	}
	if err == nil {
		if t.mpls, err = unix.Openat(proc, "sys/net/mpls", flags, 0); err == unix.ENOENT {
			t.mpls, err = -1, nil
		}
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("open the network's sysctls: %w", err)
	}
	return t, nil
}

func (t *sysctlTree) close() {
	for _, fd := range []int{t.v4, t.v6, t.mpls} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (t *sysctlTree) open(name string, flags int) (int, error) {
	if rest, ok := strings.CutPrefix(name, "mpls/"); ok {
		if t.mpls < 0 {
			return -1, unix.ENOENT
		}
		return unix.Openat(t.mpls, rest, flags|unix.O_CLOEXEC, 0)
	}
	if rest, ok := strings.CutPrefix(name, "ipv6/"); ok {
		return unix.Openat(t.v6, rest, flags|unix.O_CLOEXEC, 0)
	}
	return unix.Openat(t.v4, strings.TrimPrefix(name, "ipv4/"), flags|unix.O_CLOEXEC, 0)
}

// repair sets those that differ, and returns them. It leaves out settings that this kernel does not have.
func (t *sysctlTree) repair(settings []setting) ([]setting, error) {
	var differ []setting
	for _, s := range settings {
		same, err := t.is(s)
		if err != nil {
			return differ, err
		}
		if same {
			continue
		}
		if err := t.write(s); err != nil {
			return differ, err
		}
		differ = append(differ, s)
	}
	return differ, nil
}

// is returns whether a setting is as wanted, or does not exist here.
func (t *sysctlTree) is(s setting) (bool, error) {
	fd, err := t.open(s.name, unix.O_RDONLY)
	if err == unix.ENOENT {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read sysctl net.%s: %w", dotted(s.name), err)
	}
	defer unix.Close(fd)
	var buf [64]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return false, fmt.Errorf("read sysctl net.%s: %w", dotted(s.name), err)
	}
	return s.suits(string(bytes.TrimSpace(buf[:n]))), nil
}

// suits returns whether a value is as wanted. A table of labels may be longer, since whoever is root inside may have
// labels of his own: making it shorter would throw them away.
func (s setting) suits(is string) bool {
	if s.name == platformLabels {
		places, err := strconv.Atoi(is)
		least, _ := strconv.Atoi(s.value)
		return err == nil && places >= least
	}
	return is == s.value
}

func (t *sysctlTree) write(s setting) error {
	fd, err := t.open(s.name, unix.O_WRONLY)
	if err == nil {
		_, err = unix.Write(fd, []byte(s.value))
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("set sysctl net.%s to %s: %w", dotted(s.name), s.value, err)
	}
	return nil
}

func dotted(name string) string { return strings.ReplaceAll(name, "/", ".") }

// repair sets those that differ in the calling thread's namespace, and returns them.
func (r *sysctlReader) repair(settings []setting) ([]setting, error) {
	t, err := r.tree()
	if err != nil {
		return nil, err
	}
	defer t.close()
	return t.repair(settings)
}

// right returns whether all are as wanted in the calling thread's namespace.
func (r *sysctlReader) right(settings []setting) (bool, error) {
	t, err := r.tree()
	if err != nil {
		return false, err
	}
	defer t.close()
	for _, s := range settings {
		if same, err := t.is(s); !same {
			return false, err
		}
	}
	return true, nil
}
