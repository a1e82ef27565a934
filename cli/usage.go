package cli

import (
	"fmt"
	"strconv"

	"github.com/polyplane/polyplane/model"
)

// usageTexts are what an element takes of what it may; empty where it has no processes.
func usageTexts(u *model.Usage) (cpu, memory, processes, disk string) {
	if u == nil {
		return "", "", "", ""
	}
	cpu = strconv.FormatFloat(u.CPU, 'f', 2, 64)
	if u.Limits.CPU != 0 {
		cpu += "/" + cores(u.Limits.CPU)
	}
	return cpu, u.Memory.Rounded() + "/" + u.Limits.Memory.Rounded(), fmt.Sprintf("%d/%d", u.Processes, u.Limits.Processes),
		u.Disk.Rounded() + "/" + u.Limits.Disk.Rounded()
}

// packetTime is empty where the kernel does next to nothing for an element's packets.
func packetTime(cores float64) string {
	if cores < 0.005 {
		return ""
	}
	return strconv.FormatFloat(cores, 'f', 2, 64)
}

// limits prints what an element takes and may take; where it runs nothing, what it states.
func (s *sheet) limits(e *model.ElementView) {
	if t := packetTime(e.PacketTime); t != "" {
		s.line("Packets", "take "+t+" cores of the node's kernel")
	}
	if u := e.Usage; u != nil {
		cpu, memory, processes, disk := usageTexts(u)
		s.line("CPU", cpu+" cores")
		s.line("Memory", memory)
		s.line("Processes", fmt.Sprintf("%s, %d open files each", processes, u.Limits.Files))
		s.line("Disk", disk)
		s.line("Tables", fmt.Sprintf("at most %d neighbours, %d tracked connections", u.Limits.Neighbours, u.Limits.Connections))
		return
	}
	s.line("CPU", cores(e.Element.CPU))
	s.line("Memory", memory(e.Element.Memory))
	s.line("Processes", mtuText(e.Element.Processes))
	s.line("Files", mtuText(e.Element.Files))
	s.line("Disk", memory(e.Element.Disk))
	s.line("Neighbours", mtuText(e.Element.Neighbours))
	s.line("Connections", mtuText(e.Element.Connections))
}
