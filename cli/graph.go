package cli

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Graph formats.
const (
	graphDOT     = "dot"
	graphMermaid = "mermaid"
)

func (c *CLI) graphCommand() *cobra.Command {
	format := graphDOT
	cmd := &cobra.Command{
		Use:     "graph NET",
		Short:   "Draw a network as Graphviz DOT or Mermaid, grouped by node",
		GroupID: groupLook,
		Example: "  polyplane graph lab | dot -Tsvg > lab.svg\n  polyplane graph lab --format mermaid",
		Args:    args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			_, record, err := c.recorded(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if format == graphMermaid {
				return writeMermaid(c.Out, record)
			}
			return writeDOT(c.Out, record)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	oneOf(cmd, &format, "format", "", "what to write", graphDOT, graphMermaid)
	return cmd
}

// byNode groups a network's elements by their nodes, in alphabetical order. Elements without a node come last, under
// the empty name.
func byNode(r model.Record) ([]string, map[string][]model.Element) {
	groups := map[string][]model.Element{}
	for _, e := range r.Network.Elements {
		node := r.Assigned.Placement.Elements[e.Name]
		groups[node] = append(groups[node], e)
	}
	names := sortedKeys(groups)
	if len(names) > 0 && names[0] == "" {
		names = append(names[1:], "")
	}
	return names, groups
}

// linkLabel is the text at a link in a drawing: its subnets and its rates.
func linkLabel(l model.Link, assigned model.Assigned) []string {
	var label []string
	prefixes := l.Prefixes
	if len(prefixes) == 0 {
		prefixes = assigned.Links[l.Name].Prefixes
	}
	for _, p := range prefixes {
		label = append(label, p.String())
	}
	for _, s := range []string{bandwidth(l.Bandwidth), shortDuration(l.Delay)} {
		if s != "" {
			label = append(label, s)
		}
	}
	if l.Loss > 0 {
		label = append(label, percent(l.Loss)+" loss")
	}
	if l.State == model.LinkDown {
		label = append(label, "stopped")
	}
	return label
}

func writeDOT(w io.Writer, r model.Record) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "graph %s {\n", dotQuote(r.Network.Name))
	b.WriteString("  layout=dot; rankdir=LR; fontname=\"Helvetica\"; compound=true;\n")
	b.WriteString("  node [fontname=\"Helvetica\", style=filled, fillcolor=white];\n")
	b.WriteString("  edge [fontname=\"Helvetica\", fontsize=10];\n")
	nodes, groups := byNode(r)
	for i, node := range nodes {
		indent := "  "
		if node != "" {
			fmt.Fprintf(b, "  subgraph cluster_%d {\n    label=%s; style=\"rounded,filled\"; color=\"#8899aa\"; "+
				"fillcolor=\"#eef3f8\";\n", i, dotQuote("node "+node))
			indent = "    "
		}
		for _, e := range groups[node] {
			cut := ""
			if r.Overrides[e.Name].Quarantined {
				cut = `, color="#cc0000", style=dashed, xlabel="quarantined"`
			}
			fmt.Fprintf(b, "%s%s [shape=%s%s];\n", indent, dotQuote(e.Name), dotShape(e.Kind), cut)
		}
		if node != "" {
			b.WriteString("  }\n")
		}
	}
	for _, l := range r.Network.Links {
		fmt.Fprintf(b, "  %s -- %s", dotQuote(l.Ends[0].Element), dotQuote(l.Ends[1].Element))
		if label := linkLabel(l, r.Assigned); len(label) > 0 {
			cut := ""
			if l.State == model.LinkDown {
				cut = `, color="#8899aa", style=dotted`
			}
			fmt.Fprintf(b, " [label=%s%s]", dotQuote(strings.Join(label, "\n")), cut)
		}
		b.WriteString(";\n")
	}
	for _, e := range r.Network.Edges {
		fmt.Fprintf(b, "  %s [shape=cds];\n  %s -- %s [style=dashed];\n", dotQuote(edgeDevice(e)),
			dotQuote(e.End.Element), dotQuote(edgeDevice(e)))
	}
	b.WriteString("}\n")
	return b.Flush()
}

// edgeDevice names the real device of an edge.
func edgeDevice(e model.Edge) string {
	name := model.LeadsTo(&e)
	if e.Node != "" {
		name = e.Node + " " + name
	}
	return name
}

func dotShape(k model.Kind) string {
	switch k {
	case model.Host:
		return "box"
	case model.Switch:
		return "hexagon"
	}
	return "ellipse"
}

// dotQuote makes a quoted string of the DOT language; a line break becomes \n.
func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func writeMermaid(w io.Writer, r model.Record) error {
	b := bufio.NewWriter(w)
	b.WriteString("flowchart LR\n")
	ids := mermaidIDs(r)
	nodes, groups := byNode(r)
	for i, node := range nodes {
		indent := "  "
		if node != "" {
			fmt.Fprintf(b, "  subgraph n%d[\"node %s\"]\n", i, mermaidText(node))
			indent = "    "
		}
		for _, e := range groups[node] {
			open, closing := mermaidShape(e.Kind)
			cut := ""
			if r.Overrides[e.Name].Quarantined {
				cut = "<br/>quarantined"
			}
			fmt.Fprintf(b, "%s%s%s\"%s\"%s\n", indent, ids[e.Name], open, mermaidText(e.Name)+cut, closing)
		}
		if node != "" {
			b.WriteString("  end\n")
		}
	}
	for _, l := range r.Network.Links {
		line := "---"
		if l.State == model.LinkDown {
			line = "-.-"
		}
		fmt.Fprintf(b, "  %s %s", ids[l.Ends[0].Element], line)
		if label := linkLabel(l, r.Assigned); len(label) > 0 {
			for i := range label {
				label[i] = mermaidText(label[i])
			}
			fmt.Fprintf(b, "|\"%s\"|", strings.Join(label, "<br/>"))
		}
		fmt.Fprintf(b, " %s\n", ids[l.Ends[1].Element])
	}
	for i, e := range r.Network.Edges {
		fmt.Fprintf(b, "  edge%d>\"%s\"]\n  %s -.- edge%d\n", i, mermaidText(edgeDevice(e)), ids[e.End.Element], i)
	}
	return b.Flush()
}

// mermaidIDs gives every element an identifier that Mermaid cannot take for one of its keywords ("end", "graph").
func mermaidIDs(r model.Record) map[string]string {
	names := each.Of(r.Network.Elements, func(e model.Element) string { return e.Name })
	slices.Sort(names)
	ids := make(map[string]string, len(names))
	for i, n := range names {
		ids[n] = fmt.Sprintf("e%d", i)
	}
	return ids
}

func mermaidShape(k model.Kind) (open, closing string) {
	switch k {
	case model.Host:
		return "[", "]"
	case model.Switch:
		return "{{", "}}"
	}
	return "((", "))"
}

// mermaidText escapes what ends a quoted text, by Mermaid's entity codes.
func mermaidText(s string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(s)
}
