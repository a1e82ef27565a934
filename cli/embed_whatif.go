package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

// whatIf asks what would become of what runs, and tells it.
func (c *CLI) whatIf(cmd *cobra.Command, words []string, o output) error {
	ask, err := parseWhatIf(cmd, words)
	if err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	result, err := cl.WhatIf(cmd.Context(), ask)
	if err != nil {
		return err
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, result)
	}
	_, err = fmt.Fprint(c.Out, whatIfText(ask, result))
	return err
}

// parseWhatIf reads "NAME down" and "+NAME key=value …", as many as there are.
func parseWhatIf(cmd *cobra.Command, words []string) (ask model.WhatIf, err error) {
	name := "" // that nothing was said about yet
	var added *model.NodeToCome
	for _, word := range words {
		key, value, isKey := strings.Cut(word, "=")
		switch {
		case name != "" && word != "down":
			return ask, usageError(cmd, "it is not said what would become of node %s: %s down, or +%s for one more",
				name, name, name)
		case name != "":
			ask.Down, name = append(ask.Down, name), ""
		case isKey && added == nil:
			return ask, usageError(cmd, "%q is of no node: what a node would have stands behind its +NAME", word)
		case isKey:
			if err := setToCome(added, key, value); err != nil {
				return ask, usageError(cmd, "+%s: %v", added.Name, err)
			}
		case strings.HasPrefix(word, "+"):
			ask.Add = append(ask.Add, model.NodeToCome{Name: word[1:]})
			added = &ask.Add[len(ask.Add)-1]
			if added.Name == "" {
				return ask, usageError(cmd, "a node's name is missing behind +")
			}
		default:
			name, added = word, nil
		}
	}
	switch {
	case name != "":
		return ask, usageError(cmd, "it is not said what would become of node %s: %s down, or +%s for one more", name,
			name, name)
	case len(ask.Down)+len(ask.Add) == 0:
		return ask, usageError(cmd, "it is not said what would be: NODE down, or +NODE")
	}
	return ask, nil
}

// setToCome takes one key of a node to come.
func setToCome(n *model.NodeToCome, key, value string) (err error) {
	switch key {
	case "like":
		n.Like = value
	case "location":
		n.Location = value
	case "cpu":
		n.CPU, err = model.ParseCPU(value)
	case "memory":
		n.Memory, err = model.ParseBytes(value)
	case "bandwidth":
		n.Bandwidth, err = model.ParseBandwidth(value)
	default:
		return fmt.Errorf("%q is no key of a node to come; there are cpu, memory, bandwidth, location and like", key)
	}
	if value == "" {
		return fmt.Errorf("%s= is empty", key)
	}
	return err
}

func whatIfText(ask model.WhatIf, r model.WhatIfResult) string {
	var b strings.Builder
	var what []string
	if len(ask.Down) > 0 {
		what = append(what, strings.Join(ask.Down, ", ")+" were down")
	}
	for i, n := range r.Added {
		like := ""
		if i < len(ask.Add) {
			if like = ask.Add[i].Like; like == "" && n.Name != ask.Add[i].Name {
				like = ask.Add[i].Name
			}
		}
		if like != "" {
			like = ", like " + like
		}
		what = append(what, fmt.Sprintf("%s came (cpu %s, memory %s%s)", n.Name, n.CPU, n.Memory.Rounded(), like))
	}
	fmt.Fprintf(&b, "what if %s (nothing is changed):\n", strings.Join(what, ", and "))
	for i := range r.Networks {
		wouldBe(&b, &r.Networks[i], "would be on", "would go by")
	}
	if r.Others.Networks > 0 {
		fmt.Fprintf(&b, "  of others: %s\n", othersText(r.Others))
	}
	if len(r.Networks) == 0 && r.Others.Networks == 0 {
		b.WriteString("  everything would stay as it is\n")
	}
	if len(r.Moves) > 0 {
		b.WriteString("worth moving then:\n")
		for i := range r.Moves {
			wouldBe(&b, &r.Moves[i], "to", "by")
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	if r.Spent {
		b.WriteString("note: this is not all: the question was too large to be worked out whole; ask about fewer " +
			"nodes\n")
	}
	b.WriteString("left:\n")
	lines := make([][2]string, 0, len(r.Nodes)+len(r.Links))
	now := func(left, was string) string {
		if left == was {
			return ""
		}
		return " (now " + was + ")"
	}
	added := func(name string) bool {
		return slices.ContainsFunc(r.Added, func(n model.SubstrateNode) bool { return n.Name == name })
	}
	for _, n := range r.Nodes {
		cpu, memory := n.CPULeft.String(), n.MemoryLeft.Rounded()
		wasCPU, wasMemory := now(cpu, n.CPUNow.String()), now(memory, n.MemoryNow.Rounded())
		if added(n.Name) {
			wasCPU, wasMemory = "", ""
		}
		lines = append(lines, [2]string{n.Name, fmt.Sprintf("%s of %s cores%s, %s of %s%s", cpu, n.CPU, wasCPU, memory,
			n.Memory.Rounded(), wasMemory)})
	}
	for _, l := range r.Links {
		was := now(l.Left.String(), l.Now.String())
		if added(l.A) || added(l.B) {
			was = ""
		}
		lines = append(lines, [2]string{l.A + " – " + l.B, fmt.Sprintf("%s of %s%s", l.Left, l.Bandwidth, was)})
	}
	width := 0
	for _, l := range lines {
		width = max(width, len([]rune(l[0])))
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "  %s%s  %s\n", l[0], strings.Repeat(" ", width-len([]rune(l[0]))), l[1])
	}
	return b.String()
}

// wouldBe tells of one network: what goes to the same node, or the same way, in one line.
func wouldBe(b *strings.Builder, w *model.WouldBe, on, by string) {
	refused := ""
	if len(w.Refused) > 0 {
		refused = " does not fit"
	}
	if w.Unknown {
		refused = ": where its elements and links would be was not worked out"
	}
	fmt.Fprintf(b, "  %s%s\n", w.Network, refused)
	for _, why := range w.Refused {
		fmt.Fprintf(b, "    %s\n", why)
	}
	elements, ways := map[string][]string{}, map[string][]string{}
	for _, m := range w.Elements {
		elements[m.To] = append(elements[m.To], m.Element)
	}
	for _, node := range slices.Sorted(maps.Keys(elements)) {
		fmt.Fprintf(b, "    %s %s %s\n", someOf(elements[node]), on, node)
	}
	for _, l := range w.Links {
		way := strings.Join(l.Nodes, " → ")
		ways[way] = append(ways[way], l.Link)
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		if way == "" {
			fmt.Fprintf(b, "    %s would be within a node\n", someOf(ways[way]))
			continue
		}
		fmt.Fprintf(b, "    %s %s %s\n", someOf(ways[way]), by, way)
	}
	for _, l := range w.Lost {
		fmt.Fprintf(b, "    %s would have no place: %s\n", l.Element, l.Why)
	}
}

// othersText sums up networks that whoever asks may not see.
func othersText(o model.WouldBeOthers) string {
	parts := []string{plural(o.Networks, "network") + " would be other than now"}
	for _, p := range []struct {
		n     int
		what  string
		would string
	}{{o.Elements, "element", "elsewhere"}, {o.Links, "link", "by other paths"}, {o.Lost, "element", "without a place"},
		{o.Refused, "network", "that would not fit"}, {o.Unknown, "network", "not worked out"}} {
		if p.n > 0 {
			parts = append(parts, plural(p.n, p.what)+" "+p.would)
		}
	}
	return strings.Join(parts, ", ")
}

// completeWhatIf offers nodes, and what may be said of one.
func (c *CLI) completeWhatIf(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if is, _ := cmd.Flags().GetBool("what-if"); !is {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	last := ""
	if len(args) > 0 {
		last = args[len(args)-1]
	}
	switch {
	case last != "" && last != "down" && !strings.HasPrefix(last, "+") && !strings.Contains(last, "="):
		return matching([]string{"down"}, typed), cobra.ShellCompDirectiveNoFileComp
	case last != "down" && last != "" && !strings.HasPrefix(typed, "+"):
		return matching([]string{"bandwidth=", "cpu=", "like=", "location=", "memory="}, typed),
			cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return c.complete(cmd, typed, func(ctx context.Context, cl Client, typed string) ([]string,
		cobra.ShellCompDirective) {
		nodes, err := cl.Nodes(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, n := range nodes {
			names = append(names, n.Name, "+"+n.Name)
		}
		return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
	})
}
