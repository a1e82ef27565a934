package virne

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Write saves a data set in the simulator's form into a directory that is made.
func Write(d *DataSet, dir string) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir) // half a data set is none
		}
	}()
	if err := os.Mkdir(filepath.Join(dir, "v_nets"), 0o777); err != nil {
		return err
	}
	write := func(text string, path ...string) error {
		return os.WriteFile(filepath.Join(append([]string{dir}, path...)...), []byte(text), 0o666)
	}
	if err := write(d.Physical.gml(""), "p_net.gml"); err != nil {
		return err
	}
	arrives, leaves := make([]float64, len(d.Requests)), make([]float64, len(d.Requests))
	var events strings.Builder
	for i, e := range d.Events {
		kind := 0
		if e.Arrives {
			kind = 1
			arrives[e.Request] = e.Time
		} else {
			leaves[e.Request] = e.Time
		}
		fmt.Fprintf(&events, "- id: %d\n  time: %s\n  type: %d\n  v_net_id: %d\n", i, number(e.Time), kind, e.Request)
	}
	for k := range d.Requests {
		own := fmt.Sprintf("  id %d\n  arrival_time %s\n  lifetime %s\n", k, number(arrives[k]),
			number(leaves[k]-arrives[k]))
		if err := write(d.Requests[k].gml(own), "v_nets", fmt.Sprintf("v_net-%05d.gml", k)); err != nil {
			return err
		}
	}
	if err := write(events.String(), "events.yaml"); err != nil {
		return err
	}
	return write(fmt.Sprintf("num_v_nets: %d\noutput:\n  events_file_name: events.yaml\n"+
		"  setting_file_name: v_sim_setting.yaml\n", len(d.Requests)), "v_sim_setting.yaml")
}

// number always has a point, since the simulator takes whole numbers for those of another kind.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (g *Graph) gml(own string) string {
	var b strings.Builder
	b.WriteString("graph [\n" + own +
		"  node_attrs_setting [\n    name \"cpu\"\n    owner \"node\"\n    type \"resource\"\n  ]\n" +
		"  link_attrs_setting [\n    name \"bw\"\n    owner \"link\"\n    type \"resource\"\n  ]\n")
	for i, cpu := range g.Nodes {
		fmt.Fprintf(&b, "  node [\n    id %d\n    label \"%d\"\n    cpu %s\n  ]\n", i, i, whole(cpu))
	}
	for _, l := range g.Links {
		fmt.Fprintf(&b, "  edge [\n    source %d\n    target %d\n    bw %s\n  ]\n", l.A, l.B, whole(l.Bandwidth))
	}
	b.WriteString("]\n")
	return b.String()
}

func whole(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
