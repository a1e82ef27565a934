package agent

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// meter measures what the processes of a node's elements use, by the control group that they share.
type meter struct {
	cgroup string
	at     time.Time
	used   time.Duration // of processor time, then
	cores  float64
}

// least is the shortest time over which processor use is computed.
const least = time.Second

// read returns the memory in use, and the cores in use since the last call, or since the one before if the last was
// just now.
func (m *meter) read() (float64, model.Bytes) {
	now := time.Now()
	if used, ok := m.cpu(); !ok {
		m.at, m.cores = time.Time{}, 0
	} else if span := now.Sub(m.at); m.at.IsZero() || span >= least {
		if !m.at.IsZero() && used >= m.used {
			m.cores = (used - m.used).Seconds() / span.Seconds()
		}
		m.at, m.used = now, used
	}
	return m.cores, m.memory()
}

// cpu reads control groups v1, where the machine has them, or v2 (cgroups(7)).
func (m *meter) cpu() (time.Duration, bool) {
	if n, ok := readNumber(filepath.Join("/sys/fs/cgroup/cpuacct", m.cgroup, "cpuacct.usage")); ok {
		return time.Duration(n), true
	}
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", m.cgroup, "cpu.stat"))
	if err != nil {
		return 0, false // no element has processes
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "usage_usec "); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

func (m *meter) memory() model.Bytes {
	for _, path := range []string{
		filepath.Join("/sys/fs/cgroup/memory", m.cgroup, "memory.usage_in_bytes"),
		filepath.Join("/sys/fs/cgroup", m.cgroup, "memory.current"),
	} {
		if n, ok := readNumber(path); ok {
			return model.Bytes(n)
		}
	}
	return 0
}

func readNumber(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil && n >= 0
}
