package netdev

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// runAttr is the kernel's union bpf_attr for BPF_PROG_TEST_RUN.
type runAttr struct {
	progFD, retval, sizeIn, sizeOut uint32
	dataIn, dataOut                 uint64
	repeat, duration                uint32
	ctxSizeIn, ctxSizeOut           uint32
	ctxIn, ctxOut                   uint64
	flags, cpu, batch, _            uint32
}

// Of linux/bpf.h.
const (
	cmdTestRun     = 10     // BPF_PROG_TEST_RUN
	flagLiveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
)

// RunLive makes the kernel run an XDP program on live frames (Linux 5.18), on the calling thread: repeat of them, in
// batches, on pages that it fills with the data once. A signal ends the call; it is made again unless done says that
// this was all.
func RunLive(p *ebpf.Program, data []byte, repeat uint32, batch int, done func() bool) error {
	attr := runAttr{
		progFD: uint32(p.FD()), sizeIn: uint32(len(data)), dataIn: uint64(uintptr(unsafe.Pointer(&data[0]))),
		repeat: repeat, flags: flagLiveFrames, batch: uint32(batch),
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_BPF, cmdTestRun, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		runtime.KeepAlive(data)
		switch {
		case errno != 0 && errno != unix.EINTR && errno != unix.EAGAIN:
			return errno
		case done():
			return nil
		}
	}
}

// Gauge reads what a thread that sends has achieved: frames that left its device, and the CPU time that it used for
// them.
type Gauge struct {
	counter *os.File
	clock   int32
}

// NewGauge reads a device that only this thread sends out of. A veth counts the frames that XDP sends out of it when
// its peer takes them.
func NewGauge(r Ref, tid int) (*Gauge, error) {
	g := &Gauge{clock: int32(^tid)<<3 | 6} // CPUCLOCK_SCHED of one thread, see the kernel's posix-timers.h
	err := In(r.Namespace, func() error {
		return withSysfs(func(root string) (err error) {
			g.counter, err = os.Open(filepath.Join(root, "class/net", r.Name, "statistics/tx_packets"))
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read what %v has sent: %w", r, err)
	}
	return g, nil
}

// Read reads both, within a microsecond or two.
func (g *Gauge) Read() (frames uint64, used time.Duration, err error) {
	var b [24]byte
	n, err := unix.Pread(int(g.counter.Fd()), b[:], 0)
	if err != nil {
		return 0, 0, fmt.Errorf("read what a device has sent: %w", err)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(g.clock, &t); err != nil {
		return 0, 0, fmt.Errorf("read a thread's CPU time: %w", err)
	}
	frames, err = strconv.ParseUint(strings.TrimSpace(string(b[:n])), 10, 64)
	return frames, time.Duration(t.Nano()), err
}

// Close ends reading.
func (g *Gauge) Close() error { return g.counter.Close() }
