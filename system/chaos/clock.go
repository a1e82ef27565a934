package chaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Everybody on the machine uses its clock, so nobody sets it here. Instead the processes under test are made to read
// another one. Go reads the time through the vDSO, a small library that the kernel maps into every process (vdso(7)).
// The harness replaces its function for the time by one that asks the kernel and adds an offset to CLOCK_REALTIME.
// Everything else stays.

// wallClock is how the vDSO's clock_gettime is replaced. All processes have the same image, at different addresses.
type wallClock struct {
	entry, tail uint64 // offsets in the image: of the function, and of unused room behind everything
}

// newWallClock looks at this process's own vDSO.
func newWallClock() (*wallClock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("the wall clock's replacement is machine code of amd64, this is %s", runtime.GOARCH)
	}
	start, end, err := vdsoOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, int64(start)); err != nil {
		return nil, fmt.Errorf("read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("the vDSO: %w", err)
	}
	w := &wallClock{}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			w.entry = s.Value
		}
	}
	w.tail = uint64(len(bytes.TrimRight(image, "\x00"))+63) &^ 63
	if w.entry == 0 || w.tail+uint64(len(clockCode(0))) > uint64(len(image)) {
		return nil, errors.New("the vDSO has no __vdso_clock_gettime, or no room")
	}
	return w, nil
}

// clockCode is int clock_gettime(clockid_t id, struct timespec *t) with an offset to CLOCK_REALTIME, in seconds.
func clockCode(offset int64) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
		0x75, 13, // jne to ret
		0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // mov rcx, offset
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	}
	binary.LittleEndian.PutUint64(code[13:], uint64(offset))
	return code
}

// set makes a process read a wall clock that is ahead of the machine's by so many whole seconds, or behind it if
// negative. The process stands still meanwhile.
func (w *wallClock) set(pid int, ahead time.Duration) error {
	start, _, err := vdsoOf(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	for range 100 {
		if err := hold(pid); err != nil {
			return err
		}
		if !w.entering(pid, start) {
			break
		}
		// A thread that is between the bytes that will be replaced must leave them first.
		unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // it is ours, or gone
		time.Sleep(time.Millisecond)
	}
	defer unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // likewise
	if _, err := mem.WriteAt(clockCode(int64(ahead/time.Second)), int64(start+w.tail)); err != nil {
		return fmt.Errorf("write to the vDSO of process %d: %w", pid, err)
	}
	jump := []byte{0xe9, 0, 0, 0, 0} // jmp rel32, from the next instruction
	binary.LittleEndian.PutUint32(jump[1:], uint32(w.tail-w.entry-5))
	_, err = mem.WriteAt(jump, int64(start+w.entry))
	return err
}

// hold stops a process and returns when all its threads stand.
func hold(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for range 2000 {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is right
		standing := len(stats) > 0
		for _, path := range stats {
			b, err := os.ReadFile(path)
			_, state, _ := strings.Cut(string(b), ") ")
			standing = standing && (err != nil || strings.HasPrefix(state, "T"))
		}
		if standing {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stand still", pid)
}

// entering tells whether a thread is within the bytes that the jump replaces.
func (w *wallClock) entering(pid int, start uint64) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid)) // the pattern is right
	for _, path := range calls {
		b, _ := os.ReadFile(path)
		fields := strings.Fields(string(b)) // proc(5): the last is the program counter
		if len(fields) < 2 {
			continue
		}
		at, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err == nil && at > start+w.entry && at < start+w.entry+5 {
			return true
		}
	}
	return false
}

// vdsoOf is where a process's vDSO begins and ends.
func vdsoOf(pid int) (start, end uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x ", &start, &end)
			return start, end, err
		}
	}
	return 0, 0, fmt.Errorf("process %d has no vDSO: %w", pid, io.ErrUnexpectedEOF)
}
