package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WriteDocs writes the reference of all visible commands as Markdown, from the command tree itself.
func WriteDocs(w io.Writer, root *cobra.Command) error {
	b := &bytes.Buffer{}
	b.WriteString("# The command line\n\n")
	b.WriteString("<!-- Generated from the commands themselves: `go generate ./cmd/polyplane`. -->\n\n")
	b.WriteString("```\n" + strings.TrimSpace(root.Long) + "\n```\n\n")
	for _, group := range root.Groups() {
		fmt.Fprintf(b, "**%s**\n\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && !cmd.Hidden && cmd.Name() != "help" {
				fmt.Fprintf(b, "- [`%s`](#%s) – %s\n", cmd.Name(), anchor(cmd), cmd.Short)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString("## Everywhere\n\n")
	writeFlags(b, root.PersistentFlags())
	b.WriteString(exitTable)
	for _, group := range root.Groups() {
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && !cmd.Hidden && cmd.Name() != "help" {
				writeCommand(b, cmd)
			}
		}
	}
	_, err := w.Write(append(bytes.TrimRight(b.Bytes(), "\n"), '\n'))
	return err
}

const exitTable = `Exit statuses:

| status | meaning |
|---|---|
| 0 | done; ` + "`check`" + `: everything as expected |
| 1 | it failed; ` + "`check`" + `: something is not as expected; ` + "`plan --exit-code`" + `: there are changes |
| 2 | the command line or a file makes no sense; nothing was changed |
| 3 | there is no such network, element, interface or node |
| 4 | the instance is not running |
| 5 | refused: it does not fit, or conflicts with what is there; nothing was changed |
| 6 | ` + "`--timeout`" + ` passed; what was asked for goes on |
| 130 | interrupted (^C); what was asked for goes on |

` + "`exec`, `console` and `ping`" + ` end with the status of the command that they ran.

Results go to standard output; hints, progress and errors to standard error. Tables are for people: scripts use
` + "`-o json`, `-o yaml` or `-o name`" + `. Colours appear on terminals only, and not if ` + "`NO_COLOR`" + ` is set.

`

// anchor is the link target of a command's heading.
func anchor(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

func writeCommand(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "## %s\n\n", cmd.CommandPath())
	text := cmp.Or(cmd.Long, cmd.Short+".")
	b.WriteString(strings.TrimSpace(text) + "\n\n")
	fmt.Fprintf(b, "```\n%s\n```\n\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(b, "Also: `%s`.\n\n", strings.Join(cmd.Aliases, "`, `"))
	}
	writeFlags(b, cmd.NonInheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(b, "Examples:\n\n```\n%s\n```\n\n", unindent(cmd.Example))
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			writeCommand(b, sub)
		}
	}
}

func unindent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func writeFlags(b *bytes.Buffer, flags *pflag.FlagSet) {
	first := true
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if first {
			b.WriteString("| flag | |\n|---|---|\n")
			first = false
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		if name != "" {
			flag += " " + strings.ReplaceAll(name, "|", "\\|")
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" {
			usage += " (default `" + f.DefValue + "`)"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", flag, strings.ReplaceAll(usage, "|", "\\|"))
	})
	if !first {
		b.WriteByte('\n')
	}
}
