package main

import (
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// capabilities are the numbers of those that routing software may need (capabilities(7)).
var capabilities = map[string]uint{"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_KILL": 5,
	"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13}

// becomeConfined becomes a command that has no other capabilities, and can get no others: root gets back with each
// program what the bounding set has.
func becomeConfined(names string, command []string) {
	var keep uint64
	for _, name := range strings.Split(names, ",") {
		number, known := capabilities[name]
		if !known {
			fail(126, "polyplane: there is no capability "+name+" for routing software")
		}
		keep |= 1 << number
	}
	runtime.LockOSThread() // they are a thread's, and the thread becomes the command
	for number := uint(0); number < 64; number++ {
		if keep>>number&1 != 0 {
			continue
		}
		_, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_CAPBSET_DROP, uintptr(number), 0)
		if err == syscall.EINVAL {
			break // the kernel knows no more
		}
		if err != 0 {
			fail(126, "polyplane: confine "+command[0]+": "+err.Error())
		}
	}
	// What is not inheritable any more is not ambient any more either.
	header := struct {
		version uint32
		pid     int32
	}{version: 0x20080522} // of this thread
	low, high := uint32(keep), uint32(keep>>32)
	sets := [2]struct{ effective, permitted, inheritable uint32 }{{low, low, low}, {high, high, high}}
	_, _, err := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&sets)), 0)
	if err != 0 {
		fail(126, "polyplane: confine "+command[0]+": "+err.Error())
	}
	become(command)
}
