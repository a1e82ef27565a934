package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/polyplane/polyplane/model"
)

func substrateListing() listing[model.SubstrateLinkStatus] {
	return listing[model.SubstrateLinkStatus]{
		name: "substrate", aliases: []string{"sub"},
		short:   "List the links between nodes with their measured delay and bandwidth",
		example: "  polyplane get substrate\n  polyplane get substrate -o wide",
		fetch: func(ctx context.Context, cl Client, _ string) ([]model.SubstrateLinkStatus, error) {
			return cl.SubstrateLinks(ctx)
		},
		pick:  func(d model.Dump) []model.SubstrateLinkStatus { return d.Substrate },
		key:   substrateKey,
		noise: []string{"RTT MIN", "LOST", "USED A→B", "USED B→A"},
		head: func(wide bool) []string {
			head := []string{"LINK", "STATE", ">RTT", ">CAPACITY", ">FREE A→B", ">FREE B→A", "FOUND"}
			if wide {
				head = append(head, ">RTT MIN", ">LOST", ">USED A→B", ">USED B→A", ">STATED", ">SPEED", "BY", "PROBLEM")
			}
			return head
		},
		row: func(_ *CLI, l model.SubstrateLinkStatus, wide bool) []cell {
			m := either(l)
			row := []cell{text(oneLine(l.A + "--" + l.B)), substrateState(l), text(roundTrip(m.RTTMedian)),
				text(bandwidth(m.Capacity)), text(free(l.Forth)), text(free(l.Back)), found(l)}
			if wide {
				row = append(row, texts(roundTrip(m.RTTMin), lostShare(m), used(l.Forth), used(l.Back),
					bandwidth(l.Bandwidth), foundSpeed(l), foundBy(l), oneLine(m.Problem))...)
			}
			return row
		},
	}
}

// either is what the first end measured, or the second where the first has told nothing.
func either(l model.SubstrateLinkStatus) model.LinkMeasure {
	switch {
	case l.Forth != nil:
		return *l.Forth
	case l.Back != nil:
		return *l.Back
	}
	return model.LinkMeasure{}
}

// substrateState is up when each end that has told anything is answered by the other.
func substrateState(l model.SubstrateLinkStatus) cell {
	switch {
	case l.Unstated:
		return cell{"unstated", warn}
	case l.Forth == nil && l.Back == nil:
		return cell{"unknown", warn}
	case (l.Forth == nil || l.Forth.Up) && (l.Back == nil || l.Back.Up):
		return cell{"up", good}
	}
	return cell{"down", bad}
}

func roundTrip(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// free is how much of a direction's capacity is left; empty if that is not known.
func free(m *model.LinkMeasure) string {
	if m == nil || m.Capacity == 0 {
		return ""
	}
	return bitRate(float64(m.Available))
}

func used(m *model.LinkMeasure) string {
	if m == nil {
		return ""
	}
	return bitRate(float64(m.Used))
}

// lostShare is the share of the probes that were not answered.
func lostShare(m model.LinkMeasure) string {
	if m.Sent == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(m.Lost)/float64(m.Sent), 'f', 1, 64) + "%"
}

// neighbours is the table of a node's links, each as the node itself has measured it.
func neighbours(links []model.SubstrateLinkStatus, node string) table {
	t := table{head: []string{"NEIGHBOUR", "STATE", ">RTT", ">RTT MIN", ">LOST", "DEVICE",
		">CAPACITY", ">USED", ">FREE"}}
	for _, l := range links {
		to, m := l.B, l.Forth
		if l.Unstated {
			continue
		}
		if l.B == node {
			to, m = l.A, l.Back
		} else if l.A != node {
			continue
		}
		if m == nil {
			t.add(text(to), cell{"unknown", warn}, text(""), text(""), text(""), text(""), text(""), text(""), text(""))
			continue
		}
		t.add(text(to), upDown(m.Up), text(roundTrip(m.RTTMedian)), text(roundTrip(m.RTTMin)),
			text(lostShare(*m)), text(m.Device), text(bandwidth(m.Capacity)), text(used(m)), text(free(m)))
	}
	return t
}
