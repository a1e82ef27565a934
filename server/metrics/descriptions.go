package metrics

import "github.com/prometheus/client_golang/prometheus"

// descriptions are those of all metrics that collector makes.
var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("polyplane_"+name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// The instance.
var (
	infoDesc = describe("info", "Always 1; the labels tell the instance and where its networks are kept.",
		"instance_name", "store")
	revisionDesc = describe("revision",
		"Revision of the nodes' desired state; a node is up to date when its own is that of its last change.")
	storeSizeDesc = describe("store_size_bytes", "Size of the embedded store's database file, in bytes.")
	storeUsedDesc = describe("store_used_bytes", "Bytes of the embedded store's database that are in use.")
	eventsDesc    = describe("events_total", "Events since the manager started.", "severity", "reason")
)

// Networks.
var (
	networkPhaseDesc = describe("network_phase", "1 for the phase that the network is in, 0 for the others.",
		"network", "phase")
	networkInfoDesc = describe("network_info", "Always 1; the labels tell whose the network is, and what its owner "+
		"calls it.", "network", "owner", "title")
	networkElementsDesc = describe("network_elements", "Elements of the network.", "network")
	networkLinksDesc    = describe("network_links", "Virtual links of the network.", "network")
)

// Nodes and their agents.
var (
	nodeReadyDesc = describe("node_ready",
		"1 when the node's agent is connected, has reported and has no problem.", "node")
	nodeConditionDesc = describe("node_condition",
		"1 for the condition that the node is in, 0 for the others: unknown is one that was not heard of for the "+
			"time of a lease, notReady one that has a problem or whose agent's loop does not come round.",
		"node", "condition")
	nodeConnectedDesc = describe("node_agent_connected",
		"1 when the node's agent is connected to the manager.", "node")
	nodeSeenDesc = describe("node_last_report_timestamp_seconds",
		"When the node's agent last registered or reported, in seconds since the epoch; 0 for never.", "node")
	nodeRevisionDesc = describe("node_revision", "Revision of the desired state that the node last made so.",
		"node")
	nodeElementsDesc    = describe("node_elements", "Elements that the node has reported.", "node")
	nodePortsDesc       = describe("node_ports", "Ports that the node has reported.", "node")
	nodeCPUCapacityDesc = describe("node_cpu_capacity_cores", "Processor cores that the node has.", "node")
	nodeCPUReservedDesc = describe("node_cpu_reserved_cores",
		"Processor cores that the elements on the node ask for.", "node")
	nodeCPUUsedDesc = describe("node_cpu_used_cores",
		"Processor cores that the elements' processes on the node take.", "node")
	nodeMemoryCapacityDesc = describe("node_memory_capacity_bytes", "Memory that the node has, in bytes.", "node")
	nodeMemoryReservedDesc = describe("node_memory_reserved_bytes",
		"Memory that the elements on the node ask for, in bytes.", "node")
	nodeMemoryUsedDesc = describe("node_memory_used_bytes",
		"Memory that the elements' processes on the node take, in bytes.", "node")

	agentStartDesc = describe("agent_start_time_seconds",
		"When the node's agent started, in seconds since the epoch.", "node")
	agentCPUDesc = describe("agent_cpu_seconds_total",
		"Processor time that the node's agent has taken, in seconds.", "node")
	agentMemoryDesc = describe("agent_memory_bytes", "Memory that the node's agent has resident, in bytes.", "node")
	agentPassesDesc = describe("agent_reconcile_duration_seconds",
		"Time of the agent's passes, each of which looks at everything and puts right what is wrong, in seconds.",
		"node")
	agentAuditsDesc = describe("agent_audits_total",
		"Audits, each of which looks into a part of the elements.", "node")
	agentFindingsDesc = describe("agent_audit_findings_total",
		"Elements that audits found to be otherwise than desired.", "node")
)

// Elements.
var (
	elementQuarantinedDesc = describe("element_quarantined", "1 while its links are cut, in quarantine.",
		"network", "element", "node")
	elementAttacksDesc = describe("element_attacks_suspected_total",
		"Attacks that were suspected of the element, by what showed them.", "network", "element", "node", "signal")
	elementPhaseDesc = describe("element_phase", "1 for the phase that the element is in, 0 for the others.",
		"network", "element", "node", "phase")
	elementRestartsDesc = describe("element_restarts_total", "How often the element's processes were started again.",
		"network", "element", "node")

	elementCPUDesc = describe("element_cpu_used_cores", "Processor cores that the element's processes take.",
		"network", "element", "node")
	elementPacketTimeDesc = describe("element_packet_time_cores",
		"Processor cores that the node's kernel takes for packets on the element's devices, charged to no process "+
			"(an estimate).", "network", "element", "node")
	elementCPULimitDesc = describe("element_cpu_limit_cores",
		"Processor cores that the element's processes may take; absent without a limit.", "network", "element", "node")
	elementMemoryDesc = describe("element_memory_used_bytes",
		"Memory that the element's processes take, in bytes.", "network", "element", "node")
	elementMemoryLimitDesc = describe("element_memory_limit_bytes",
		"Memory that the element's processes may take, in bytes.", "network", "element", "node")
	elementProcessesDesc = describe("element_processes", "Processes and threads of the element.",
		"network", "element", "node")
	elementProcessesLimitDesc = describe("element_processes_limit", "Processes and threads that the element may have.",
		"network", "element", "node")
	elementDiskDesc = describe("element_disk_used_bytes", "Bytes that the element's files take.",
		"network", "element", "node")
	elementDiskLimitDesc = describe("element_disk_limit_bytes", "Bytes that the element's files may take.",
		"network", "element", "node")

	fastPacketsDesc = describe("element_fast_path_packets_total",
		"Packets that the node forwarded for the router without its own stack.", "network", "element", "node")
	fastBytesDesc = describe("element_fast_path_bytes_total",
		"Bytes that the node forwarded for the router without its own stack.", "network", "element", "node")
	fastBlackholedDesc = describe("element_fast_path_blackholed_packets_total",
		"Packets that the node dropped for the router because the route says so.", "network", "element", "node")
	fastRefusedDesc = describe("element_fast_path_refused_packets_total",
		"Exceptional packets that the node dropped for the router beyond the punts a second of the network's slice.",
		"network", "element", "node")
	fastSyncDesc = describe("element_fast_path_in_sync",
		"1 when the node's forwarding tables are what the router's own were a moment ago, 0 while the router itself "+
			"forwards.", "network", "element", "node")
	fastFullDesc = describe("element_fast_path_tables_full",
		"1 when some of the router's routes do not fit into the node's forwarding tables.",
		"network", "element", "node")
	fastHopsDesc = describe("element_fast_path_next_hops",
		"Next hops of the router in the node's forwarding tables.", "network", "element", "node")
	fastRoutesDesc = describe("element_fast_path_routes", "Routes of the router in the node's forwarding tables.",
		"network", "element", "node", "family")
	fastTableDesc = describe("element_fast_path_table_bytes",
		"Bytes of the router's forwarding tables on the node.", "network", "element", "node", "family")
	fastCopyDesc = describe("element_fast_path_copy_bytes",
		"Bytes of the agent's own copy of the router's routes.", "network", "element", "node", "family")
	fastPuntedDesc = describe("element_fast_path_punted_packets_total",
		"Packets that the node gave to the router's own stack, by reason.", "network", "element", "node", "reason")
)

// Ports. Both directions are the node's: it receives what the element sends.
var (
	portUpDesc = describe("port_up", "1 when the port is up and has carrier.", "network", "element",
		"interface", "node")
	portRxPacketsDesc = describe("port_receive_packets_total", "Packets that came from the element.", "network",
		"element", "interface", "node")
	portRxBytesDesc = describe("port_receive_bytes_total",
		"Bytes that came from the element, of whole Ethernet frames.", "network", "element", "interface", "node")
	portTxPacketsDesc = describe("port_transmit_packets_total", "Packets that went to the element.", "network",
		"element", "interface", "node")
	portTxBytesDesc = describe("port_transmit_bytes_total",
		"Bytes that went to the element, of whole Ethernet frames.", "network", "element", "interface", "node")
	portDropsDesc = describe("port_dropped_packets_total",
		"Packets that were dropped at the port, by reason; a reason appears with its first packet.", "network",
		"element", "interface", "node", "reason")
)

// Links of the substrate, each direction as its beginning has measured it.
var (
	linkUpDesc = describe("substrate_link_up",
		"1 when the neighbour has answered a probe within the last two seconds.", "node", "neighbour")
	linkProbesDesc = describe("substrate_link_probes_total", "Probes sent to the neighbour since the agent started.",
		"node", "neighbour")
	linkLostDesc = describe("substrate_link_probes_lost_total",
		"Probes that the neighbour did not answer within two seconds.", "node", "neighbour")
	linkRTTDesc = describe("substrate_link_rtt_seconds",
		"Round-trip times of the probes since the agent started, in seconds.", "node", "neighbour")
	linkRTTMinDesc = describe("substrate_link_rtt_min_seconds",
		"Smallest round-trip time of the latest round of probes, in seconds.", "node", "neighbour")
	linkRTTMedianDesc = describe("substrate_link_rtt_median_seconds",
		"Median round-trip time of the latest round of probes, in seconds.", "node", "neighbour")
	linkUsedDesc = describe("substrate_link_used_bytes_per_second",
		"What the device that leads to the neighbour sends, in bytes a second.", "node", "neighbour")
	linkCapacityDesc = describe("substrate_link_capacity_bytes_per_second",
		"What the link can carry towards the neighbour, in bytes a second; absent when not known.", "node", "neighbour")
	linkAvailableDesc = describe("substrate_link_available_bytes_per_second",
		"What the link's capacity leaves beside what is used, in bytes a second; absent when not known.",
		"node", "neighbour")
)
