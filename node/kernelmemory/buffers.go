package kernelmemory

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// socketLists are files of /proc/net that list sockets whose buffers the kernel charges to nobody, with the columns of
// the bytes waiting in them and of the socket's inode. Buffers of UDP, TCP and Unix sockets are charged.
var socketLists = []struct {
	file          string
	buffer, inode int
	hexadecimal   bool // "what waits to be sent:to be read"
}{
	{"netlink", 4, netlinkInode, false},
	{"packet", 6, 8, false},
	{"raw", 4, 9, true},
	{"raw6", 4, 9, true},
	{"icmp", 4, 9, true},
	{"icmp6", 4, 9, true},
}

// packetLists are files of /proc/net that list what netfilter keeps for its listeners. They have the columns of the
// listener's netlink port and of how many messages or packets wait, and how many bytes to count for each line, and for
// each of what waits. The listener of a log chooses how large the buffer is that its first packet allocates: at most
// 128 KiB, for which the kernel takes 256. It counts before that packet comes, since one can be logged to all groups at
// once. The size of a packet that waits for a verdict is not told; it is at most 64 KiB.
var packetLists = []struct {
	file            string
	port, waits     int
	perLine, perOne int64
}{
	{"netfilter/nfnetlink_log", 1, 2, 256 << 10, 0},
	{"netfilter/nfnetlink_queue", 1, 2, 0, 4 << 10},
}

// kept is what netfilter keeps for listeners, by their netlink port.
func kept() (of map[string]int64, err error) {
	of = map[string]int64{}
	for _, list := range packetLists {
		f, err := os.Open("/proc/thread-self/net/" + list.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without
		}
		if err != nil {
			return nil, fmt.Errorf("read what netfilter keeps for its sockets: %w", err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) <= max(list.port, list.waits) {
				continue
			}
			if n, err := strconv.ParseInt(fields[list.waits], 10, 64); err == nil {
				of[fields[list.port]] += list.perLine + n*list.perOne
			}
		}
		err = lines.Err()
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read what netfilter keeps for its sockets: %w", err)
		}
	}
	return of, nil
}

// Columns of /proc/net/netlink.
const (
	netlinkProtocol = 1
	netlinkPort     = 2
	netlinkInode    = 9
)

// buffers says how much the sockets of a namespace buffer, or have buffered for them, by the socket's inode. The
// calling thread must be in the namespace.
func buffers() (of map[uint64]int64, sum int64, err error) {
	of = map[uint64]int64{}
	listeners, err := kept()
	if err != nil {
		return nil, 0, err
	}
	for _, list := range socketLists {
		err := eachSocket(list.file, list.inode, func(fields []string, inode uint64) {
			if len(fields) <= list.buffer {
				return
			}
			var size int64
			var err error
			if list.hexadecimal {
				out, in, _ := strings.Cut(fields[list.buffer], ":")
				sent, err1 := strconv.ParseInt(out, 16, 64)
				read, err2 := strconv.ParseInt(in, 16, 64)
				size, err = sent+read, errors.Join(err1, err2)
			} else {
				size, err = strconv.ParseInt(fields[list.buffer], 10, 64)
			}
			if list.file == "netlink" && fields[netlinkProtocol] == strconv.Itoa(unix.NETLINK_NETFILTER) {
				size += listeners[fields[netlinkPort]]
			}
			if err == nil && size > 0 {
				of[inode] += size
				sum += size
			}
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return of, sum, nil
}

// eachSocket calls each for every line of a file of /proc/net that lists sockets, with the inode in one of its columns.
// The calling thread must be in the namespace.
func eachSocket(file string, column int, each func(fields []string, inode uint64)) error {
	f, err := os.Open("/proc/thread-self/net/" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without
	}
	if err != nil {
		return fmt.Errorf("read what its sockets buffer: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= column {
			continue
		}
		if inode, err := strconv.ParseUint(fields[column], 10, 64); err == nil { // not the titles
			each(fields, inode)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what its sockets buffer: %w", err)
	}
	return nil
}

// holder is a process, and how much of something it holds.
type holder struct {
	pid  int
	fd   int // a descriptor of the process, even if its number is another's later
	has  int64
	many int // sockets
}

// holders returns the processes of the namespace, those that hold most first. `of` says what a socket counts for; a
// socket that is not in it counts for nothing.
func (s *space) holders(of map[uint64]int64) (all []holder, err error) {
	var here unix.Stat_t
	if err := unix.Fstat(s.fd, &here); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := "/proc/" + entry.Name()
		var at unix.Stat_t
		if unix.Stat(dir+"/ns/net", &at) != nil || at.Ino != here.Ino || at.Dev != here.Dev {
			continue
		}
		h := holder{pid: pid}
		if h.fd, err = unix.PidfdOpen(pid, 0); err != nil {
			continue // it has ended
		}
		files, _ := os.ReadDir(dir + "/fd")
		for _, f := range files {
			to, _ := os.Readlink(dir + "/fd/" + f.Name())
			if word, ok := strings.CutPrefix(to, "socket:["); ok {
				inode, _ := strconv.ParseUint(strings.TrimSuffix(word, "]"), 10, 64)
				h.has += of[inode]
				h.many++
			}
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.has, a.has), cmp.Compare(b.many, a.many))
	})
	return all, nil
}

func closeAll(all []holder) {
	for _, h := range all {
		unix.Close(h.fd)
	}
}

// trimBuffers ends processes, those whose sockets buffer most first, until the rest is within the limit. The kernel
// does the same when memory is used up. A socket that is in no process, because it is under way in another socket, goes
// only when all processes have ended.
func (s *space) trimBuffers(most int64) (ended int, err error) {
	var of map[uint64]int64
	var sum int64
	err = linux.Inside(s.fd, func() (err error) {
		of, sum, err = buffers()
		return err
	})
	if err != nil || sum <= most {
		return 0, err
	}
	all, err := s.holders(of)
	if err != nil {
		return 0, err
	}
	defer closeAll(all)
	for _, h := range all {
		if sum <= most {
			break
		}
		if unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0) == nil {
			ended++
			sum -= h.has
		}
	}
	return ended, nil
}

// endMost ends the process that has the most sockets, for where one cannot see which of them takes something.
func (s *space) endMost() (ended int, err error) {
	all, err := s.holders(nil)
	if err != nil {
		return 0, err
	}
	defer closeAll(all)
	if len(all) == 0 || all[0].many == 0 {
		return 0, nil
	}
	if unix.PidfdSendSignal(all[0].fd, unix.SIGKILL, nil, 0) == nil {
		ended = 1
	}
	return ended, nil
}
