// Package netdev is what measurements need of network devices and the namespaces they are in: entering a namespace on a
// thread of its own, counters of drops, queues, and threaded NAPI.
package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Ref names a device: its network namespace as a path (/run/netns/a, /proc/123/ns/net; empty for our own) and its name
// there.
type Ref struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is for people.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Name + " in " + r.Namespace
}

// In runs f on a thread that is in the namespace; the thread ends afterwards, so nothing else ever runs there by
// mistake. An empty path means the caller's process's own namespace.
func In(namespace string, f func() error) error {
	namespace = cmp.Or(namespace, "/proc/self/ns/net")
	h, err := netns.GetFromPath(namespace)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", namespace, err)
	}
	defer h.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(h); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", namespace, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Pin keeps the calling thread on one CPU. The caller has locked its goroutine to the thread.
func Pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return nil
}

// First gives a thread (0: the calling one) the highest ordinary priority, nice −20, so that what else the machine does
// hardly delays it. Not a real-time one: that would starve the kernel's own softirq threads.
func First(tid int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, tid, -20); err != nil {
		return fmt.Errorf("raise the priority of thread %d: %w", tid, err)
	}
	return nil
}

// ThreadTime is the CPU time that the calling thread has used, softirq work done on its back included.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("the thread's CPU time cannot be read: " + err.Error()) // it exists on every Linux
	}
	return time.Duration(t.Nano())
}

// Schedule reads how long a thread has run, and how long it could have run while others had its core, from its
// schedstat file.
func Schedule(path string) (ran, waited time.Duration, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	var a, w int64
	if _, err := fmt.Sscan(string(b), &a, &w); err != nil {
		return 0, 0, fmt.Errorf("read %s: %w", path, err)
	}
	return time.Duration(a), time.Duration(w), nil
}

// ThreadWait is how long the calling thread could have run while others had its core; 0 where the kernel does not say.
func ThreadWait() time.Duration {
	_, waited, err := Schedule("/proc/thread-self/schedstat")
	if err != nil {
		return 0
	}
	return waited
}

// Drops counts frames that a veth lost where no program sees them.
type Drops struct {
	Received uint64 `json:"received"`  // on reception
	Sent     uint64 `json:"sent"`      // on transmission: the peer's receive ring was full
	RingFull uint64 `json:"ring_full"` // of Sent, those that were sent by XDP (xdp_xmit_errors)
}

// Sub is what was lost since an earlier reading.
func (d Drops) Sub(before Drops) Drops {
	return Drops{d.Received - before.Received, d.Sent - before.Sent, d.RingFull - before.RingFull}
}

// ReadDrops reads a device's drop counters. Devices without such statistics report none.
func ReadDrops(r Ref) (Drops, error) {
	var d Drops
	err := In(r.Namespace, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		stats, err := e.Stats(r.Name)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		for name, v := range stats {
			switch {
			case strings.HasPrefix(name, "tx_queue_") && strings.HasSuffix(name, "_xdp_xmit_errors"):
				d.RingFull += v
			case strings.HasPrefix(name, "rx_queue_") && strings.HasSuffix(name, "_drops") &&
				!strings.HasSuffix(name, "_xdp_drops"):
				d.Received += v
			}
		}
		return withSysfs(func(root string) error {
			var err error
			d.Sent, err = readUint(filepath.Join(root, "class/net", r.Name, "statistics/tx_dropped"))
			return err
		})
	})
	if err != nil {
		return d, fmt.Errorf("read the drop counters of %v: %w", r, err)
	}
	return d, nil
}

// Transmitted is how many frames a device has sent; a veth counts those that XDP sends out of it once its peer took
// them.
func Transmitted(r Ref) (n uint64, err error) {
	err = In(r.Namespace, func() error {
		return withSysfs(func(root string) error {
			n, err = readUint(filepath.Join(root, "class/net", r.Name, "statistics/tx_packets"))
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read what %v has sent: %w", r, err)
	}
	return n, nil
}

func setGRO(name string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, map[string]bool{"rx-gro": true})
}

// Queues counts a device's receive queues.
func Queues(r Ref) (int, error) {
	n := 0
	err := In(r.Namespace, func() error {
		return withSysfs(func(root string) error {
			dirs, err := filepath.Glob(filepath.Join(root, "class/net", r.Name, "queues/rx-*"))
			n = len(dirs)
			return err
		})
	})
	if err == nil && n == 0 {
		err = errors.New("no such device")
	}
	if err != nil {
		return 0, fmt.Errorf("count the receive queues of %v: %w", r, err)
	}
	return n, nil
}

// SetThreaded moves a device's NAPI into kernel threads of its own (or back), so that receiving no longer borrows the
// sender's CPU: without it a closed loop cannot lose anything. It returns the threads (named napi/DEVICE-N).
func SetThreaded(r Ref, on bool) ([]int, error) {
	v := "0"
	if on {
		v = "1"
	}
	before, err := NAPIThreads(r.Name)
	if err != nil {
		return nil, err
	}
	err = In(r.Namespace, func() error {
		return withSysfs(func(root string) error {
			return os.WriteFile(filepath.Join(root, "class/net", r.Name, "threaded"), []byte(v), 0)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("set threaded NAPI of %v: %w", r, err)
	}
	if !on {
		return nil, nil
	}
	after, err := NAPIThreads(r.Name)
	if err != nil {
		return nil, err
	}
	// Devices of the same name in other namespaces may have threads, too: the new ones are ours.
	if fresh := slices.DeleteFunc(slices.Clone(after),
		func(pid int) bool { return slices.Contains(before, pid) }); len(fresh) > 0 {
		return fresh, nil
	}
	if len(after) > 1 {
		return nil, fmt.Errorf("set threaded NAPI of %v: it is on already, and %d devices of that name have receive "+
			"threads, so that its own cannot be told apart; switch it off first", r, len(after))
	}
	return after, nil
}

// NAPIThreads finds the kernel threads that poll devices of this name, in whatever namespace: a thread's name tells the
// device's, cut to ten characters, and nothing else.
func NAPIThreads(device string) ([]int, error) {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	want := "napi/" + device + "-"
	if len(want) > 15 {
		want = want[:15]
	}
	var pids []int
	for _, c := range comms {
		b, err := os.ReadFile(c)
		if err == nil && strings.HasPrefix(string(b), want) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(c))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// PinThread keeps another thread on one CPU.
func PinThread(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pin thread %d to CPU %d: %w", tid, cpu, err)
	}
	return nil
}

// withSysfs mounts the current namespace's sysfs where only this thread sees it: /sys shows the namespace it was
// mounted in.
func withSysfs(f func(root string) error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return f("/sys")
}

func readUint(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}
