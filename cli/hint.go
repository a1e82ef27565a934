package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/instance"
)

// Messages tell what to type next, and come from everywhere: this program, the manager, its nodes, which do not know how their
// instance is called here, or whether that goes without saying.
var (
	hint    = regexp.MustCompile("`polyplane [^`]+`")
	spoken  = regexp.MustCompile(`\bpolyplane [a-z]+`)
	somehow = regexp.MustCompile("--instance|--server")
	// without are commands that speak to no instance, or to another machine's.
	without = []string{"polyplane join", "polyplane login", "polyplane logout", "polyplane example", "polyplane schema", "polyplane completion"}
)

// hinted has the commands that a text names tell the instance that this command was for.
func (c *CLI) hinted(text string) string {
	if c.Instance == "" || c.Instance == instance.DefaultName || c.Instance == c.Getenv(instance.Variable) || c.remote.server != "" {
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

// told is somebody else's message, on one line.
func (c *CLI) told(message string) string { return c.hinted(oneLine(message)) }
