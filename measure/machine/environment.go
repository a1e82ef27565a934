package machine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/netdev"
)

// Environment is everything about the machine that a figure may depend on.
type Environment struct {
	When        time.Time         `json:"when"`
	Kernel      string            `json:"kernel"`
	Machine     string            `json:"machine"` // architecture
	CPU         string            `json:"cpu"`
	Cores       int               `json:"cores"`
	Virtual     bool              `json:"virtual"` // under a hypervisor
	MemoryKiB   uint64            `json:"memory_kib"`
	Clock       string            `json:"clock"` // current clock source
	Governor    string            `json:"governor,omitempty"`
	CommandLine string            `json:"command_line"`
	Flaws       map[string]string `json:"mitigations"` // CPU flaw → what the kernel does about it
	Sysctls     map[string]string `json:"sysctls"`
	Load        string            `json:"load"` // load averages when the measurement began
	Version     string            `json:"version"`
	Go          string            `json:"go"`
	Devices     []Device          `json:"devices,omitempty"`
}

// Device is how a network device was set up.
type Device struct {
	Ref      netdev.Ref      `json:"ref"`
	Kind     string          `json:"kind"`
	MTU      int             `json:"mtu"`
	Queues   int             `json:"queues"`
	Features map[string]bool `json:"features"` // the offloads that matter here
}

// sysctls are the ones that change what packets cost or how they are queued.
var sysctls = []string{"net/core/bpf_jit_enable", "net/core/bpf_jit_harden", "net/core/netdev_budget",
	"net/core/netdev_budget_usecs",
	"net/core/dev_weight", "net/core/default_qdisc", "net/ipv4/tcp_congestion_control", "kernel/bpf_stats_enabled",
	"kernel/sched_rt_runtime_us"}

var features = []string{"rx-gro", "tx-tcp-segmentation", "tx-generic-segmentation",
	"tx-checksum-ip-generic", "rx-checksum"}

// Describe reads the environment, and how the given devices are set up.
func Describe(devices ...netdev.Ref) (Environment, error) {
	e := Environment{When: time.Now().UTC(), Cores: runtime.NumCPU(), Go: runtime.Version(), Flaws: map[string]string{},
		Sysctls:     map[string]string{},
		Clock:       line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor:    line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		CommandLine: line("/proc/cmdline"), Load: line("/proc/loadavg"), Version: version(),
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return e, fmt.Errorf("describe the machine: %w", err)
	}
	e.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
	e.Machine = unix.ByteSliceToString(u.Machine[:])
	if err := e.readCPU(); err != nil {
		return e, fmt.Errorf("describe the machine: %w", err)
	}
	flaws, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*") // only a malformed pattern fails
	for _, f := range flaws {
		e.Flaws[filepath.Base(f)] = line(f)
	}
	for _, s := range sysctls {
		if v := line(filepath.Join("/proc/sys", s)); v != "" {
			e.Sysctls[strings.ReplaceAll(s, "/", ".")] = v
		}
	}
	for _, r := range devices {
		d, err := describeDevice(r)
		if err != nil {
			return e, fmt.Errorf("describe device %v: %w", r, err)
		}
		e.Devices = append(e.Devices, d)
	}
	return e, nil
}

func (e *Environment) readCPU() error {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			e.CPU = strings.TrimSpace(value)
		case "flags":
			e.Virtual = strings.Contains(" "+value+" ", " hypervisor ")
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(b)); len(fields) > 1 && fields[0] == "MemTotal:" {
		e.MemoryKiB, err = strconv.ParseUint(fields[1], 10, 64)
	}
	return err
}

func describeDevice(r netdev.Ref) (Device, error) {
	d := Device{Ref: r, Features: map[string]bool{}}
	err := netdev.In(r.Namespace, func() error {
		l, err := netlink.LinkByName(r.Name)
		if err != nil {
			return err
		}
		d.Kind, d.MTU, d.Queues = l.Type(), l.Attrs().MTU, l.Attrs().NumRxQueues
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		all, err := e.Features(r.Name)
		if err != nil {
			return err
		}
		for _, f := range features {
			if v, ok := all[f]; ok {
				d.Features[f] = v
			}
		}
		return nil
	})
	return d, err
}

// version is the commit that this binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v = s.Value
		}
	}
	return v
}

// line reads a one-line file; what is not there is empty.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
