package netns

import (
	"runtime"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// refusedCalls are system calls that no routing software needs and that reach beyond namespaces, or parts of the kernel
// that have had more than their share of holes. Everything else is allowed: capabilities and the user namespace are the
// first line, this is the second.
var refusedCalls = []string{
	"acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_adjtime64", "clock_settime", "clock_settime64",
	"create_module", "delete_module", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "get_kernel_syms",
	"init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kexec_file_load",
	"kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr", "move_mount", "name_to_handle_at", "nfsservctl",
	"open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "query_module", "quotactl", "quotactl_fd", "reboot",
	"request_key", "settimeofday", "stime", "swapoff", "swapon", "sysfs", "syslog", "umount", "umount2", "uselib",
	"userfaultfd", "ustat", "vhangup", "vm86", "vm86old",
}

func seccompProfile() *specs.LinuxSeccomp {
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	newUser := []specs.LinuxSeccompArg{{Index: 0, Value: unix.CLONE_NEWUSER, ValueTwo: unix.CLONE_NEWUSER,
		Op: specs.OpMaskedEqual}}
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: seccompArchitectures[runtime.GOARCH],
		Syscalls: []specs.LinuxSyscall{
			{Names: refusedCalls, Action: specs.ActErrno, ErrnoRet: &eperm},
			{Names: []string{"clone", "unshare"}, Action: specs.ActErrno, ErrnoRet: &eperm, Args: newUser},
			// Its flags are in memory, which a filter cannot read; the C library falls back to clone.
			{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &enosys},
		},
	}
}

// seccompArchitectures are a machine's own and those whose programs it also runs.
var seccompArchitectures = map[string][]specs.Arch{
	"amd64": {specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
	"arm64": {specs.ArchAARCH64, specs.ArchARM},
}
