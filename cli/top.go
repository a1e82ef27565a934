package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) topCommand() *cobra.Command {
	interval, rounds := 2*time.Second, 0
	cmd := &cobra.Command{
		Use:     "top [NET]",
		Short:   "Watch nodes, elements and links with their rates",
		GroupID: groupLook,
		Example: "  polyplane top\n  polyplane top lab -d 5s\n  polyplane top -n 1",
		Args:    args(0, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			of := ref{}
			if len(given) > 0 {
				network, err := c.refs(cmd.Context()).network(given[0])
				if err != nil {
					return err
				}
				of.network = network
			}
			if interval < 100*time.Millisecond {
				return usageError(cmd, "-d %s: 100ms or more is expected", interval)
			}
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if of.network != "" {
				if err := lookUp(ctx, cl, of); err != nil {
					return err
				}
			}
			return wrap(ctx, cl, c.top(ctx, cl, of, interval, rounds), of)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	cmd.Flags().DurationVarP(&interval, "delay", "d", interval, "time between refreshes, over which rates are taken")
	cmd.Flags().IntVarP(&rounds, "iterations", "n", 0, "end after this many refreshes; 0: at ^C")
	return cmd
}

// sample is the state at an instant.
type sample struct {
	at   time.Time
	dump model.Dump
}

func (c *CLI) sample(ctx context.Context, cl Client, of ref) (sample, error) {
	d, err := cl.Dump(ctx, of.network)
	return sample{c.Now(), d}, err
}

// top draws a screen for every interval. A rate is the difference of two samples, so the first screen comes after one
// interval. On a terminal each screen replaces the one before; otherwise they follow one another.
func (c *CLI) top(ctx context.Context, cl Client, of ref, interval time.Duration, rounds int) error {
	before, err := c.sample(ctx, cl, of)
	if err != nil {
		return err
	}
	fd, onTerminal := terminalFD(c.Out)
	live := onTerminal && rounds != 1 && c.terminal()
	tick := time.Tick(interval)
	for round := 0; rounds == 0 || round < rounds; round++ {
		if live && round == 0 {
			fmt.Fprint(c.Out, "\x1b[H\x1b[2Jmeasuring…")
		}
		select {
		case <-ctx.Done():
			return nil // ^C is how watching ends
		case <-tick:
		}
		now, err := c.sample(ctx, cl, of)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		width, height := 0, 0
		if onTerminal {
			if width, height, err = term.GetSize(fd); err != nil {
				width, height = 80, 24
			}
			if !live {
				height = 0
			}
		}
		screen := c.topScreen(before, now, width, height)
		if live {
			// Home, rewrite line by line, clear what is left: no flicker.
			screen = append([]byte("\x1b[H"), bytes.ReplaceAll(screen, []byte("\n"), []byte("\x1b[K\n"))...)
			screen = append(screen, "\x1b[J"...)
		} else if round > 0 {
			screen = append([]byte("\n"), screen...)
		}
		if _, err := c.Out.Write(screen); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// rates are what passed a port or a link in a second, as the element sees it: the node receives what the element sends.
type rates struct {
	sentBits, receivedBits       float64
	sentPackets, receivedPackets float64
	dropped                      float64
}

func (r *rates) add(o rates) {
	r.sentBits += o.sentBits
	r.receivedBits += o.receivedBits
	r.sentPackets += o.sentPackets
	r.receivedPackets += o.receivedPackets
	r.dropped += o.dropped
}

// portRates compares two samples. A counter that went back belongs to a port that was made anew, and counts from zero.
func portRates(before, now sample) map[model.PortID]rates {
	seconds := now.at.Sub(before.at).Seconds()
	old := portsByID(before.dump.Links)
	out := map[model.PortID]rates{}
	for id, p := range portsByID(now.dump.Links) {
		was, known := old[id]
		if !known || seconds <= 0 {
			continue
		}
		per := func(now, was uint64) float64 {
			if now < was {
				was = 0
			}
			return float64(now-was) / seconds
		}
		out[id] = rates{
			sentBits: 8 * per(p.RxBytes, was.RxBytes), receivedBits: 8 * per(p.TxBytes, was.TxBytes),
			sentPackets: per(p.RxPackets, was.RxPackets), receivedPackets: per(p.TxPackets, was.TxPackets),
			dropped: per(p.Dropped, was.Dropped),
		}
	}
	return out
}

// topScreen draws one screen; width and height limit its columns and lines (0: not at all).
func (c *CLI) topScreen(before, now sample, width, height int) []byte {
	ports := portRates(before, now)
	byElement := map[model.ID]rates{}
	for id, r := range ports {
		sum := byElement[id.ID]
		sum.add(r)
		byElement[id.ID] = sum
	}
	var b bytes.Buffer
	colour := c.colour()
	heading := []rune(c.topHeading(now))
	if width > 0 && len(heading) > width {
		heading = append(heading[:width-1], '…')
	}
	b.WriteString(string(heading) + "\n\n")

	nodes := table{head: []string{"NODE", "STATE", ">ELEMENTS", ">PORTS", ">CPU USED", ">MEM USED", ">CPU", ">MEMORY"},
		spare: []int{3, 7, 6}}
	for _, n := range now.dump.Nodes {
		nodes.add(text(n.Name), nodeState(n), text(strconv.Itoa(n.Elements)), text(strconv.Itoa(n.Ports)),
			text(strconv.FormatFloat(n.CPUUsed, 'f', 2, 64)), text(byteCount(uint64(n.MemoryUsed))),
			text(usedOf(cores(n.CPUReserved), cores(n.CPU))), text(reservedMemory(n)))
	}

	elements := slices.Clone(now.dump.Elements)
	slices.SortStableFunc(elements, func(x, y model.ElementView) int {
		a, b := byElement[x.ID], byElement[y.ID]
		return cmp.Or(cmp.Compare(rank(x.Phase), rank(y.Phase)),
			cmp.Compare(b.sentBits+b.receivedBits, a.sentBits+a.receivedBits),
			cmp.Compare(x.ID.String(), y.ID.String()))
	})
	et := table{head: []string{"ELEMENT", "PHASE", "NODE", ">CPU", ">KERNEL", ">MEMORY", ">PROCESSES", ">DISK",
		">SENDS", "", ">RECEIVES", "", ">DROPS"}, spare: []int{6, 7, 11, 9, 2, 5, 4}}
	for _, e := range elements {
		r := byElement[e.ID]
		cpu, memory, processes, disk := usageTexts(e.Usage)
		et.add(text(e.ID.String()), elementPhase(&e.ElementStatus), text(e.Node), text(cpu),
			text(packetTime(e.PacketTime)), text(memory), text(processes),
			text(disk), text(bitRate(r.sentBits)), text(packetRate(r.sentPackets)),
			text(bitRate(r.receivedBits)), text(packetRate(r.receivedPackets)), text(packetRate(r.dropped)))
	}

	type row struct {
		link   model.LinkStatus
		ab, ba rates
	}
	links := make([]row, 0, len(now.dump.Links))
	for _, l := range now.dump.Links {
		r := row{link: l}
		for _, p := range l.Ports {
			if isEnd(p.ID, l.Link.Ends[0]) {
				r.ab = ports[p.ID]
			} else {
				r.ba = ports[p.ID]
			}
		}
		links = append(links, r)
	}
	slices.SortStableFunc(links, func(x, y row) int {
		return cmp.Or(cmp.Compare(y.ab.sentBits+y.ba.sentBits, x.ab.sentBits+x.ba.sentBits),
			cmp.Compare(x.link.Network+"/"+x.link.Link.Name, y.link.Network+"/"+y.link.Link.Name))
	})
	lt := table{head: []string{"LINK", "STATE", "PATH", ">A→B", "", ">B→A", "", ">LIMIT"}, spare: []int{4, 6, 7, 2}}
	for _, r := range links {
		lt.add(text(r.link.Network+"/"+r.link.Link.Name), linkState(r.link), text(paths(r.link.Paths)),
			text(bitRate(r.ab.sentBits)), text(packetRate(r.ab.sentPackets)),
			text(bitRate(r.ba.sentBits)), text(packetRate(r.ba.sentPackets)), text(bandwidth(r.link.Link.Bandwidth)))
	}

	// There are two lines above, a heading and a blank line for each table, and one line for the cursor. The tables
	// share the rest.
	if height > 0 {
		room := max(4, height-3-len(nodes.rows)-2-2*2)
		share := max(2, room/2)
		cut(&et, max(share, room-len(lt.rows)))
		cut(&lt, max(share, room-len(et.rows)))
	}
	for i, t := range []*table{&nodes, &et, &lt} {
		if len(t.rows) == 0 {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		if width > 0 {
			t.fit(width)
		}
		t.write(&b, colour, true, "") //nolint:errcheck // a buffer takes everything
	}
	return b.Bytes()
}

// cut limits a table's rows, the last one telling how many are left out.
func cut(t *table, most int) {
	if len(t.rows) <= most || most < 1 {
		return
	}
	left := len(t.rows) - most + 1
	row := texts(make([]string, len(t.head))...)
	for i := range row {
		row[i].text = "…"
	}
	row[0].text = fmt.Sprintf("… %d more", left)
	t.rows = append(t.rows[:most-1:most-1], row)
}

// rank puts what needs attention first.
func rank(p model.Phase) int {
	switch p {
	case model.PhaseFailed:
		return 0
	case model.PhasePending, model.PhaseStarting:
		return 1
	case model.PhaseStopped, model.PhaseSuspended:
		return 3
	}
	return 2
}

func (c *CLI) topHeading(s sample) string {
	ready, running, unknown := 0, 0, 0
	for _, n := range s.dump.Nodes {
		if n.Ready && len(n.Held) == 0 { // one that holds networks follows nobody
			ready++
		}
	}
	for _, e := range s.dump.Elements {
		switch {
		case e.LastTold != 0:
			unknown++
		case e.Phase == model.PhaseRunning:
			running++
		}
	}
	parts := []string{
		fmt.Sprintf("polyplane %s", c.Instance), s.at.Format("15:04:05"),
		fmt.Sprintf("%d/%d nodes ready", ready, len(s.dump.Nodes)),
		fmt.Sprintf("%d networks", len(s.dump.Networks)),
		fmt.Sprintf("%d/%d elements running", running, len(s.dump.Elements)),
		fmt.Sprintf("%d links", len(s.dump.Links)),
	}
	if unknown > 0 {
		parts = slices.Insert(parts, 5, fmt.Sprintf("%d as last told", unknown))
	}
	return strings.Join(parts, "  ")
}
