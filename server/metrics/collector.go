package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polyplane/polyplane/model"
)

// collector makes all metrics that come from the manager's state.
type collector struct{ source Source }

func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		to <- d
	}
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.source.Metrics()
	e := emitter{to}
	e.gauge(infoDesc, 1, s.Instance, s.Store.Place)
	e.gauge(revisionDesc, float64(s.Revision))
	if s.Store.Size > 0 {
		e.gauge(storeSizeDesc, float64(s.Store.Size))
		e.gauge(storeUsedDesc, float64(s.Store.Used))
	}
	for _, v := range s.Events {
		e.counter(eventsDesc, float64(v.Count), string(v.Severity), v.Reason)
	}
	for i := range s.Networks {
		e.network(&s.Networks[i])
	}
	for i := range s.Nodes {
		e.node(&s.Nodes[i])
	}
	for i := range s.Elements {
		e.element(&s.Elements[i])
	}
	for i := range s.Ports {
		e.port(&s.Ports[i])
	}
	for i := range s.Links {
		l := &s.Links[i]
		e.link(l.A, l.Forth)
		e.link(l.B, l.Back)
	}
}

// emitter sends metrics to whoever collects them. The labels are given in the order of the description.
type emitter struct{ to chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v float64, labels ...string) {
	e.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// histogram sends what was counted elsewhere; one that is damaged, as by an agent of another version, is left out.
func (e emitter) histogram(d *prometheus.Desc, h model.Histogram, labels ...string) {
	if len(h.Counts) != len(h.Bounds)+1 {
		return
	}
	buckets := make(map[float64]uint64, len(h.Bounds))
	total := uint64(0)
	for i, bound := range h.Bounds {
		total += h.Counts[i]
		buckets[bound] = total
	}
	e.to <- prometheus.MustNewConstHistogram(d, total+h.Counts[len(h.Bounds)], h.Sum, buckets, labels...)
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// phases are all that an element or a network may be in.
var phases = append(slices.Clone(model.ElementPhases), model.PhaseUnknown)

func (e emitter) network(n *model.NetworkStatus) {
	for _, p := range phases {
		e.gauge(networkPhaseDesc, is(n.Phase == p), n.Name, string(p))
	}
	e.gauge(networkInfoDesc, 1, n.Name, n.Owner, cmp.Or(n.Title, n.Name))
	e.gauge(networkElementsDesc, float64(n.Elements), n.Name)
	e.gauge(networkLinksDesc, float64(n.Links), n.Name)
}

func (e emitter) node(n *Node) {
	e.gauge(nodeReadyDesc, is(n.Ready), n.Name)
	for _, c := range model.Conditions {
		e.gauge(nodeConditionDesc, is(n.Condition == c), n.Name, string(c))
	}
	e.gauge(nodeConnectedDesc, is(n.Connected), n.Name)
	e.gauge(nodeSeenDesc, seconds(n.LastSeen), n.Name)
	e.gauge(nodeRevisionDesc, float64(n.Revision), n.Name)
	e.gauge(nodeElementsDesc, float64(n.Elements), n.Name)
	e.gauge(nodePortsDesc, float64(n.Ports), n.Name)
	e.gauge(nodeCPUCapacityDesc, float64(n.CPU)/1000, n.Name)
	e.gauge(nodeCPUReservedDesc, float64(n.CPUReserved)/1000, n.Name)
	e.gauge(nodeCPUUsedDesc, n.CPUUsed, n.Name)
	e.gauge(nodeMemoryCapacityDesc, float64(n.Memory), n.Name)
	e.gauge(nodeMemoryReservedDesc, float64(n.MemoryReserved), n.Name)
	e.gauge(nodeMemoryUsedDesc, float64(n.MemoryUsed), n.Name)
	if m := n.Measures; m != nil {
		e.gauge(agentStartDesc, seconds(m.Started), n.Name)
		e.counter(agentCPUDesc, m.CPU, n.Name)
		e.gauge(agentMemoryDesc, float64(m.Memory), n.Name)
		e.histogram(agentPassesDesc, m.Passes, n.Name)
		e.counter(agentAuditsDesc, float64(m.Audits), n.Name)
		e.counter(agentFindingsDesc, float64(m.Findings), n.Name)
	}
}

func (e emitter) element(s *model.ElementStatus) {
	labels := []string{s.ID.Network, s.ID.Element, s.Node}
	for _, p := range phases {
		e.gauge(elementPhaseDesc, is(s.Phase == p), s.ID.Network, s.ID.Element, s.Node, string(p))
	}
	e.counter(elementRestartsDesc, float64(s.Restarts), labels...)
	e.gauge(elementQuarantinedDesc, is(s.Quarantine != ""), labels...)
	for _, signal := range slices.Sorted(maps.Keys(s.Attacks)) {
		e.counter(elementAttacksDesc, float64(s.Attacks[signal]), s.ID.Network, s.ID.Element, s.Node, signal)
	}
	e.gauge(elementPacketTimeDesc, s.PacketTime, labels...)
	if u := s.Usage; u != nil {
		e.gauge(elementCPUDesc, u.CPU, labels...)
		e.gauge(elementMemoryDesc, float64(u.Memory), labels...)
		e.gauge(elementProcessesDesc, float64(u.Processes), labels...)
		e.gauge(elementDiskDesc, float64(u.Disk), labels...)
		if u.Limits.CPU > 0 {
			e.gauge(elementCPULimitDesc, float64(u.Limits.CPU)/1000, labels...)
		}
		e.gauge(elementMemoryLimitDesc, float64(u.Limits.Memory), labels...)
		e.gauge(elementProcessesLimitDesc, float64(u.Limits.Processes), labels...)
		e.gauge(elementDiskLimitDesc, float64(u.Limits.Disk), labels...)
	}
	if f := s.Fast; f != nil {
		e.counter(fastPacketsDesc, float64(f.Packets), labels...)
		e.counter(fastBytesDesc, float64(f.Bytes), labels...)
		e.counter(fastBlackholedDesc, float64(f.Blackholed), labels...)
		e.counter(fastRefusedDesc, float64(f.Refused), labels...)
		for _, reason := range slices.Sorted(maps.Keys(f.Punted)) {
			e.counter(fastPuntedDesc, float64(f.Punted[reason]), s.ID.Network, s.ID.Element, s.Node, reason)
		}
		e.tables(f.Tables, labels)
	}
}

// tables sends what a node's data path knows of a router.
func (e emitter) tables(t *model.FastTables, labels []string) {
	if t == nil {
		return
	}
	e.gauge(fastSyncDesc, is(t.InSync), labels...)
	e.gauge(fastFullDesc, is(t.Lack != nil), labels...)
	e.gauge(fastHopsDesc, float64(t.NextHops), labels...)
	for _, f := range t.Families {
		family := append(slices.Clone(labels), string(f.Family))
		e.gauge(fastRoutesDesc, float64(f.Routes), family...)
		e.gauge(fastTableDesc, float64(f.Bytes), family...)
		e.gauge(fastCopyDesc, float64(f.Copy), family...)
	}
}

func (e emitter) port(p *Port) {
	labels := []string{p.ID.Network, p.ID.Element, p.ID.Interface, p.Node}
	e.gauge(portUpDesc, is(p.Up), labels...)
	e.counter(portRxPacketsDesc, float64(p.RxPackets), labels...)
	e.counter(portRxBytesDesc, float64(p.RxBytes), labels...)
	e.counter(portTxPacketsDesc, float64(p.TxPackets), labels...)
	e.counter(portTxBytesDesc, float64(p.TxBytes), labels...)
	for _, reason := range slices.Sorted(maps.Keys(p.Drops)) {
		e.counter(portDropsDesc, float64(p.Drops[reason]), p.ID.Network, p.ID.Element, p.ID.Interface, p.Node, reason)
	}
}

// link sends what one end has measured of a link between nodes.
func (e emitter) link(node string, m *model.LinkMeasure) {
	if m == nil {
		return
	}
	e.gauge(linkUpDesc, is(m.Up), node, m.To)
	e.counter(linkProbesDesc, float64(m.Sent), node, m.To)
	e.counter(linkLostDesc, float64(m.Lost), node, m.To)
	e.histogram(linkRTTDesc, m.RTT, node, m.To)
	if m.RTTMedian > 0 {
		e.gauge(linkRTTMinDesc, time.Duration(m.RTTMin).Seconds(), node, m.To)
		e.gauge(linkRTTMedianDesc, time.Duration(m.RTTMedian).Seconds(), node, m.To)
	}
	const byteBits = 8
	e.gauge(linkUsedDesc, float64(m.Used)/byteBits, node, m.To)
	if m.Capacity > 0 {
		e.gauge(linkCapacityDesc, float64(m.Capacity)/byteBits, node, m.To)
		e.gauge(linkAvailableDesc, float64(m.Available)/byteBits, node, m.To)
	}
}
