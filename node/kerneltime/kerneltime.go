// Package kerneltime measures for whose packets the kernel is working. No control group is charged for that time. The
// programs look at all processors of the machine, for a small part of the time, and charge the network namespaces of
// the devices that packets are on.
package kerneltime

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type owner -type charge -type where sample c/sample.c -- -O2 -mcpu=v3 -Wall -Werror

// Owner is a device of a network namespace.
type Owner struct {
	Space  uint32 // the namespace's inode
	Device uint32 // the device's index in it
}

// Time is how much of the processors the packets of an owner take.
type Time struct {
	// Taken is time that nobody is charged for, in cores. Own is time of processes of the same namespace. It is charged
	// to them, where the kernel does not subtract the time of soft interrupts (CONFIG_IRQ_TIME_ACCOUNTING).
	Taken, Own float64
}

// period is the time between two samples of a processor.
const period = 200 * time.Microsecond

// Sampler holds the programs, and one timer for each processor.
type Sampler struct {
	objects sampleObjects
	events  []int
}

// New loads the programs. It needs root in the machine's first namespaces.
func New() (*Sampler, error) {
	s := &Sampler{}
	if err := loadSampleObjects(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that measure time for packets: %w", err)
	}
	cpus, err := online()
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, cpu := range cpus {
		if err := s.timer(cpu); err != nil {
			s.Close()
			return nil, fmt.Errorf("a timer on processor %d: %w", cpu, err)
		}
	}
	return s, nil
}

func (s *Sampler) timer(cpu int) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(period), Bits: unix.PerfBitDisabled}
	attr.Size = uint32(unix.PERF_ATTR_SIZE_VER5)
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil // it went offline meanwhile
	}
	if err != nil {
		return err
	}
	s.events = append(s.events, fd)
	return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, s.objects.Sample.FD())
}

// Close lets go of everything.
func (s *Sampler) Close() {
	for _, fd := range s.events {
		unix.Close(fd)
	}
	s.objects.Close()
}

// Work is what was seen in some time.
type Work struct {
	Taken map[Owner]Time
	// Origins is how many packets a second began or ended in a namespace: those that processes sent, and those that TCP
	// received.
	Origins map[uint32]float64
}

// Measure looks for this long, and returns how much of the processors each owner took meanwhile.
func (s *Sampler) Measure(span time.Duration) (_ Work, err error) {
	if err := s.forget(); err != nil {
		return Work{}, err
	}
	var links []link.Link
	defer func() {
		for _, l := range links {
			err = errors.Join(err, l.Close())
		}
	}()
	for name, program := range map[string]*ebpf.Program{"softirq_entry": s.objects.SoftBegins,
		"softirq_exit":      s.objects.SoftEnds,
		"netif_receive_skb": s.objects.Received, "net_dev_start_xmit": s.objects.Sending,
		"xdp_devmap_xmit": s.objects.SendingXdp, "tcp_probe": s.objects.Taken} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
		if err != nil {
			return Work{}, fmt.Errorf("follow the kernel's tracepoint %s: %w", name, err)
		}
		links = append(links, l)
	}
	began := time.Now()
	for _, fd := range s.events {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return Work{}, fmt.Errorf("start a timer: %w", err)
		}
	}
	rest(span)
	for _, fd := range s.events {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
			return Work{}, fmt.Errorf("stop a timer: %w", err)
		}
	}
	return s.read(time.Since(began))
}

// read works out what the samples say.
func (s *Sampler) read(span time.Duration) (Work, error) {
	share := 1 / float64(span)
	all := Work{Taken: map[Owner]Time{}, Origins: map[uint32]float64{}}
	err := entries(s.objects.Charges, func(owner sampleOwner, charges []sampleCharge) {
		var t Time
		for _, c := range charges {
			t.Taken += float64(c.Taken) * share
			t.Own += float64(c.Own) * share
		}
		all.Taken[Owner{owner.Space, owner.Device}] = t
	})
	if err != nil {
		return all, err
	}
	return all, entries(s.objects.Origins, func(space uint32, packets []uint64) {
		for _, n := range packets {
			all.Origins[space] += float64(n) / span.Seconds()
		}
	})
}

// forget empties the accounts. Nothing writes into them meanwhile.
func (s *Sampler) forget() error {
	if err := empty[sampleOwner, sampleCharge](s.objects.Charges); err != nil {
		return err
	}
	if err := empty[uint32, uint64](s.objects.Origins); err != nil {
		return err
	}
	return s.objects.NowAt.Put(uint32(0), make([]sampleWhere, ebpf.MustPossibleCPU()))
}

// entries goes through an account.
func entries[K, V any](m *ebpf.Map, f func(K, []V)) error {
	var key K
	var values []V
	iterator := m.Iterate()
	for iterator.Next(&key, &values) {
		f(key, values)
	}
	if err := iterator.Err(); err != nil {
		return fmt.Errorf("read the account: %w", err)
	}
	return nil
}

func empty[K, V any](m *ebpf.Map) error {
	var keys []K
	if err := entries(m, func(k K, _ []V) { keys = append(keys, k) }); err != nil {
		return err
	}
	for _, k := range keys {
		if err := m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("empty the account: %w", err)
		}
	}
	return nil
}

// online are the processors' numbers (cpuset(7), "List format").
func online() ([]int, error) {
	const file = "/sys/devices/system/cpu/online"
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("list the processors: %w", err)
	}
	var all []int
	for part := range strings.SplitSeq(strings.TrimSpace(string(data)), ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || first > last {
			return nil, fmt.Errorf("%s says %q", file, data)
		}
		for n := first; n <= last; n++ {
			all = append(all, n)
		}
	}
	return all, nil
}

// SoftInterrupts is the time that all processors have spent in soft interrupts, as the kernel itself counts it at every
// tick (proc(5), /proc/stat).
func SoftInterrupts() (time.Duration, error) {
	fd, err := unix.Open("/proc/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read the processors' time: %w", err)
	}
	defer unix.Close(fd)
	var buf [256]byte // the first line has it
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, fmt.Errorf("read the processors' time: %w", err)
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	if fields := strings.Fields(line); len(fields) > 7 && fields[0] == "cpu" {
		if ticks, err := strconv.ParseInt(fields[7], 10, 64); err == nil {
			return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100 everywhere
		}
	}
	return 0, fmt.Errorf("/proc/stat begins with %q", line)
}
