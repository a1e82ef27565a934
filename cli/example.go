package cli

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/spec"
)

// lineExample is the example that is made to measure.
const lineExample = "line"

func (c *CLI) exampleCommand() *cobra.Command {
	routers := 10
	cmd := &cobra.Command{
		Use:     "example [NAME | line --routers N]",
		Aliases: []string{"examples"},
		Short:   "Print an example file, or list the examples",
		GroupID: groupNetworks,
		Example: "  polyplane example\n  polyplane example duo > duo.yaml\n  polyplane example duo | polyplane apply " +
			"-f -\n  polyplane example line --routers 1000 | polyplane apply -f -",
		Args: args(0, 1, "an example's name"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if cmd.Flags().Changed("routers") && (len(given) == 0 || given[0] != lineExample) {
				return usageError(cmd, "--routers goes with `example %s` only", lineExample)
			}
			if len(given) == 0 {
				return c.listExamples()
			}
			if given[0] == lineExample {
				if routers < 1 || routers > spec.MaxLine {
					return usageError(cmd, "--routers %d: 1 to %d are expected", routers, spec.MaxLine)
				}
				_, err := c.Out.Write(spec.Line(routers))
				return err
			}
			b, err := fs.ReadFile(c.Examples, strings.TrimSuffix(given[0], ".yaml")+".yaml")
			if err != nil {
				return unknown("example", given[0], c.exampleNames())
			}
			_, err = c.Out.Write(b)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return matching(c.exampleNames(), typed), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().IntVar(&routers, "routers", routers, "how many routers the line has")
	return cmd
}

func (c *CLI) exampleNames() []string {
	files, _ := fs.Glob(c.Examples, "*.yaml") // the pattern is well-formed, which is all that can be wrong
	names := make([]string, 0, len(files)+1)
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".yaml"))
	}
	return append(names, lineExample)
}

func (c *CLI) listExamples() error {
	t := table{head: []string{"EXAMPLE", "WHAT IT IS"}}
	for _, name := range c.exampleNames() {
		what := "A line of as many static routers as --routers says"
		if name != lineExample {
			b, err := fs.ReadFile(c.Examples, name+".yaml")
			if err != nil {
				return fmt.Errorf("read the example %s: %w", name, err)
			}
			what = about(name+".yaml", b)
		}
		t.add(texts(name, what)...)
	}
	return t.write(c.Out, c.colour(), true, "")
}

// about is the first sentence of a file's first comment that is meant for people, not for editors; of a file without
// one, what is in it.
func about(file string, data []byte) string {
	var words []string
	for line := range strings.Lines(string(data)) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			break
		}
		if !strings.HasPrefix(strings.TrimSpace(comment), "yaml-language-server") {
			words = append(words, strings.Fields(comment)...)
		}
	}
	for i, w := range words {
		if strings.HasSuffix(w, ".") {
			words = words[:i+1]
			break
		}
	}
	if len(words) > 0 {
		return strings.TrimSuffix(strings.Join(words, " "), ".")
	}
	networks, err := spec.Parse(file, data, spec.Options{})
	if err != nil {
		return ""
	}
	elements, links := 0, 0
	for _, n := range networks {
		elements, links = elements+len(n.Elements), links+len(n.Links)
	}
	return plural(elements, "element") + ", " + plural(links, "link")
}
