package netns

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// Annotations in a bundle tell a restarted agent with what the container was started.
const (
	noteSpec      = "polyplane.spec"      // hash of everything that cannot change while a container runs
	noteResources = "polyplane.resources" // a hash of the limits
	noteOpenFiles = "polyplane.openfiles" // how many files each process may have open
	noteRestarts  = "polyplane.restarts"  // the requested restarts that it has had
	noteFiles     = "polyplane.files"     // hash of what the software reads only at its start
	// hash of the configuration that was written last and that the software has read
	noteConfig = "polyplane.config"
	noteAgain  = "polyplane.again" // how often its processes were started again
	// hash of what its owner has run, as it was taken over last
	noteService = "polyplane.service"
	// how often files that it may have read were written while it ran
	noteGiven = "polyplane.given"
)

// shellCapabilities are what a person's commands may use inside an element: everything about its network and its own
// files, nothing that reaches the machine.
var shellCapabilities = []string{"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
	"CAP_FSETID", "CAP_KILL",
	"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	"CAP_SYS_NICE", "CAP_SYS_PTRACE"}

// capabilitiesOf are those of an element's first process. The program that runs what the owner has run gives routing
// software beside it only those that this needs.
func capabilitiesOf(plan *software.Plan) []string {
	if plan.Service != nil {
		return shellCapabilities
	}
	return plan.Capabilities
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// newSpec returns the OCI configuration of an element's container.
func (d *Driver) newSpec(job *control.Job, container string, command, capabilities []string) *specs.Spec {
	id, el := job.ID, &job.Element
	base := model.UIDBase(job.Index)
	mapping := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: model.UIDsPerNetwork}}
	args := command
	if !software.IsInit(command) {
		args = append([]string{"/usr/bin/tini", "-g", "--"}, command...)
	}
	env, list := environment(job.Called(), nil), mounts()
	if el.Image != "" {
		env, list = imageEnvironment(job.Called(), el), imageMounts(el)
	}
	s := &specs.Spec{
		Version:  "1.0.2",
		Hostname: el.Name,
		Root:     &specs.Root{Path: d.rootfs(id)},
		Process: &specs.Process{
			Args:            args,
			Env:             env,
			Cwd:             "/",
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities,
				Permitted: capabilities, Inheritable: capabilities, Ambient: capabilities},
			Rlimits: rlimits(el),
		},
		Mounts: withTmpfs(list, el.Tmpfs),
		Linux: &specs.Linux{
			UIDMappings: mapping,
			GIDMappings: mapping,
			CgroupsPath: d.cgroupOf(container),
			Resources:   resources(el),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace, Path: d.dirs.UserNamespace(id.Network)},
				{Type: specs.NetworkNamespace, Path: d.dirs.Namespace(id)},
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.IPCNamespace},
			},
			Seccomp: seccompProfile(),
			MaskedPaths: []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
				"/proc/scsi", "/proc/timer_list", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"},
		},
	}
	s.Annotations = map[string]string{noteSpec: hashOf(s, true),
		noteResources: hashOf([]any{s.Linux.Resources, s.Process.Rlimits}, false),
		noteOpenFiles: strconv.Itoa(el.Limits().OpenFiles), noteRestarts: strconv.FormatUint(uint64(el.Restarts), 10)}
	return s
}

// showPrograms mounts polyplane's own programs where the element runs them.
func (d *Driver) showPrograms(s *specs.Spec, plan *software.Plan) {
	for _, p := range plan.Programs {
		m := readOnly(p.Path)
		m.Source = filepath.Join(d.programsDir(), filepath.Base(p.Path))
		s.Mounts = append(s.Mounts, m)
	}
	s.Annotations[noteSpec] = hashOf(s, true)
}

// hashOf is a hash of a value's JSON. For a spec it leaves out what can change while the container runs.
func hashOf(v any, spec bool) string {
	if s, ok := v.(*specs.Spec); ok && spec {
		plain, linux, process := *s, *s.Linux, *s.Process
		plain.Annotations = nil
		linux.Resources, process.Rlimits = nil, firstRlimits
		plain.Linux, plain.Process = &linux, &process
		v = plain
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic("netns: an OCI configuration that is no JSON: " + err.Error()) // its types have no such values
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// environment are the variables of processes in an element, those of its owner's last.
func environment(id model.ID, own model.Variables) []string {
	all := []string{searchPath, "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"POLYPLANE_NETWORK=" + id.Network, "POLYPLANE_ELEMENT=" + id.Element}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		all = append(all, name+"="+own[name])
	}
	return all
}

// withTmpfs adds an owner's file systems in memory. Those at the path of one that is there take its place.
func withTmpfs(list []specs.Mount, own map[string]model.Bytes) []specs.Mount {
	for _, path := range slices.Sorted(maps.Keys(own)) {
		size := "size=" + strconv.FormatInt(int64(own[path]), 10)
		at := slices.IndexFunc(list, func(m specs.Mount) bool { return m.Destination == path })
		if at >= 0 && list[at].Type == "tmpfs" {
			list[at].Options = append(slices.DeleteFunc(slices.Clone(list[at].Options),
				func(o string) bool { return strings.HasPrefix(o, "size=") }), size)
			continue
		}
		list = append(list, specs.Mount{Destination: path, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=1777", size}})
	}
	return list
}

// countsSwap returns whether the kernel limits swap: always with control groups v2, and with v1 only if it was built or
// booted so.
var countsSwap = sync.OnceValue(func() bool {
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
})

// sharedFiles are parts of the machine's /etc that programs in /usr need; they hold no secrets. Those that a machine
// does not have are left out.
var sharedFiles = model.SharedFiles

// kernelMounts are the file systems of every container that are the kernel's.
func kernelMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime",
			"mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			// of the machine's (kernel.pty.max)
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=128"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev",
			"mode=1777", "size=16m"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/run", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=755", "size=32m"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=1777", "size=128m"}},
	}
}

// mounts are a container's file systems, beside its own root.
func mounts() []specs.Mount {
	list := append(kernelMounts(), readOnly("/usr"))
	for _, path := range sharedFiles {
		if _, err := os.Stat(path); err == nil {
			list = append(list, readOnly(path))
		}
	}
	for _, dir := range systemDirs {
		if info, err := os.Lstat("/" + dir); err == nil && info.IsDir() {
			list = append(list, readOnly("/"+dir))
		}
	}
	return list
}

// systemDirs are links into /usr on Debian 12 and newer, and directories on older machines.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// readOnly mounts one of the machine's files or directories, with the mounts below it: the kernel shows a user
// namespace either both or neither.
func readOnly(path string) specs.Mount {
	return specs.Mount{Destination: path, Type: "bind", Source: path,
		Options: []string{"rbind", "ro", "rro", "nosuid", "rnosuid", "nodev", "rnodev"}}
}

// writeBundle writes a container's bundle.
func writeBundle(dir string, s *specs.Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write an OCI configuration: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of an OCI bundle: %w", err)
	}
	temporary := filepath.Join(dir, "config.json.new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("write an OCI configuration: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, "config.json")); err != nil {
		return fmt.Errorf("write an OCI configuration: %w", err)
	}
	return nil
}

// bundleNotes reads a bundle's annotations. If there is no bundle, it returns none.
func bundleNotes(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read an OCI configuration: %w", err)
	}
	var s struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, nil // half written when the machine stopped, which is as good as none
	}
	return s.Annotations, nil
}
