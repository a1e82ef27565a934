package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/convert"
	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/spec"
)

// importMost bounds what is read of a lab, and of each file that it names: one byte more than is taken.
const importMost = spec.MaxSize + 1

func (c *CLI) importCommand() *cobra.Command {
	var out, network string
	var strict bool
	timeout := 5 * time.Minute
	cmd := &cobra.Command{
		Use:     "import FILE|-",
		Short:   "Make a network out of an archive of export, or a file out of a lab of containerlab or netlab",
		GroupID: groupNetworks,
		Long: `Make a new network out of an archive that export has written, or turn a topology file of containerlab or
netlab into a file that apply takes. Which of them it is, its content tells.

An archive: the network belongs to whoever imports it. All of the archive is read and verified first; one that is cut
off, changed, or has something in it that export never writes is refused, and nothing is changed. The network is made
whole or not at all: its document is applied, and its elements' files are written, and if any of that fails the network
is removed again. If the command is killed meanwhile, the network is removed ten minutes after it was begun. Elements
may be on any nodes, also on machines that joined.

A lab: the file is printed, or written with -o; it belongs beside the lab's own, since it names the same files. What
could not be carried over, or not as it was, is told line by line on the standard error. The lab itself is not touched,
and nothing is applied.`,
		Example: "  polyplane import ann-lab.tar\n  polyplane import lab.tar --name ann-lab\n" +
			"  polyplane import lab.clab.yml > lab.yaml\n  polyplane import topology.yml -o lab.yaml && " +
			"polyplane plan -f lab.yaml\n  polyplane import lab.clab.yml 2> /dev/null | polyplane apply -f -",
		Args: args(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, given []string) error {
			archived, err := c.isArchive(given[0])
			if err != nil {
				return &Error{Code: ExitUsage, Err: err}
			}
			for flag, ofArchives := range map[string]bool{"name": true, "timeout": true, "output": false,
				"strict": false} {
				if cmd.Flags().Changed(flag) && ofArchives != archived {
					what := map[bool]string{true: "an archive", false: "a lab"}
					return &Error{Code: ExitUsage, Err: fmt.Errorf("--%s is for %s, and %s is %s", flag,
						what[ofArchives], given[0], what[archived])}
				}
			}
			if archived {
				return c.importArchive(cmd.Context(), given[0], network, timeout)
			}
			name, data, read, err := c.readLab(given[0])
			if err != nil {
				return &Error{Code: ExitUsage, Err: err}
			}
			result, err := convert.Read(name, data, fileWords(), read)
			if err != nil {
				return &Error{Code: ExitUsage, Err: err}
			}
			if result.Format == convert.Polyplane {
				return &Error{Code: ExitUsage, Err: fmt.Errorf("%s is a file of polyplane's already: `polyplane apply "+
					"-f %s` takes it as it is", name, given[0])}
			}
			for _, n := range result.Notes {
				if _, err := fmt.Fprintf(c.Err, "%s:%d: %s\n", name, n.Line, printable(n.Message)); err != nil {
					return err
				}
			}
			if _, err := spec.Parse(name, result.YAML, spec.Options{
				ReadFile: func(string) ([]byte, error) { return nil, nil }}); err != nil {
				fmt.Fprintf(c.Err, "%s: apply would refuse what came of it:\n%s\n", name, wrongLines(err))
				if strict {
					return &commandExit{ExitFailed}
				}
			}
			if strict && len(result.Notes) > 0 {
				return &commandExit{ExitFailed}
			}
			if out == "" || out == "-" {
				_, err = c.Out.Write(result.YAML)
				return err
			}
			// A file that is there may be somebody's work, so it is not overwritten.
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, os.ErrExist) {
				return &Error{Code: ExitUsage, Err: fmt.Errorf("%s is there already: remove it, or name "+
					"another file", out)}
			}
			if err != nil {
				return err
			}
			_, err = f.Write(result.YAML)
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(out) //nolint:errcheck // the first error counts
			}
			return err
		},
	}
	cmd.Flags().StringVar(&network, "name", "", "call the network of an archive `NAME` instead")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout,
		"wait at most this long for the elements of an archive to be made")
	mustComplete(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to a new `FILE` instead of printing")
	cmd.Flags().BoolVar(&strict, "strict", false, "write nothing, and exit with status 1, if anything could not be "+
		"carried over")
	return cmd
}

// wrongLines says what is wrong with the file that was made of a lab. It leaves out the numbers of lines: they count
// the lines of the made file, which the user has never seen.
func wrongLines(err error) string {
	var all spec.Errors
	if !errors.As(err, &all) {
		return "  " + err.Error()
	}
	return "  " + strings.Join(each.Of(all, func(e *spec.Error) string { return e.Message }), "\n  ")
}

// readLab reads a lab's file. It also returns how to read the files that the lab names; there is no way to do so if the
// lab comes by standard input.
func (c *CLI) readLab(path string) (name string, data []byte, read func(string) ([]byte, error), err error) {
	if path == "-" {
		data, err = io.ReadAll(io.LimitReader(c.In, importMost))
		return "standard input", data, nil, err
	}
	if data, err = readRegular(path, os.Stat, os.OpenFile); err != nil {
		return path, nil, nil, err
	}
	return path, data, func(named string) ([]byte, error) { return readBeside(path, named) }, nil
}

// readBeside reads a file that a lab names. The lab may be somebody else's, so nothing outside of its directory is
// read, also not by way of a link; `apply` refuses that as well.
func readBeside(lab, named string) ([]byte, error) {
	dir, err := filepath.Abs(filepath.Dir(lab))
	if err != nil {
		return nil, err
	}
	if filepath.IsAbs(named) {
		if named, err = filepath.Rel(dir, named); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(named, root.Stat, root.OpenFile)
}

func readRegular(path string, stat func(string) (fs.FileInfo, error),
	open func(string, int, fs.FileMode) (*os.File, error)) ([]byte, error) {
	info, err := stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, importMost))
}

// fileWords says which words a file may have. It asks the parser, so that it cannot be wrong about this version.
var fileWords = sync.OnceValue(func() convert.Words {
	reads := func(text string) bool {
		_, err := spec.Parse("words", []byte("network: words\n"+text), spec.Options{
			ReadFile: func(string) ([]byte, error) { return []byte("text"), nil }})
		return err == nil
	}
	return convert.Words{
		Start:       reads("hosts: {h: {start: [\"true\"]}}\nrouters: {r: {start: [\"true\"]}}\n"),
		Env:         reads("hosts: {h: {env: {A: \"1\"}}}\nrouters: {r: {env: {A: \"1\"}}}\n"),
		Files:       reads("hosts: {h: {files: {/etc/x: ./x}}}\nrouters: {r: {files: {/etc/x: ./x}}}\n"),
		Image:       reads("hosts: {h: {image: \"alpine:3\"}}\n"),
		Unaddressed: reads("hosts: [a, b]\nlinks: [{a -- b: {addressing: none}}]\n"),
	}
})
