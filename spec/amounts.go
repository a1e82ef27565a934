package spec

import (
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// checkZeros refuses amounts of nothing where they could only be read as "no limit" or the default, which is what leaving them out says.
// Where defaults state an amount, a zero takes it back.
func (b *builder) checkZeros() {
	d := &b.form.Defaults
	whole := place{node: b.form.Node}
	if s := b.form.Slice; s != nil {
		zero(b, whole, []string{"slice", "cpu"}, "slice", s.CPU, nil, noCPU)
		zero(b, whole, []string{"slice", "memory"}, "slice", s.Memory, nil, noMemory)
		zero(b, whole, []string{"slice", "bandwidth"}, "slice", s.Bandwidth, nil, noBandwidth)
		zero(b, whole, []string{"slice", "packets"}, "slice", s.Packets, nil, noPackets)
		zero(b, whole, []string{"slice", "tables"}, "slice", s.Tables, nil, noTables)
		zero(b, whole, []string{"slice", "nexthops"}, "slice", s.NextHops, nil, noNextHops)
		zero(b, whole, []string{"slice", "punts"}, "slice", s.Punts, nil, noPunts)
	}
	b.checkCommon(whole, []string{"defaults", "routers"}, "defaults: routers", d.Routers.Common, form.Common{})
	b.checkCommon(whole, []string{"defaults", "hosts"}, "defaults: hosts", d.Hosts, form.Common{})
	b.checkCommon(whole, []string{"defaults", "switches"}, "defaults: switches", d.Switches, form.Common{})
	zero(b, whole, []string{"defaults", "links", "bandwidth"}, "defaults: links", d.Links.Bandwidth, nil, noBandwidth)
	for _, item := range b.form.Routers {
		b.checkCommon(place{item.Key, item.Node}, nil, "router "+item.Name, item.Value.Common, d.Routers.Common)
	}
	for _, item := range b.form.Hosts {
		b.checkCommon(place{item.Key, item.Node}, nil, "host "+item.Name, item.Value.Common, d.Hosts)
	}
	for _, item := range b.form.Switches {
		b.checkCommon(place{item.Key, item.Node}, nil, "switch "+item.Name, item.Value.Common, d.Switches)
	}
	for i, l := range b.form.Links {
		zero(b, b.links[i], []string{"bandwidth"}, "link "+b.net.Links[i].Name, l.Value.Bandwidth, d.Links.Bandwidth, noBandwidth)
	}
}

const (
	noProcesses   = "processes 0 would let nothing run"
	noFiles       = "files 0 would let nothing be opened"
	noDisk        = "disk 0 would let nothing be written"
	noNeighbours  = "neighbours 0 would let nobody on its links be found"
	noConnections = "connections 0 would let nothing be tracked"
	noCPU         = "cpu 0 is not even one thousandth of a core"
	noMemory      = "memory 0 is too little for anything"
	noBandwidth   = "bandwidth 0 would let no packet through"
	noPackets     = "packets 0 would let none through"
	noTables      = "tables 0 would have room for no route"
	noNextHops    = "nexthops 0 would let no packet be forwarded but by the routers themselves"
	noPunts       = "punts 0 would let no neighbour be found"
)

func (b *builder) checkCommon(at place, path []string, who string, c, defaults form.Common) {
	zero(b, at, append(path[:len(path):len(path)], "cpu"), who, c.CPU, defaults.CPU, noCPU)
	zero(b, at, append(path[:len(path):len(path)], "memory"), who, c.Memory, defaults.Memory, noMemory)
	zero(b, at, append(path[:len(path):len(path)], "processes"), who, c.Processes, defaults.Processes, noProcesses)
	zero(b, at, append(path[:len(path):len(path)], "files"), who, c.Files, defaults.Files, noFiles)
	zero(b, at, append(path[:len(path):len(path)], "disk"), who, c.Disk, defaults.Disk, noDisk)
	zero(b, at, append(path[:len(path):len(path)], "neighbours"), who, c.Neighbours, defaults.Neighbours, noNeighbours)
	zero(b, at, append(path[:len(path):len(path)], "connections"), who, c.Connections, defaults.Connections, noConnections)
}

func zero[T model.CPU | model.Bytes | model.Bandwidth | int](b *builder, at place, path []string, who string, said, otherwise *T, why string) {
	if said == nil || *said != 0 || otherwise != nil && *otherwise != 0 {
		return
	}
	b.failAt(locateIn(at, path), "%s: %s; leave the key out for the default", who, why)
}
