package netns

import (
	"runtime"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The system calls that an element's processes may make. All others are refused, so a call that a later kernel brings
// is not allowed before somebody has thought about it. (To calls newer than all that are named here, runc answers
// ENOSYS, as an older kernel would.) Capabilities and the user namespace are the first line of defence, this is the
// second. It is the only one where the kernel asks for no capability: new namespaces, io_uring, the keys of the
// machine.

// allowedCalls are allowed whatever their arguments are. runc leaves out names that an architecture, or this machine's
// libseccomp, does not know.
var allowedCalls = slices.Concat(
	// Files.
	[]string{"access", "chdir", "chmod", "chown", "chroot", "close", "close_range", "copy_file_range", "creat", "dup",
		"dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat",
		"fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr",
		"fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64",
		"getxattr", "ioctl", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "lremovexattr",
		"lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat",
		"openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
		"readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir",
		"sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
		"sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
		"write", "writev"},
	// Sockets. Which kinds of sockets may be made is said below.
	[]string{"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
		"recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair"},
	// Waiting.
	[]string{"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd",
		"eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "pause", "poll",
		"ppoll", "pselect6", "select", "signalfd", "signalfd4", "timerfd_create", "timerfd_gettime", "timerfd_settime"},
	// Memory.
	[]string{"brk", "madvise", "membarrier", "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap",
		"mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",
		"process_madvise", "process_mrelease", "remap_file_pages"},
	// Processes, and what a debugger needs to look at one's own.
	[]string{"alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex",
		"futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "getcpu", "getegid", "geteuid", "getgid",
		"getgroups", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
		"getresuid", "getrlimit", "get_robust_list", "getrusage", "getsid", "get_thread_area", "gettid", "getuid",
		"ioprio_get", "ioprio_set", "kcmp", "kill", "landlock_add_rule", "landlock_create_ruleset",
		"landlock_restrict_self", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "prlimit64", "process_vm_readv",
		"process_vm_writev", "ptrace", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
		"rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
		"sched_getaffinity", "sched_getattr", "sched_getparam", "sched_get_priority_max", "sched_get_priority_min",
		"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
		"sched_setscheduler", "sched_yield", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid",
		"setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "set_robust_list", "setsid",
		"set_thread_area", "set_tid_address", "setuid", "sigaltstack", "sysinfo", "tgkill", "tkill", "uname", "vfork",
		"wait4", "waitid"},
	// Time: to read it only.
	[]string{"clock_getres", "clock_gettime", "clock_nanosleep", "gettimeofday", "nanosleep", "time", "timer_create",
		"timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "times"},
	// Messages, semaphores and shared memory of System V and POSIX. The IPC namespace makes them the element's own.
	[]string{"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl",
		"msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget"},
)

// missingCalls get ENOSYS, as if the kernel did not have them. Programs then use others, while they would take "not
// permitted" for a failure.
var missingCalls = []string{
	// a page in a pipe keeps the whole block of a packet ring that it belongs to, when the ring is gone and no longer
	// counted
	"vmsplice",
	"clone3", // a filter cannot read its flags, which are in memory; C libraries use clone instead
	"io_uring_enter", "io_uring_register", "io_uring_setup",
	// fs.aio-max-nr is the machine's
	"io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit",
}

// families are the kinds of sockets that routing software and diagnostic tools need. The others are rarely examined
// parts of the kernel (AF_ALG, AF_RDS, AF_TIPC, AF_CAN…), or reach the machine past all namespaces (AF_VSOCK), or use
// memory that the kernel charges to nobody (AF_XDP).
var families = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_PACKET}

// netlinks are the parts of the kernel that may be spoken to by netlink: routes and devices, sockets (ss), packet
// filters and tracked connections (nft, conntrack), families with a name (ethtool, WireGuard), and events of devices
// (udev). NETLINK_XFRM is not among them, and neither is the family AF_KEY: the kernel charges the memory of IPsec's
// policies and states to nobody, and none of our routing software needs them. Nor is NETLINK_USERSOCK, since processes
// can keep messages in buffers that nobody is charged for.
var netlinks = []uint64{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_NETFILTER, unix.NETLINK_GENERIC,
	unix.NETLINK_KOBJECT_UEVENT}

// missingNetlinks are answered as if the kernel did not have them. Programs can deal with that: libaudit goes on
// without it, and `ip xfrm` says "Protocol not supported".
var missingNetlinks = []uint64{unix.NETLINK_XFRM, unix.NETLINK_AUDIT}

// newNamespaces are the flags of clone that make a new namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// personalities are Linux's own, the one without randomised memory addresses for debuggers, and the question which one
// is set.
var personalities = []uint64{0, 0x40000, 0xffffffff}

// seccompProfile lets through what is named, and answers all else as the kernel would that does not permit it. That is
// safer than naming what is refused: kernels get new calls.
func seccompProfile() *specs.LinuxSeccomp {
	eperm, enosys, einval := uint(unix.EPERM), uint(unix.ENOSYS), uint(unix.EINVAL)
	eprotonosupport := uint(unix.EPROTONOSUPPORT)
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm,
		Architectures: seccompArchitectures[runtime.GOARCH]}
	allow := func(names []string, args ...specs.LinuxSeccompArg) {
		p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: args})
	}
	refuse := func(errno *uint, names []string, args ...specs.LinuxSeccompArg) {
		p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActErrno,
			ErrnoRet: errno, Args: args})
	}
	allow(allowedCalls)
	refuse(&enosys, missingCalls)
	allow([]string{"clone"}, specs.LinuxSeccompArg{Index: 0, Value: newNamespaces, Op: specs.OpMaskedEqual})
	for _, value := range personalities {
		allow([]string{"personality"}, specs.LinuxSeccompArg{Index: 0, Value: value, Op: specs.OpEqualTo})
	}
	for _, family := range families {
		allow([]string{"socket"}, specs.LinuxSeccompArg{Index: 0, Value: family, Op: specs.OpEqualTo})
	}
	netlink := func(protocol uint64) []specs.LinuxSeccompArg {
		return []specs.LinuxSeccompArg{{Index: 0, Value: unix.AF_NETLINK, Op: specs.OpEqualTo},
			{Index: 2, Value: protocol, Op: specs.OpEqualTo}}
	}
	for _, protocol := range netlinks {
		allow([]string{"socket"}, netlink(protocol)...)
	}
	for _, protocol := range missingNetlinks {
		refuse(&eprotonosupport, []string{"socket"}, netlink(protocol)...)
	}
	// A filter of system calls takes part of the machine's memory for compiled programs (net.core.bpf_jit_limit). When
	// that is used up, no element can be started. So programs inside find a kernel without such filters.
	refuse(&einval, []string{"prctl"}, specs.LinuxSeccompArg{Index: 0, Value: unix.PR_SET_SECCOMP, Op: specs.OpEqualTo})
	allow([]string{"prctl"}, specs.LinuxSeccompArg{Index: 0, Value: unix.PR_SET_SECCOMP, Op: specs.OpNotEqual})
	refuse(&einval, []string{"seccomp"})
	return p
}

// seccompArchitectures are the machine's own only. Programs of other kinds (32-bit) are killed: their calls are a
// second and less examined way into the kernel. One of them, socketcall, has its arguments in memory, so it could make
// any socket. libseccomp allows it silently, together with the first call that it stands for.
var seccompArchitectures = map[string][]specs.Arch{"amd64": {specs.ArchX86_64}, "arm64": {specs.ArchAARCH64}}
