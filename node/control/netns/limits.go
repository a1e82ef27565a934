package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// The period of a CPU quota, and the weight of a whole core.
const (
	cpuPeriod  = 100_000 // microseconds
	coreShares = 1024
	leastQuota = 1000 // microseconds; the kernel refuses less
)

// resources are the element's limits. The CPU limit is a quota and a weight. All of them bind processes only, not
// forwarding.
func resources(el *model.NodeElement) *specs.LinuxResources {
	l := el.Limits()
	period, quota, shares := uint64(cpuPeriod), int64(-1), uint64(coreShares)
	if l.CPU > 0 {
		quota = max(leastQuota, int64(l.CPU)*cpuPeriod/1000)
		shares = max(2, uint64(l.CPU)*coreShares/1000)
	}
	pids, memory := int64(l.Processes), int64(l.Memory)
	limits := &specs.LinuxMemory{Limit: &memory}
	if countsSwap() {
		limits.Swap = &memory
	}
	return &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{Period: &period, Quota: &quota, Shares: &shares},
		Memory:  limits,
		Pids:    &specs.LinuxPids{Limit: &pids},
	}
}

// rlimits are the limits of each of the element's processes.
func rlimits(el *model.NodeElement) []specs.POSIXRlimit {
	files := uint64(el.Limits().OpenFiles)
	return []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: files, Soft: files},
		{Type: "RLIMIT_CORE", Hard: 0, Soft: 0}}
}

// firstRlimits stand for all later limits in the hash of what cannot change while a container runs: the limits were
// once part of that.
var firstRlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 4096, Soft: 1024},
	{Type: "RLIMIT_CORE", Hard: 0, Soft: 0}}

// limit changes the limits of a running container. It leaves the limit of open files alone unless the wanted one has
// changed: programs may have lowered their own.
func (d *Driver) limit(ctx context.Context, w *work, wasFiles string, spec *specs.Spec) error {
	container := containerID(w.job.ID)
	limits := *spec.Linux.Resources
	limits.Devices = nil
	data, err := json.Marshal(&limits)
	if err != nil {
		return fmt.Errorf("write the limits: %w", err)
	}
	if err := d.runRunc(ctx, data, nil, "update", "--resources", "-", container); err != nil {
		return fmt.Errorf("change its limits: %w", err)
	}
	if err := d.limitSockets(container, w.job.Element.Limits().Memory); err != nil {
		return err
	}
	if err := d.boundSockets(w.shift.cookie, w.job.Element.Limits().Memory); err != nil {
		return err
	}
	w.did(change.LimitsChanged)
	if spec.Annotations[noteOpenFiles] == wasFiles {
		return writeBundle(d.dirs.Bundle(w.job.ID), spec)
	}
	switch err := d.limitFiles(container, uint64(w.job.Element.Limits().OpenFiles)); {
	case errors.Is(err, unix.EPERM):
		w.did(change.FilesLater, noRaise)
	case err != nil:
		return fmt.Errorf("change its limit of open files: %w", err)
	}
	return writeBundle(d.dirs.Bundle(w.job.ID), spec)
}

// limitSockets bounds what the TCP and UDP sockets of a container buffer. Control groups v2 charge that to `memory`
// like everything else. With v1 the kernel charges it to nobody unless this limit is set before the sockets are made,
// and then it counts beside the memory limit. runc no longer sets it, so the group is made here, before runc finds it.
func (d *Driver) limitSockets(container string, memory model.Bytes) error {
	const root = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(filepath.Join(root, "memory.kmem.tcp.limit_in_bytes")); err != nil {
		return nil // v2
	}
	file := d.groupPath("memory", container, "memory.kmem.tcp.limit_in_bytes")
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, strconv.AppendInt(nil, int64(memory), 10), 0)
	}
	if err != nil {
		return fmt.Errorf("limit what its sockets buffer: %w", err)
	}
	return nil
}

// noRaise says why some limits cannot be raised while an element runs.
const noRaise = "polyplane lacks CAP_SYS_RESOURCE here, which raising it while it is used needs"

// limitFiles changes how many files the processes of a container may open. A new process inherits the limit from its
// parent. To find one that was just being started, it looks again a few times, and no more: an element that never stops
// starting processes must not hold up the node, and its new ones have the limit by then.
func (d *Driver) limitFiles(container string, files uint64) error {
	done := map[int]bool{}
	found := true
	for look := 0; found && look < 16; look++ {
		found = false
		pids, err := d.pidsOf(container)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if done[pid] {
				continue
			}
			done[pid], found = true, true
			limit := unix.Rlimit{Cur: files, Max: files}
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// pidsOf are the processes in a container's control group.
func (d *Driver) pidsOf(container string) ([]int, error) {
	data, err := d.readGroup("pids", container, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for word := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// groupPath is the path of a file of a container's control group: in the hierarchy of its controller with v1, in the
// common one with v2.
func (d *Driver) groupPath(controller, container, file string) string {
	if v1 := filepath.Join("/sys/fs/cgroup", controller); isDir(v1) {
		return filepath.Join(v1, d.cgroupOf(container), file)
	}
	return filepath.Join("/sys/fs/cgroup", d.cgroupOf(container), file)
}

func (d *Driver) readGroup(controller, container, file string) ([]byte, error) {
	return os.ReadFile(d.groupPath(controller, container, file))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// frozen returns whether a container's processes are held.
func (d *Driver) frozen(container string) bool {
	if data, err := d.readGroup("freezer", container, "freezer.state"); err == nil {
		return strings.TrimSpace(string(data)) != "THAWED"
	}
	data, err := d.readGroup("freezer", container, "cgroup.freeze")
	return err == nil && strings.TrimSpace(string(data)) == "1"
}

// thaw lets a container's processes go on. Held processes could not end.
func (d *Driver) thaw(container string) error {
	for file, word := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		err := os.WriteFile(d.groupPath("freezer", container, file), []byte(word), 0)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// suspend holds the element's processes, or lets them go on, as it is wanted. People's commands are held with them.
func (d *Driver) suspend(ctx context.Context, w *work) error {
	defer d.holds.take(w.job.ID)() // a short hold is no suspension
	suspended := w.job.Element.Suspended
	for _, container := range []string{containerID(w.job.ID), shellID(w.job.ID)} {
		if d.frozen(container) == suspended {
			continue
		}
		p, ok, err := d.readContainer(container)
		if err != nil {
			return err
		}
		fd := p.open()
		if !ok || fd < 0 {
			continue
		}
		unix.Close(fd)
		command, done := "resume", change.ElementResumed
		if suspended {
			command, done = "pause", change.ElementSuspended
		}
		if err := d.runRunc(ctx, nil, nil, command, container); err != nil {
			return err
		}
		if container == containerID(w.job.ID) {
			w.did(done)
		}
	}
	return nil
}
