package model

// Keys are what a file may say of a network's share.
func (Slice) Keys() []Key[Slice] { return sliceKeys }

var sliceKeys = []Key[Slice]{
	newKey("cpu", func(s *Slice) *CPU { return &s.CPU }, ParseCPU, about[CPU]{example: "4", unit: " CPU",
		meaning: "Cores that its elements may ask for together; an element that asks for none is not limited.",
		nothing: "is not even one thousandth of a core",
		least:   MinCPU, few: "cores that the kernel can hand out",
		most: 4096 * 1000, many: "cores than any machine has"}),
	newKey("memory", func(s *Slice) *Bytes { return &s.Memory }, ParseBytes, about[Bytes]{example: "8GiB",
		meaning: "Memory that its elements may ask for together; an element that asks for none has the default, " +
			"which is not counted.",
		nothing: "is too little for anything",
		least:   MinMemory, few: "that a process needs to start",
		most: MaxMemory, many: "than any machine has"}),
	newKey("bandwidth", func(s *Slice) *Bandwidth { return &s.Bandwidth }, ParseBandwidth,
		about[Bandwidth]{example: "1Gbit",
			meaning: "What the network may send into each node's underlay and edges, together; a cap.",
			nothing: "would let no packet through",
			least:   MinBandwidth, few: "that a link needs"}),
	newKey("packets", func(s *Slice) *int { return &s.Packets }, parseCount,
		about[int]{example: "100000", unit: " packets/s a node",
			meaning: "Packets a second that its elements on a node may send together, like 100000: what forwarding " +
				"them " +
				"takes of the " +
				"node is bounded by nothing else. No limit when left out.",
			nothing: "would let none through",
			least:   MinPackets, few: "a second that routing protocols need"}),
	newKey("tables", func(s *Slice) *Bytes { return &s.Tables }, ParseBytes,
		about[Bytes]{example: "64MiB", unit: " tables a node",
			meaning: "Memory of each node's forwarding tables, like 64MiB, that its routers with a forwarding other " +
				"than " +
				"guest may have " +
				"together; {usual} when left out. A router with ten routes takes less than 1 KiB, a full Internet " +
				"table " +
				"30 MiB. What " +
				"does not fit the routers themselves forward, and an event says so.",
			nothing: "would have room for no route",
			usual:   DefaultTables,
			least:   64 << 10, few: "that a few routers need", // a hundred small ones
			most: ReservableTables, many: "than a slice can have of a node's " + PoolTables.String()}),
	newKey("nexthops", func(s *Slice) *int { return &s.NextHops }, parseCount,
		about[int]{example: "4096", unit: " next hops a node",
			meaning: "Next hops that these routers may have together on each node, groups of several counting as one " +
				"more; {usual} when " +
				"left out.",
			nothing: "would let no packet be forwarded but by the routers themselves",
			usual:   DefaultNextHops,
			least:   64, few: "that a few routers need",
			most: ReservableNextHops, many: "than a slice can have of a node's next hops"}),
	newKey("punts", func(s *Slice) *int { return &s.Punts }, parseCount,
		about[int]{example: "5000", unit: " punts/s a node",
			meaning: "Exceptional packets a second that these routers may get together on each node: those that they " +
				"answer or drop " +
				"rather than forward (TTL at its end, no route, unknown neighbour, too long, options). {usual} when " +
				"left " +
				"out.",
			nothing: "would let no neighbour be found",
			usual:   DefaultPunts,
			least:   MinPackets, few: "a second that finding neighbours needs"}),
	newWord("mode", func(s *Slice) *SliceMode { return &s.Mode }, about[SliceMode]{example: "strict",
		meaning: "{usual} when left out: bounded where it says so, competing for the rest; or strict: bandwidth and " +
			"packets, and cpu and memory of every element must be said, and are reserved, and so tables and nexthops " +
			"if any router's forwarding is not guest. Its links between nodes that have no bandwidth reserve that of " +
			"the slice.",
		usual: Shared}),
}

// Keys are what a file may say of a link, beside its ends and what it is called.
func (Link) Keys() []Key[Link] { return linkKeys }

var linkKeys = []Key[Link]{
	newKey("bandwidth", func(l *Link) *Bandwidth { return &l.Bandwidth }, ParseBandwidth,
		about[Bandwidth]{example: "100Mbit",
			meaning: "Cap and reservation of each direction, like 10Mbit, in IP packets of the link's MTU.",
			nothing: "would let no packet through",
			least:   MinBandwidth, few: "that a link needs"}),
	newKey("mtu", func(l *Link) *int { return &l.MTU }, parseCount, about[int]{example: "9000",
		meaning: "The largest packet, in bytes, at least 1280 with IPv6; when left out {usual}, or less where " +
			"the underlay carries less wherever the network's links may be. Between nodes the underlay must " +
			"carry 50 more (70 if it is IPv6, and 4 more for the tags of VLANs), wherever the ends may be placed: " +
			"8950 at most on simulated nodes. " +
			"Ends pinned to one node have no such limit.",
		nothing: "would let no packet through",
		usual:   DefaultMTU,
		least:   MinMTU, few: "that IPv4 needs",
		most: MaxMTU, many: "than a link carries"}),
	newKey("delay", func(l *Link) *Duration { return &l.Delay }, ParseDuration, about[Duration]{example: "10ms",
		meaning: "How long a packet takes, like 10ms; refused where the node's kernel has no netem.",
		few:     "that the fastest packet needs",
		most:    MaxLatency, many: "than a link may have"}),
	newKey("jitter", func(l *Link) *Duration { return &l.Jitter }, ParseDuration, about[Duration]{example: "1ms",
		meaning: "How much the delay varies, both ways, like 1ms.",
		few:     "that is none"}),
	newKey("loss", func(l *Link) *float64 { return &l.Loss }, ParseLoss, about[float64]{example: "1%",
		meaning: "The share of packets that are lost in each direction: 0.01 or 1%.",
		few:     "that is no packet",
		most:    1, many: "than all packets"}),
	newWord("state", func(l *Link) *LinkState { return &l.State }, about[LinkState]{example: "down",
		meaning: "up or down; {usual} when left out. A link that is down is like a cable that was pulled out: " +
			"both ends are there, without carrier, and nothing passes. `polyplane stop` and `start` of the link " +
			"change it while the network runs.",
		usual: LinkUp}),
	newWord("addressing", func(l *Link) *Addressing { return &l.Addressing }, about[Addressing]{
		example: "none",
		meaning: "auto or none; {usual} when left out. With none the link's ends are given no addresses: they have " +
			"those that their elements state in the file, and those that somebody adds inside the elements, which " +
			"nobody removes.",
		usual: AddressingAuto}),
	newBFD(func(l *Link) *BFD { return &l.BFD }, about[BFD]{
		example: "100ms",
		meaning: "Whether the routers at its ends watch each other by BFD (RFC 5880), so that OSPF, IS-IS and BGP " +
			"notice at once when nothing passes any more: true (a packet every 300ms, three may be missed), how " +
			"often packets are sent, like `100ms`, or that and how many may be missed, `100ms x 5`. From 10ms to " +
			"1m, and 2 to 255. false when left out."}),
	newKey("vlan", func(l *Link) *int { return &l.VLAN }, parseCount, about[int]{example: "10",
		meaning: "The VLAN of its frames without a tag, at the ports of its switches: an access port's, or beside " +
			"`vlans` a trunk's native one. Where its switches have VLANs and it says nothing, 1.",
		nothing: "is no VLAN",
		least:   1, few: "of the first VLAN",
		most: MaxVLAN, many: "than the last VLAN"}),
	newVLANs(func(l *Link) *VLANs { return &l.VLANs }, about[VLANs]{
		example: "10,20",
		meaning: "The VLANs of its frames with a tag (IEEE 802.1Q), which make it a trunk: numbers and ranges like " +
			"`[10, 20, 30-39]`, or all, which are those of its switches. A router or host at its end has an " +
			"interface for each of them: `s1.10`. none when left out."}),
}
