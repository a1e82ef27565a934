package netns

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

var _ control.Examiner = (*Driver)(nil)

// mostTasks bounds how many tasks of an element are looked at: it makes no difference whether three hundred or three
// thousand want a processor.
const mostTasks = 512

// Examine is control.Examiner's. It does not hold the driver's lock, so what it looks at may vanish meanwhile.
func (d *Driver) Examine(_ context.Context, id model.ID) (x control.Examined, ok bool) {
	d.mu.Lock()
	e := d.elements[id]
	fd := -1
	var wanted *want
	container := containerID(id)
	if e != nil {
		if !e.process.running() && (e.shells > 0 || e.kept) {
			container = shellID(id)
		}
		wanted = e.want
		if e.fd >= 0 {
			fd, _ = unix.FcntlInt(uintptr(e.fd), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	d.mu.Unlock()
	if fd < 0 || wanted == nil {
		return x, false
	}
	defer unix.Close(fd)
	x.Runnable = runnable(d.tasksOf(container))
	err := onThread(func() error {
		proc, err := newProcfs()
		if err != nil {
			return err
		}
		defer proc.close()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		if x.Connections, err = proc.connectionsHere(); err != nil {
			return err
		}
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		x.Neighbours, err = trimNeighbours(c, wanted, math.MaxInt) // counts only
		return err
	})
	return x, err == nil
}

// tasksOf are the directories of the tasks of a container's processes.
func (d *Driver) tasksOf(container string) (tasks []string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, root := range append(roots, "/sys/fs/cgroup") {
		data, err := os.ReadFile(filepath.Join(root, d.cgroupOf(container), "cgroup.procs"))
		if err != nil {
			continue
		}
		for pid := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(pid); err != nil || n <= 0 {
				continue
			}
			of, _ := filepath.Glob("/proc/" + pid + "/task/*")
			if tasks = append(tasks, of...); len(tasks) >= mostTasks {
				return tasks[:mostTasks]
			}
		}
		return slices.Clip(tasks)
	}
	return nil
}

// runnable counts the tasks that run or wait for a processor.
func runnable(tasks []string) (n int) {
	for _, t := range tasks {
		data, err := os.ReadFile(t + "/stat")
		if err != nil {
			continue
		}
		// The name is in parentheses and may hold anything; what follows the last one is the state.
		if i := strings.LastIndex(string(data), ") "); i >= 0 && i+2 < len(data) && data[i+2] == 'R' {
			n++
		}
	}
	return n
}
