package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// withDevices has two elements, one of them with many devices of its own, and returns this one.
func withDevices(t *testing.T, n *testNode, many int, kind string) model.ID {
	t.Helper()
	jobs := lineOf("lab", 2, 2)
	n.apply(t, jobs)
	mean := job(jobs, "r1").ID
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, "link add z%d type %s\n", i, kind)
	}
	n.run(t, mean, "sh", "-c", "ip -batch - <<'END'\n"+lines.String()+"END")
	return mean
}

// while returns how long somebody else waited at most for the kernel's lock while f ran, and how long all of it took
// until the kernel had let go of every namespace that f gave up.
func while(t *testing.T, f func()) (longest, all time.Duration) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "waits"
	other := &netlink.Veth{LinkAttrs: attrs, PeerName: "waitstoo"}
	h, err := netlink.NewHandle() // its sockets are of this namespace, whatever thread uses them
	if err == nil {
		err = h.LinkAdd(other)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	defer h.LinkDel(other) //nolint:errcheck // it goes with the namespace
	begin, stop, most := time.Now(), make(chan struct{}), make(chan time.Duration)
	go func() {
		var m time.Duration
		for {
			asked := time.Now()
			if err := h.LinkSetMTU(other, 1400); err != nil {
				t.Error(err)
			}
			m = max(m, time.Since(asked))
			select {
			case <-stop:
				most <- m
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	all = time.Since(begin)
	close(stop)
	return <-most, all
}

// TestManyBridgesHoldNobodyUp: an element with many bridges of its own goes, and others have their turns at the kernel's
// lock for network configuration meanwhile; by Remove, and by Purge when the driver is gone.
func TestManyBridgesHoldNobodyUp(t *testing.T) {
	const many = 60
	attack.Tell(t, fmt.Sprintf("an element with %d bridges is removed", many),
		"nobody waits for the kernel's lock until all bridges are gone, but for one at most")
	for name, goes := range map[string]func(n *testNode, id model.ID){
		"Remove": func(n *testNode, id model.ID) {
			if err := n.Remove(context.Background(), []model.ID{id}, false); err != nil {
				t.Error(err)
			}
		},
		"Purge": func(n *testNode, _ model.ID) {
			n.Close()
			if err := Purge(n.dirs); err != nil {
				t.Error(err)
			}
			n.restart(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			mean := withDevices(t, n, many, "bridge")
			namespace, err := os.Open(n.dirs.Namespace(mean))
			if err != nil {
				t.Fatal(err)
			}
			defer namespace.Close()
			left := func() (count int) {
				if err := linux.InsideWith(int(namespace.Fd()), func(c *linux.Rtnetlink) error {
					found, err := bridges(c)
					count = len(found)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				return count
			}
			if is := left(); is != many {
				t.Fatalf("it has %d bridges", is)
			}
			longest, all := while(t, func() {
				goes(n, mean)
				for deadline := time.Now().Add(5 * time.Minute); left() > 0; time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d bridges are left", left())
					}
				}
			})
			if longest > all/2 {
				t.Errorf("somebody waited for %s of %s", longest, all)
			}
			t.Logf("all bridges were gone after %s, others waited for %s at most", all, longest)
		})
	}
}

// TestDisturbedReadings: who makes and removes devices all the while does not keep the driver from its work.
func TestDisturbedReadings(t *testing.T) {
	n := newNode(t)
	mean := withDevices(t, n, 500, "veth")
	jobs := lineOf("lab", 2, 2)
	c := exec.Command("nsenter", "--net="+n.dirs.Namespace(mean), "sh", "-c",
		"for i in 1 2 3 4; do while :; do ip link add y$i type bridge; ip link del y$i; done & done; wait")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it runs until then
		c.Wait()                                      //nolint:errcheck // it was killed
	}()
	for range 3 {
		n.restart(t) // a new driver reads everything
		n.apply(t, jobs)
	}
}
