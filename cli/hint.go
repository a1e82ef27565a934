package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/instance"
)

// Messages tell the user what to type next. They come from this program, from the manager and from its nodes. The
// manager and the nodes do not know by which name this user reaches their instance, or whether a name is needed at all.
// So the names are added here.
var (
	hint    = regexp.MustCompile("`polyplane [^`]+`")
	spoken  = regexp.MustCompile(`\bpolyplane [a-z]+`)
	somehow = regexp.MustCompile("--instance|--server")
	// without are commands that do not speak to an instance, or that speak to another machine's.
	without = []string{"polyplane join", "polyplane login", "polyplane logout", "polyplane example", "polyplane schema",
		"polyplane completion"}
)

// hinted adds, to the commands that a text names, the instance that this command was for.
func (c *CLI) hinted(text string) string {
	if c.Instance == "" || c.Instance == instance.DefaultName || c.Instance == c.Getenv(instance.Variable) ||
		c.remote.server != "" {
		return text
	}
	return hint.ReplaceAllStringFunc(text, func(commands string) string {
		if somehow.MatchString(commands) {
			return commands
		}
		return spoken.ReplaceAllStringFunc(commands, func(command string) string {
			if slices.Contains(without, command) {
				return command
			}
			return strings.Replace(command, " ", " --instance "+c.Instance+" ", 1)
		})
	})
}

// told puts somebody else's message on one line.
func (c *CLI) told(message string) string { return c.hinted(oneLine(message)) }
