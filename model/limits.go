package model

import "strconv"

// What an element's processes are limited to where it states nothing: nothing that an element takes of its machine is
// without a bound. FRR with all its protocols needs a fifth of this memory, and some forty tasks.
const (
	DefaultMemory    = Bytes(256 << 20)
	DefaultProcesses = 1024
	DefaultFiles     = 4096
	DefaultDisk      = Bytes(256 << 20)
	// A neighbour takes some 0.5 KiB of the kernel's memory, a tracked connection 256 bytes.
	DefaultNeighbours  = 8192
	DefaultConnections = 65536
)

// Limits of what an element may ask for.
const (
	MinProcesses = 64                // FRR with all its protocols has some forty tasks
	MaxProcesses = 1 << 22           // the kernel's own limit on 64-bit machines (PID_MAX_LIMIT)
	MinFiles     = 256               // FRR's daemons hold some thirty each
	MaxFiles     = 1 << 20           // the kernel's default of fs.nr_open
	MinDisk      = Bytes(16 << 20)   // less holds no file system with a journal
	MaxDisk      = Bytes(4096 << 30) // more than any element's files need, and far below ext4's limit

	MinNeighbours  = 256     // a few subnets' worth
	MaxNeighbours  = 1 << 22 // 2 GiB of them
	MinConnections = 1024
	MaxConnections = 1 << 22 // 1 GiB of them
)

// Limits are what an element's processes may take. CPU is unlimited when zero; nothing else ever is zero.
type Limits struct {
	CPU       CPU   `json:"cpu,omitempty"`
	Memory    Bytes `json:"memory"`
	Processes int   `json:"processes"` // processes and threads
	Files     int   `json:"files"`     // open files of each process
	Disk      Bytes `json:"disk"`      // of its own files, with a file for each 16 KiB
	// Neighbours (ARP, neighbour discovery) beside those that the network's file makes known, and Connections that its
	// packet filter tracks: the kernel's memory, which it charges to nobody.
	Neighbours  int `json:"neighbours"`
	Connections int `json:"connections"`
}

// Limits are the element's own, or the defaults where it states none.
func (e *Element) Limits() Limits {
	l := Limits{CPU: e.CPU, Memory: e.Memory, Processes: e.Processes, Files: e.Files, Disk: e.Disk,
		Neighbours: e.Neighbours, Connections: e.Connections}
	otherwise(&l.Memory, DefaultMemory)
	otherwise(&l.Processes, DefaultProcesses)
	otherwise(&l.Files, DefaultFiles)
	otherwise(&l.Disk, DefaultDisk)
	otherwise(&l.Neighbours, DefaultNeighbours)
	otherwise(&l.Connections, DefaultConnections)
	return l
}

func otherwise[T comparable](v *T, usual T) {
	if *v == *new(T) {
		*v = usual
	}
}

// checkLimits tells which of an element's limits is impossible, and why; zero says nothing and is fine.
func checkLimits(e *Element) (field, problem string) {
	between := func(name string, is, least, most int, unit, why string) bool {
		if is == 0 || is >= least && is <= most {
			return false
		}
		field, problem = name, name+" "+strconv.Itoa(is)+" is less than the "+strconv.Itoa(least)+" that "+why
		if is > most {
			problem = name + " " + strconv.Itoa(is) + " is more " + unit + " than Linux has (" + strconv.Itoa(most) + " are allowed)"
		}
		return true
	}
	switch {
	case between("processes", e.Processes, MinProcesses, MaxProcesses, "processes", "routing software needs"):
	case between("files", e.Files, MinFiles, MaxFiles, "open files", "routing software needs"):
	case between("neighbours", e.Neighbours, MinNeighbours, MaxNeighbours, "neighbours", "a few subnets have"):
	case between("connections", e.Connections, MinConnections, MaxConnections, "tracked connections", "a small NAT needs"):
	case e.Disk != 0 && e.Disk < MinDisk:
		return "disk", "disk " + e.Disk.String() + " is less than the " + MinDisk.String() + " that a file system needs"
	case e.Disk > MaxDisk:
		return "disk", "disk " + e.Disk.String() + " is more than an element may have (" + MaxDisk.String() + ")"
	}
	return field, problem
}
