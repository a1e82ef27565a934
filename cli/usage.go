package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// usageTexts says how much an element uses of what it may use; empty if it has no processes.
func usageTexts(u *model.Usage) (cpu, memory, processes, disk string) {
	if u == nil {
		return "", "", "", ""
	}
	cpu = strconv.FormatFloat(u.CPU, 'f', 2, 64)
	if u.Limits.CPU != 0 {
		cpu += "/" + cores(u.Limits.CPU)
	}
	return cpu, u.Memory.Rounded() + "/" + u.Limits.Memory.Rounded(),
		fmt.Sprintf("%d/%d", u.Processes, u.Limits.Processes),
		u.Disk.Rounded() + "/" + u.Limits.Disk.Rounded()
}

// packetTime is the kernel's time for an element's packets. It is empty if that is next to nothing.
func packetTime(cores float64) string {
	if cores < 0.005 {
		return ""
	}
	return strconv.FormatFloat(cores, 'f', 2, 64)
}

// limits prints what an element uses and may use. If it runs nothing, it prints what it states.
func (s *sheet) limits(e *model.ElementView) {
	if t := packetTime(e.PacketTime); t != "" {
		s.line("Packets", "take "+t+" cores of the node's kernel")
	}
	limits, used := e.Element.Amounts, map[string]string{}
	if u := e.Usage; u != nil {
		limits = u.Limits
		used["cpu"], used["memory"], used["processes"], used["disk"] = usageTexts(u)
	}
	for _, k := range limits.Keys() {
		text := used[k.Name]
		if text == "" && !k.Zero(&limits) {
			if text = k.Text(&limits); len(used) > 0 {
				text = "at most " + text
			}
		}
		s.line(titled(k.Name), text)
	}
}

// titled is a key as descriptions show it.
func titled(key string) string {
	switch key {
	case "cpu", "mtu", "bfd", "vlan":
		return strings.ToUpper(key)
	case "vlans":
		return "VLANs"
	}
	return strings.ToUpper(key[:1]) + key[1:]
}
