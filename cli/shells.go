package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// bashWords stands in for two functions of the bash-completion package, if that is not installed. The script needs them
// because bash splits words at ":", which is part of the names of interfaces.
const bashWords = `# bash completion for polyplane; for this session: source <(polyplane completion bash)
if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref() {
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1))
        cur=${words[cword]}
        prev=${words[cword-1]}
    }
fi
if ! declare -F _filedir >/dev/null 2>&1; then
    _filedir() {
        local kind=-f
        [[ $1 == -d ]] && kind=-d
        local IFS=$'\n'
        COMPREPLY+=($(compgen "$kind" -- "$cur"))
        compopt -o filenames 2>/dev/null
    }
fi

`

func (c *CLI) completionCommand() *cobra.Command {
	scripts := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error {
			if _, err := io.WriteString(w, bashWords); err != nil {
				return err
			}
			return root.GenBashCompletionV2(w, true)
		},
		"zsh":        func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) },
	}
	shells := sortedKeys(scripts)
	return &cobra.Command{
		Use:     "completion bash|fish|powershell|zsh",
		Short:   "Print a shell's completion script, which knows all names",
		GroupID: groupOther,
		Long: `Print the script that makes a shell complete commands, flags and the names of what is there:
networks, elements, interfaces, nodes, examples.`,
		Example: "  source <(polyplane completion bash)\n  polyplane completion bash > " +
			"/etc/bash_completion.d/polyplane\n" +
			"  polyplane completion zsh > \"${fpath[1]}/_polyplane\"\n  polyplane completion fish > " +
			"~/.config/fish/completions/polyplane.fish",
		Args:      args(1, 1, "the shell's name (bash, fish, powershell or zsh)"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, given []string) error {
			script, ok := scripts[given[0]]
			if !ok {
				return usageError(cmd, "there is no completion for %q; there is for %s", given[0], orList(shells))
			}
			return script(cmd.Root(), c.Out)
		},
	}
}
