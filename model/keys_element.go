package model

// Amounts are what an element may take of its machine. CPU is a quota and a weight; the others are limits. Each is a
// key of the file, and the list in amounts says all there is to know of it.
type Amounts struct {
	CPU       CPU   `json:"cpu,omitempty"`
	Memory    Bytes `json:"memory,omitempty"`
	Processes int   `json:"processes,omitempty"` // and threads
	// OpenFiles are those of each process. Documents that are stored, and nodes that joined, know them as files.
	OpenFiles   int   `json:"files,omitempty" key:"open-files"`
	Disk        Bytes `json:"disk,omitempty"` // its own files
	Neighbours  int   `json:"neighbours,omitempty"`
	Connections int   `json:"connections,omitempty"` // tracked ones
	Devices     int   `json:"devices,omitempty"`     // of the network, beside its links' ends
}

// Limits are amounts in which the usual stands where nobody said anything. A CPU of zero is unlimited; nothing else is
// ever zero.
type Limits = Amounts

// Limits are the element's own, or the defaults where it states none.
func (e *ElementOf[I]) Limits() Limits { return filled(amounts, e.Amounts) }

// Keys are what a file may say of an element's amounts.
func (Amounts) Keys() []Key[Amounts] { return amounts }

// What counts where an element states nothing, as far as others than this list must know it. Nothing that an element
// takes of its machine is without a bound. FRR with all its protocols needs a fifth of this memory, and some forty
// tasks.
const (
	DefaultMemory     = Bytes(256 << 20)
	DefaultProcesses  = 1024
	DefaultNeighbours = 8192 // some 0.5 KiB of the kernel's memory each
	MaxNeighbours     = 1 << 22
	MaxConnections    = 1 << 22 // some 256 bytes each
	MinCPU            = CPU(10) // the kernel's smallest quota, 1 ms of 100
	MinMemory         = Bytes(8 << 20)
	MaxMemory         = Bytes(64 << 40)
)

var amounts = []Key[Amounts]{
	newKey("cpu", func(a *Amounts) *CPU { return &a.CPU }, ParseCPU, about[CPU]{example: "0.5",
		meaning: "Cores that its processes may use, like 0.5: a limit, and their weight among others; no limit when " +
			"left out.",
		nothing: "is not even one thousandth of a core",
		least:   MinCPU, few: "cores that the kernel can hand out",
		most: 4096 * 1000, many: "cores than any machine has"}),
	newKey("memory", func(a *Amounts) *Bytes { return &a.Memory }, ParseBytes, about[Bytes]{example: "256MiB",
		meaning: "Memory that its processes may use, like 512MiB; {usual} when left out.",
		nothing: "is too little for anything",
		usual:   DefaultMemory,
		least:   MinMemory, few: "that a process needs to start",
		most: MaxMemory, many: "than any machine has"}),
	newKey("processes", func(a *Amounts) *int { return &a.Processes }, parseCount, about[int]{example: "1024",
		meaning: "Processes and threads that it may have, like 512; {usual} when left out.",
		nothing: "would let nothing run",
		usual:   DefaultProcesses,
		least:   64, few: "that routing software needs", // FRR with all its protocols has some forty tasks
		most: 1 << 22, many: "processes than Linux has"}), // PID_MAX_LIMIT
	newKey("open-files", func(a *Amounts) *int { return &a.OpenFiles }, parseCount, about[int]{
		example: "4096", was: "files",
		meaning: "Files that each of its processes may have open, like 16384; {usual} when left out.",
		nothing: "would let nothing be opened",
		usual:   4096,
		least:   256, few: "that routing software needs", // FRR's daemons hold some thirty each
		most: 1 << 20, many: "open files than Linux has"}), // the kernel's default of fs.nr_open
	newKey("disk", func(a *Amounts) *Bytes { return &a.Disk }, ParseBytes, about[Bytes]{example: "256MiB",
		meaning: "Room for its own files – configurations, logs, what is written inside it –, like 1GiB; {usual} " +
			"when left out. " +
			"It may have a file for each 16 KiB. It can grow, and does not shrink.",
		nothing: "would let nothing be written",
		usual:   256 << 20,
		least:   16 << 20, few: "that a file system needs", // less has no room for a journal
		most: 4 << 40, many: "than an element may have"}), // far below ext4's limit
	newKey("neighbours", func(a *Amounts) *int { return &a.Neighbours }, parseCount, about[int]{example: "8192",
		meaning: "Neighbours (ARP, neighbour discovery) that it may know beside those on its own links in this file; " +
			"{usual} when " +
			"left out. Where it has more, all those are forgotten.",
		nothing: "would let nobody on its links be found",
		usual:   DefaultNeighbours,
		least:   256, few: "that a few subnets have",
		most: MaxNeighbours, many: "neighbours than Linux has"}),
	newKey("connections", func(a *Amounts) *int { return &a.Connections }, parseCount, about[int]{example: "65536",
		meaning: "Connections that a packet filter in it may track; {usual} when left out. Where it has more, all " +
			"are forgotten.",
		nothing: "would let nothing be tracked",
		usual:   1 << 16,
		least:   1024, few: "that a small NAT needs",
		most: MaxConnections, many: "tracked connections than Linux has"}),
	newKey("devices", func(a *Amounts) *int { return &a.Devices }, parseCount, about[int]{example: "1024",
		meaning: "Network devices (VLANs, tunnels, bridges) that may be made in it beside the ends of its links; " +
			"{usual} when left " +
			"out. Of more the latest are removed when the kernel's memory has grown by 32 MiB.",
		nothing: "would let no VLAN or tunnel be made",
		usual:   1024,
		few:     "that are none",
		most:    4096, many: "network devices than there are VLANs"}),
}
