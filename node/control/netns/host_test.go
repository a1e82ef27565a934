package netns

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/sockets"
	"github.com/polyplane/polyplane/system/attack"
)

// protocolPages are what all sockets of a protocol on the machine buffer, in pages.
func protocolPages(t *testing.T, protocol string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == protocol+":" {
			for i := 1; i+1 < len(f); i += 2 {
				if f[i] == "mem" {
					n, _ := strconv.Atoi(f[i+1])
					return n
				}
			}
		}
	}
	t.Fatalf("/proc/net/sockstat does not tell what %s buffers", protocol)
	return 0
}

// TestSocketBuffersAreCharged fills receive buffers inside an element: what all of them hold is bounded by its memory.
func TestSocketBuffersAreCharged(t *testing.T) {
	attack.Tell(t, "an element's sockets are filled with datagrams that nobody reads",
		"no memory of others: what they hold is charged to it")
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	jobs[0].Element.Memory = 64 << 20
	n.apply(t, jobs)
	const fill = `use Socket; system "ip link set lo up"; socket my $tx, PF_INET, SOCK_DGRAM, 0; my @all;
		for (1 .. 400) { socket my $s, PF_INET, SOCK_DGRAM, 0 or die; setsockopt $s, SOL_SOCKET, SO_RCVBUF, 4 << 20;
			bind $s, pack_sockaddr_in 0, INADDR_LOOPBACK; push @all, $s; send $tx, "x" x 60000, 0, getsockname $s for 1 .. 8 }
		print scalar @all, " sockets\n"; open F, "<", "/proc/net/sockstat"; print grep /^UDP:/, <F>`
	before := protocolPages(t, "UDP")
	out := n.run(t, jobs[0].ID, "perl", "-e", fill)
	_, text, _ := strings.Cut(out, "UDP: inuse ")
	var sockets, pages int
	if _, err := fmt.Sscanf(text, "%d mem %d", &sockets, &pages); err != nil || sockets < 400 {
		t.Fatalf("it says %q (%v)", out, err)
	}
	took := (pages - before) * os.Getpagesize()
	t.Logf("%d sockets hold %d MiB of the %d MiB that were sent to them", sockets, took>>20, 400*8*60000>>20)
	if limit := 80 << 20; took > limit {
		t.Errorf("the sockets of an element with 64 MiB of memory hold %d MiB", took>>20)
	}
}

// TestNetworksAreUsersOfTheirOwn wants the user namespace of a network to belong to the network's own user, for the
// kernel counts what is taken inside by that user; to root only where root may not limit others' processes.
func TestNetworksAreUsersOfTheirOwn(t *testing.T) {
	attack.Tell(t, "inotify instances, and other things that the kernel counts by user",
		"they count for the network's own user")
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	n.apply(t, jobs)
	base := model.UIDBase(7)
	want := base
	if !mayRaise() {
		want = 0
	}
	if owner := userOwning(t, n.dirs.UserNamespace("lab")); owner != want {
		t.Errorf("the network's user namespace belongs to user %d, want %d", owner, want)
	}
	// How it is on machines whose root lacks nothing.
	c := exec.Command("sleep", "60")
	ids := []syscall.SysProcIDMap{{HostID: int(base), Size: model.UIDsPerNetwork}}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	release, err := asOwner(base, c.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait(); release() }() //nolint:errcheck // it was killed
	if owner := userOwning(t, fmt.Sprintf("/proc/%d/ns/user", c.Process.Pid)); owner != base {
		t.Errorf("a new user namespace belongs to user %d, want %d", owner, base)
	}
	for name, most := range map[string]string{"max_inotify_instances": "128", "max_inotify_watches": "65536",
		"max_fanotify_groups": "0"} {
		if is := strings.TrimSpace(n.run(t, jobs[0].ID, "cat", "/proc/sys/user/"+name)); is != most {
			t.Errorf("%s is %s inside an element, want %s", name, is, most)
		}
		if out := n.run(t, jobs[0].ID, "sh", "-c", "echo 1000000 2>/dev/null >/proc/sys/user/"+name+
			" && echo raised || true"); out != "" {
			t.Errorf("an element's root could raise %s", name)
		}
	}
}

func userOwning(t *testing.T, path string) (owner uint32) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.NS_GET_OWNER_UID,
		uintptr(unsafe.Pointer(&owner))); e != 0 {
		t.Fatal(e)
	}
	return owner
}

// TestRingsOfElementsAreBounded has an element's root take packet rings, as tcpdump does and without end: what the
// kernel charges to nobody is bounded by half of its memory, over the agent's restart, and Trim tells who wanted more.
func TestRingsOfElementsAreBounded(t *testing.T) {
	attack.Tell(t, "an element's root makes rings of packet sockets beyond its memory",
		"no memory of others: half of its own bound is granted")
	n := newNode(t)
	jobs := birdLine("lab", 7, 2)
	jobs[0].Element.Memory = 64 << 20
	n.apply(t, jobs)
	// One of 1 MiB after the other, each on a socket of its own; it tells how many it got and keeps them for a moment.
	take := func() (got int) {
		t.Helper()
		out := n.run(t, jobs[0].ID, "perl", "-e", `my @all; for (1 .. 200) { socket my $s, 17, 3, 0 or die "socket: $!";
			setsockopt $s, 263, 5, pack "L4", 1 << 20, 1, 2048, 512 or last; push @all, $s } print scalar @all`)
		if _, err := fmt.Sscan(out, &got); err != nil {
			t.Fatalf("it says %q: %v", out, err)
		}
		return got
	}
	if got := take(); got != 32 {
		t.Errorf("an element with 64 MiB of memory got %d MiB of rings, want 32", got)
	}
	// What is closed is given back when somebody has looked; who wanted more is named.
	trimmed := n.trimAll(t, 1)
	if len(trimmed) != 1 || trimmed[0].ID != jobs[0].ID || trimmed[0].Table != control.Rings || trimmed[0].Had != 1 ||
		trimmed[0].Limit != 32<<20 {
		t.Errorf("trimmed %+v", trimmed)
	}
	if got := take(); got != 32 {
		t.Errorf("after its rings were closed it got %d MiB, want 32", got)
	}
	n.restart(t)
	if got := n.apply(t, jobs); len(changes(got)) != 0 {
		t.Errorf("the next agent changed %q", changes(got))
	}
	n.trimAll(t, 1)
	jobs[0].Element.Memory = 128 << 20
	n.apply(t, jobs)
	if got := take(); got != 64 {
		t.Errorf("with 128 MiB of memory it got %d MiB of rings, want 64", got)
	}
	n.trimAll(t, 1)
	// The one that a person needs.
	if out := n.run(t, jobs[0].ID, "sh", "-c",
		"ip link set lo up; timeout 20 tcpdump -c1 -ni lo icmp 2>&1 & sleep 0.5; "+
			"while kill -0 $! 2>/dev/null; do ping -c1 -W1 127.0.0.1 >/dev/null; done"); !strings.Contains(out,
		"1 packet captured") {
		t.Errorf("tcpdump says %q", out)
	}
}

// TestSocketsStayBounded: an agent that was told of some elements only, as after its restart, or where the store has
// lost the others, leaves those bounded that it was not told of; what is dropped are the accounts of namespaces that
// are gone.
func TestSocketsStayBounded(t *testing.T) {
	attack.Tell(t, "an agent begins anew and is told of some elements only",
		"the others stay bounded")
	n := newNode(t)
	jobs := birdLine("lab", 7, 2)
	n.apply(t, jobs)
	accounts := func(want int, when string) {
		t.Helper()
		if known, err := n.sockets.guard.Known(); err != nil || len(known) != want {
			t.Errorf("%s the sockets of %d namespaces are bounded, want %d (%v)", when, len(known), want, err)
		}
	}
	if err := n.sockets.guard.Bound(1<<62, 1); err != nil { // of a namespace that is gone
		t.Fatal(err)
	}
	accounts(3, "at first")
	n.restart(t)
	n.apply(t, jobs[:1])
	n.trimAll(t, 1)
	accounts(2, "after the restart of an agent that is told of one of them")
	if err := n.Remove(t.Context(), []model.ID{jobs[0].ID}, false); err != nil {
		t.Fatal(err)
	}
	guard, err := sockets.Open(n.socketsDir())
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	if known, err := guard.Known(); err != nil || len(known) != 1 {
		t.Errorf("with one element left that the agent was not told of, the sockets of %d are bounded (%v)", len(known),
			err)
	}
}
