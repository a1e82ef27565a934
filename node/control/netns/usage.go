package netns

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

var _ control.Meter = (*Driver)(nil)

// Usage reads what the elements with processes use, from their control groups and disks.
func (d *Driver) Usage(context.Context) map[model.ID]control.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[model.ID]control.Usage{}
	for id, e := range d.elements {
		container := containerID(id)
		switch {
		case e.process.running():
		case e.shells > 0 || e.kept:
			container = shellID(id)
		default:
			continue
		}
		u := d.usageOf(container)
		u.Limits, u.Fresh = e.job.Element.Limits(), !e.process.began.IsZero()
		u.Disk, u.DiskFull, _ = d.diskUsage(id)
		u.DiskShare = d.DiskShare(id)
		all[id] = u
	}
	return all
}

// usageOf reads a container's control groups. Of each figure the files of v1 and v2 are tried, since a machine may have
// either, or both side by side (Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel).
func (d *Driver) usageOf(container string) (u control.Usage) {
	if n, ok := d.groupNumber("cpuacct", container, "cpuacct.usage"); ok {
		u.CPU = time.Duration(n)
	}
	cpu := d.groupFields("cpu", container, "cpu.stat")
	if n, ok := cpu["usage_usec"]; ok {
		u.CPU = time.Duration(n) * time.Microsecond
	}
	if u.Throttled = time.Duration(cpu["throttled_time"]); u.Throttled == 0 {
		u.Throttled = time.Duration(cpu["throttled_usec"]) * time.Microsecond
	}
	memory, v1 := d.groupNumber("memory", container, "memory.usage_in_bytes")
	stat := d.groupFields("memory", container, "memory.stat")
	cache := stat["total_inactive_file"]
	if !v1 {
		memory, _ = d.groupNumber("memory", container, "memory.current")
		cache = stat["inactive_file"]
	}
	u.Memory = model.Bytes(max(0, memory-cache)) // memory that the kernel would give back does not count as used
	u.Killed = d.groupFields("memory", container, "memory.oom_control")["oom_kill"] +
		d.groupFields("memory", container, "memory.events")["oom_kill"]
	n, _ := d.groupNumber("pids", container, "pids.current")
	u.Processes = int(n)
	u.Refused = d.groupFields("pids", container, "pids.events")["max"]
	return u
}

func (d *Driver) groupNumber(controller, container, file string) (int64, bool) {
	data, err := d.readGroup(controller, container, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// groupFields reads a file of lines "word number". It leaves out what it cannot read.
func (d *Driver) groupFields(controller, container, file string) map[string]int64 {
	data, err := d.readGroup(controller, container, file)
	if err != nil {
		return nil
	}
	fields := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		word, text, _ := strings.Cut(s.Text(), " ")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			fields[word] = n
		}
	}
	return fields
}
