package netns

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// A network namespace belongs to the user namespace of the process that makes it, and a process with several threads
// cannot change its user namespace. So a short-lived child makes the namespaces: this same program, started inside the
// network's user namespace. It makes as many as it is asked for, and hands them back as file descriptors.

// childName is the child's only argument.
const childName = "polyplane-namespaces"

// The child's file descriptors beside the standard ones.
const (
	childSocket = 3 // where namespaces and failures go
	childExe    = 4 // this program
	childProcs  = 5 // the first proc file system; through each of them the sysctls of procfsUses namespaces are set
)

// fdsPerMessage is how many namespaces travel in one message; all of them are of one request. The kernel's limit is
// 253.
const fdsPerMessage = 16

// childRequest is what the child reads from its standard input, until that ends.
type childRequest struct {
	Kinds []model.Kind // one namespace each, in one message
}

// requestsAhead is how many requests may wait for their answers. The child works on one while its answers to an earlier
// one are taken.
const requestsAhead = 2

// ChildMain does the child's work and ends the process if this process was started as the child. Otherwise it returns
// at once. The program's main must call it first: the child inherits nothing that needs cleaning up, and the program's
// own initialisation is all that its start takes.
func ChildMain() {
	if len(os.Args) != 2 || os.Args[1] != childName {
		return
	}
	if err := childWork(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childWork makes namespaces, as many as are asked for, until its standard input ends, and hands each over by its
// descriptor (unix(7), SCM_RIGHTS). Its thread is in the one made last, which nobody minds.
func childWork() error {
	runtime.LockOSThread()
	if err := limitUsers(); err != nil {
		return err
	}
	requests := gob.NewDecoder(os.Stdin)
	writers := map[model.Kind]*sysctlWriter{}
	for made := 0; ; {
		var request childRequest
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what to make: %w", err)
		}
		var fds []int
		for _, kind := range request.Kinds {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			w := writers[kind]
			if w == nil {
				w = &sysctlWriter{settings: sysctls(kind)}
				writers[kind] = w
			}
			if err := w.write(childProcs + made/procfsUses); err != nil {
				return err
			}
			fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open a new network namespace: %w", err)
			}
			fds = append(fds, fd)
			made++
		}
		err := unix.Sendmsg(childSocket, []byte{byte(len(fds))}, unix.UnixRights(fds...), nil, 0)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("hand over namespaces: %w", err)
		}
	}
}

// userLimits are what each user of a network may have of the things that the kernel counts by user namespace
// (/proc/sys/user). The kernel counts them for the namespace's owner as well, against the machine's limits.
var userLimits = []struct{ name, most string }{
	{"max_inotify_instances", "128"},
	{"max_inotify_watches", "65536"},
	{"max_fanotify_groups", "0"}, // a watch over a whole file system, such as the machine's /usr
	{"max_fanotify_marks", "0"},
}

// limitUsers sets userLimits in the calling process's user namespace. It leaves out those that this kernel does not
// have.
func limitUsers() error {
	for _, l := range userLimits {
		err := os.WriteFile("/proc/sys/user/"+l.name, []byte(l.most), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("limit what a user may have in the network: %w", err)
		}
	}
	return nil
}

// makeNamespaces makes one network namespace for each of kinds in the user namespace that is mounted at user. If user
// is empty, it makes a new user namespace that maps 65,536 IDs from base, and first hands keepUser its path. It calls
// each for every namespace, with its position and a descriptor that each must close; the sysctls are set by then. It
// makes none from the first position on that more refuses.
func makeNamespaces(user string, base uint32, kinds []model.Kind, keepUser func(path string) error,
	more func(i int) bool, each func(i, fd int)) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket pair: %w", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "namespaces")
	defer theirs.Close()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	defer exe.Close()

	program := fmt.Sprintf("/proc/self/fd/%d", childExe)
	cmd := &exec.Cmd{Path: program, Args: []string{"polyplane", childName}}
	if user == "" {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(base), Size: model.UIDsPerNetwork}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{Uid: 0, Gid: 0}}
	} else {
		cmd = exec.Command("nsenter", "--user="+user, "--", program, childName)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.ExtraFiles = []*os.File{theirs, exe}
	for n := 0; n < len(kinds); n += procfsUses {
		proc, err := newProcfs() // the child may not
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(proc.fd), "proc")
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// The death signal is tied to the thread that starts the child. asOwner keeps that thread as well.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if user == "" && mayRaise() {
		release, err := asOwner(base, cmd.Start)
		defer release()
		if err != nil {
			return fmt.Errorf("start a process in a new user namespace: %w", err)
		}
	} else if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process in the user namespace: %w", err)
	}
	theirs.Close()
	keepErr := error(nil)
	if user == "" {
		// The child waits for its request, so its user namespace exists while it is being mounted.
		keepErr = keepUser(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	}
	requests := requester{to: gob.NewEncoder(input), input: input, kinds: kinds, more: more}
	if keepErr != nil {
		requests.end()
	}
	for range requestsAhead {
		requests.next()
	}
	n, err := receiveNamespaces(pair[0], each, requests.next)
	if err != nil {
		cmd.Process.Kill() // nobody listens to it any more
	}
	waitErr := cmd.Wait()
	switch {
	case keepErr != nil:
		return keepErr
	case err != nil:
		return err
	case waitErr != nil:
		return fmt.Errorf("%s (%w)", strings.TrimSpace(stderr.String()), waitErr)
	case requests.err != nil:
		return fmt.Errorf("ask for namespaces: %w", requests.err)
	case n < requests.asked:
		return fmt.Errorf("only %d of %d namespaces were made", n, requests.asked)
	}
	return nil
}

// requester asks the child for namespaces.
type requester struct {
	to    *gob.Encoder
	input io.Closer
	kinds []model.Kind
	more  func(i int) bool
	asked int
	over  bool
	err   error
}

// next sends the next request, or says that there is none.
func (r *requester) next() {
	if r.over {
		return
	}
	first := r.asked
	for r.asked-first < fdsPerMessage && r.asked < len(r.kinds) && r.more(r.asked) {
		r.asked++
	}
	if r.asked > first {
		r.err = r.to.Encode(childRequest{Kinds: r.kinds[first:r.asked]})
	}
	if r.asked == first || r.err != nil {
		r.end()
	}
}

func (r *requester) end() {
	r.over = true
	r.input.Close() //nolint:errcheck // what the child says counts
}

// receiveNamespaces takes what the child hands over until the child has ended. It calls taken after each message.
func receiveNamespaces(socket int, each func(i, fd int), taken func()) (int, error) {
	n := 0
	data, control := make([]byte, 16), make([]byte, unix.CmsgSpace(4*fdsPerMessage))
	for {
		size, length, flags, _, err := unix.Recvmsg(socket, data, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("receive namespaces: %w", err)
		}
		if size == 0 {
			return n, nil
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return n, errors.New("receive namespaces: this process has too many open files (ulimit -n)")
		}
		messages, err := unix.ParseSocketControlMessage(control[:length])
		if err != nil {
			return n, fmt.Errorf("receive namespaces: %w", err)
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return n, fmt.Errorf("receive namespaces: %w", err)
			}
			for _, fd := range fds {
				each(n, fd)
				n++
			}
		}
		taken()
	}
}

// asOwner runs f with base as the effective user ID and with all capabilities, so that a user namespace which f makes
// belongs to base. The kernel counts many things by user: instances of inotify and fanotify, namespaces, pending
// signals, locked memory. It counts what is inside a user namespace for the namespace's owner as well. If that were
// root, all networks would share root's limits with the machine's own services. asOwner needs CAP_SYS_RESOURCE. Without
// it, as in some containers, runc can limit the processes inside only if root owns the user namespace. f runs on a
// thread of its own, which exists until release.
func asOwner(base uint32, f func() error) (release func(), err error) {
	const keepCapabilities = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	done, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_SECUREBITS, keepCapabilities, 0, 0, 0)
		if err == nil {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(base), ^uintptr(0)); e != 0 {
				err = e
			}
		}
		if err == nil {
			err = f()
		} else {
			err = fmt.Errorf("become the user that the network's root is: %w", err)
		}
		done <- err
		<-over
	}()
	return func() { close(over) }, <-done
}
