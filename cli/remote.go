package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// The environment variables that say which manager to speak to, and with which token.
const (
	serverVariable    = "POLYPLANE_SERVER"
	tokenVariable     = "POLYPLANE_TOKEN"
	tokenFileVariable = "POLYPLANE_TOKEN_FILE"
)

// remote is what the command line says of a manager on another machine.
type remote struct {
	server, tokenFile string
	instanceFlag      func() bool // tells whether --instance, or the environment, names an instance
	typed             func() bool // tells whether --instance does
	told              bool        // whether the note about a contradiction was printed
}

func (c *CLI) addRemoteFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&c.remote.server, "server", "", "speak to the manager at `HOST:PORT` over TLS ("+serverVariable+
		"; after `login` it goes without saying)")
	f.StringVar(&c.remote.tokenFile, "token-file", "", "a `file` with the token for it ("+tokenFileVariable+
		", or the token itself in "+tokenVariable+")")
	c.remote.typed = func() bool { return root.PersistentFlags().Changed("instance") }
	c.remote.instanceFlag = func() bool {
		return root.PersistentFlags().Changed("instance") || c.Getenv(instance.Variable) != ""
	}
}

// login is what `polyplane login` keeps.
type login struct {
	Server string `json:"server"`
	Token  string `json:"token"`
}

// loginFile is the path of that file.
func (c *CLI) loginFile() (string, error) {
	dir := c.Getenv("XDG_CONFIG_HOME")
	if home := c.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(dir) {
		return "", errors.New("neither XDG_CONFIG_HOME nor HOME says where a login is kept")
	}
	return filepath.Join(dir, "polyplane", "login.json"), nil
}

// readLogin reads it; an empty one when there is none.
func (c *CLI) readLogin() (login, error) {
	var l login
	path, err := c.loginFile()
	if err != nil {
		return l, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return l, fmt.Errorf("%s cannot be used (%w): log in again, or delete it", path, err)
	}
	return l, nil
}

// contradiction tells whether flags and environment name different places to speak to. That is an error if neither is
// more explicit than the other; else there is a note about the one that is ignored.
func (c *CLI) contradiction() (note string, err error) {
	if c.remote.typed == nil {
		return "", nil
	}
	typed, env, server := c.remote.typed(), c.Getenv(instance.Variable), c.Getenv(serverVariable)
	refuse := func(format string, a ...any) (string, error) {
		return "", &Error{Code: ExitUsage, Err: fmt.Errorf(format, a...)}
	}
	switch {
	case typed && c.remote.server != "":
		return refuse("--instance %s is one of this machine's, and --server %s a manager elsewhere: say one of them",
			c.Instance, c.remote.server)
	case c.remote.server != "" && env != "":
		return fmt.Sprintf("--server %s counts, and not %s=%s", c.remote.server, instance.Variable, env), nil
	case typed && server != "":
		return fmt.Sprintf("--instance %s counts, and not %s=%s", c.Instance, serverVariable, server), nil
	case c.remote.server == "" && !typed && env != "" && server != "":
		return refuse("%s=%s is an instance of this machine, and %s=%s a manager elsewhere: unset one of them, or say "+
			"--instance or --server", instance.Variable, env, serverVariable, server)
	case c.remote.tokenFile != "" && c.remote.server == "" && (typed || env != ""):
		return refuse("--token-file is for a manager elsewhere, and this is for instance %s of this machine, which "+
			"takes no token: say --server, or leave the token out", c.Instance)
	}
	return "", nil
}

// chosen returns the manager on another machine that this command is for. It is empty if the command is for an instance
// of this machine.
func (c *CLI) chosen() (server string, token trust.Token, err error) {
	server = c.named()
	var kept login
	if server == "" || c.remote.tokenFile == "" {
		if kept, err = c.readLogin(); err != nil {
			return "", token, err
		}
	}
	if server == "" {
		if c.remote.instanceFlag == nil || c.remote.instanceFlag() || kept.Server == "" {
			return "", token, nil
		}
		server = kept.Server
	}
	if server, err = serverAddress(server); err != nil {
		return "", token, err
	}
	text, from := "", ""
	switch path := c.remote.tokenFile; {
	case path != "":
		text, from, err = readTokenFile(path)
	case c.Getenv(tokenVariable) != "":
		text, from = c.Getenv(tokenVariable), tokenVariable
	case c.Getenv(tokenFileVariable) != "":
		text, from, err = readTokenFile(c.Getenv(tokenFileVariable))
	case kept.Server == server:
		text, from = kept.Token, "the login"
	default:
		err = fmt.Errorf("no token for the manager at %s: `polyplane login %s` asks for it, or --token-file names a "+
			"file that holds it", server, server)
	}
	if err == nil {
		if token, err = trust.ParseToken(text); err != nil {
			err = fmt.Errorf("%s: %w", from, err)
		}
	}
	if err != nil {
		return "", token, &Error{Code: ExitUsage, Err: err}
	}
	return server, token, nil
}

func readTokenFile(path string) (text, from string, err error) {
	b, err := os.ReadFile(path)
	return string(b), path, err
}

// serverAddress is where a manager is, with its port.
func serverAddress(text string) (string, error) {
	s, err := model.ServerAddress(text)
	if err != nil {
		return "", &Error{Code: ExitUsage, Err: err}
	}
	return s, nil
}

// localOnly refuses commands that work only on the manager's machine.
func (c *CLI) localOnly(what string) error {
	server, err := c.elsewhere()
	if err == nil && server != "" {
		err = &Error{Code: ExitUsage,
			Err: fmt.Errorf("%s works on the manager's machine only, and this speaks to %s; --instance %s means the "+
				"instance here", what, server, instance.DefaultName)}
	}
	return err
}

// elsewhere returns that manager without asking for a token.
func (c *CLI) elsewhere() (string, error) {
	if server := c.named(); server != "" {
		return server, nil
	}
	if c.remote.instanceFlag == nil || c.remote.instanceFlag() {
		return "", nil
	}
	kept, err := c.readLogin()
	return kept.Server, err
}

// named returns the manager that --server or the environment names for this command.
func (c *CLI) named() string {
	if c.remote.server == "" && c.remote.instanceFlag != nil && !c.remote.instanceFlag() {
		return c.Getenv(serverVariable)
	}
	return c.remote.server
}

// OnlyHere makes commands refuse to work if they are meant for a manager on another machine: they would do here what
// was meant for there. With logins, a login counts for this as well. What starts and ends the platform of a machine
// works in spite of a login.
func (c *CLI) OnlyHere(logins bool, all ...*cobra.Command) []*cobra.Command {
	for _, cmd := range all {
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, given []string) error {
			if logins || c.named() != "" {
				if err := c.localOnly(cmd.Name()); err != nil {
					return err
				}
			}
			return run(cmd, given)
		}
	}
	return all
}

func (c *CLI) loginCommand() *cobra.Command {
	var text string
	cmd := &cobra.Command{
		Use:   "login HOST:PORT [--token TOKEN]",
		Short: "Speak to a manager on another machine from now on",
		Long: `Speak to a manager on another machine from now on, with a token that its admin made (` + "`polyplane token create --user`" + `).
Without --token and --token-file the command reads the token from the standard input. It keeps the token
in ~/.config/polyplane/login.json, readable for this user only, until ` + "`logout`" + `. --instance still means an
instance of this machine.`,
		GroupID: groupPlatform,
		Example: "  polyplane login server1:7455 --token pp1.…",
		Args:    args(1, 1, "HOST:PORT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			server, err := serverAddress(given[0])
			if err != nil {
				return err
			}
			switch {
			case text != "":
			case c.remote.tokenFile != "":
				if text, _, err = readTokenFile(c.remote.tokenFile); err != nil {
					return err
				}
			default:
				fmt.Fprint(c.Err, "token: ")
				if text, err = bufio.NewReader(io.LimitReader(c.In, 4096)).ReadString('\n'); err != nil && text == "" {
					return usageError(cmd, "a token is missing")
				}
			}
			token, err := trust.ParseToken(text)
			if err != nil {
				return &Error{Code: ExitUsage, Err: err}
			}
			cl, err := c.ConnectServer(server, token)
			if err != nil {
				return err
			}
			who, err := cl.Whoami(cmd.Context())
			if err != nil {
				return wrap(cmd.Context(), cl, err, ref{})
			}
			if err := c.writeLogin(login{server, token.String()}); err != nil {
				return fmt.Errorf("keep the login: %w", err)
			}
			fmt.Fprintf(c.Err, "commands of this user now go to polyplane '%s' at %s, as %s (%s)\n", who.Instance,
				server, who.User, who.Role)
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&text, "token", "", "the `token`")
	return cmd
}

// writeLogin keeps a login, readable for its user only.
func (c *CLI) writeLogin(l login) error {
	path, err := c.loginFile()
	if err != nil {
		return err
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeWhole(path, append(b, '\n'), 0o600)
}

func (c *CLI) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "logout",
		Short:   "Forget the manager and the token of `login`",
		GroupID: groupPlatform,
		RunE: func(*cobra.Command, []string) error {
			path, err := c.loginFile()
			if err != nil {
				return err
			}
			err = os.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintln(c.Err, "there was no login")
				return nil
			}
			if err == nil {
				fmt.Fprintln(c.Err, "commands of this user go to this machine's instance again; the token itself "+
					"stays good (`polyplane token revoke`)")
			}
			return err
		},
	}
}

// place says in words what a command speaks to.
func (c *CLI) place() string {
	if server, _, err := c.chosen(); err == nil && server != "" {
		return "manager at " + server
	}
	return "instance " + strings.TrimSpace(c.Instance)
}
