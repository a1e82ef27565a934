package cli

import (
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// substrateKey is what tells one link of the substrate from the others. A node may have several to one switch.
func substrateKey(l model.SubstrateLinkStatus) string {
	key := l.A + "--" + l.B
	if l.Found != nil && l.Found.Switch != nil {
		key += " " + l.Found.Switch.Chassis + " " + l.Found.Devices[0]
	}
	return key
}

// found tells what the nodes have found of a link beside what is stated of it.
func found(l model.SubstrateLinkStatus) cell {
	if l.Found == nil {
		return text("")
	}
	switch l.Found.State {
	case model.FoundBoth:
		if l.Bandwidth > 0 && l.Found.Speed > 0 && l.Found.Speed < l.Bandwidth {
			return cell{"slower: " + bandwidth(l.Found.Speed), warn}
		}
		return cell{"yes", good}
	case model.FoundOne:
		end := l.A
		if l.Found.Devices[0] == "" {
			end = l.B
		}
		return cell{"by " + oneLine(end) + " only", warn}
	case model.FoundLost:
		return cell{"lost", bad}
	case model.FoundSwitch:
		return text("switch")
	}
	return text("no")
}

func foundSpeed(l model.SubstrateLinkStatus) string {
	if l.Found == nil {
		return ""
	}
	return bandwidth(l.Found.Speed)
}

// foundBy are the ends' devices, and what a switch says of itself.
func foundBy(l model.SubstrateLinkStatus) string {
	if l.Found == nil {
		return ""
	}
	by := strings.Trim(l.Found.Devices[0]+" "+l.Found.Devices[1], " ")
	if s := l.Found.Switch; s != nil {
		by += " of " + s.Chassis
		if s.Address.IsValid() {
			by += " at " + s.Address.String()
		}
	}
	return oneLine(by)
}

// interfacesUp sums up a node's interfaces, and how many of them are bridges.
func interfacesUp(n model.NodeStatus) (interfaces, bridges string) {
	if n.Found == nil {
		return "", ""
	}
	up, of := 0, 0
	for _, i := range n.Found.Interfaces {
		if i.Up {
			up++
		}
		if i.Kind == "bridge" {
			of++
		}
	}
	return usedOf(strconv.Itoa(up), strconv.Itoa(len(n.Found.Interfaces))), strconv.Itoa(of)
}

// phases counts a node's elements by their phase.
func phases(n model.NodeStatus) string {
	var all []string
	for _, p := range model.ElementPhases {
		if n.Phases[p] > 0 {
			all = append(all, strconv.Itoa(n.Phases[p])+" "+string(p))
		}
	}
	return strings.Join(all, ", ")
}

func processor(n model.NodeStatus) string {
	if n.Found == nil {
		return ""
	}
	return oneLine(n.Found.Processor)
}

// interfaces is the table of a node's network devices that are no ports of elements.
func interfaces(d *model.Discovery) table {
	t := table{head: []string{"INTERFACE", "STATE", "KIND", ">MTU", ">SPEED", "PART OF", "HEARS"}}
	if d == nil {
		return t
	}
	heard := map[string][]string{}
	for _, w := range d.Wires {
		for _, h := range w.Nodes {
			heard[w.Device] = append(heard[w.Device], "node "+h.Node+" by "+h.Port)
		}
		for _, h := range w.Switches {
			heard[w.Device] = append(heard[w.Device], "switch "+strings.TrimSpace(h.Name+" "+h.Chassis)+" by "+h.Port)
		}
		if w.Problem != "" {
			heard[w.Device] = append(heard[w.Device], w.Problem)
		}
	}
	for _, i := range d.Interfaces {
		mtu := ""
		if i.MTU > 0 {
			mtu = strconv.Itoa(i.MTU)
		}
		t.add(text(oneLine(i.Name)), upDown(i.Up), text(oneLine(i.Kind)), text(mtu), text(bandwidth(i.Speed)),
			text(oneLine(i.Master)), text(oneLine(strings.Join(heard[i.Name], ", "))))
	}
	return t
}
