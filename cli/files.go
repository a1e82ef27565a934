package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/spec"
)

// maxInput bounds what is read from standard input or a file. It is one byte more than spec accepts, so that spec says
// that it is too much.
const maxInput = spec.MaxSize + 1

// fileFlags are -f and --name. They say which documents a command is about.
type fileFlags struct {
	paths []string
	names []string
	// elsewhere are directories outside of the files' own from which networks may take files.
	elsewhere []string
	// renames says that --name was given, even if it is empty.
	renames func() bool
	// from says where each network was read, once they have been read.
	from map[string]placedDocument
}

// placedDocument is a document and the file that it was read from.
type placedDocument struct {
	spec.Document
	file string
}

func (f *fileFlags) addFlags(cmd *cobra.Command, what string) {
	cmd.Flags().StringArrayVarP(&f.paths, "file", "f", nil, what+"; may be repeated")
	mustComplete(cmd.RegisterFlagCompletionFunc("file", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}))
	cmd.Flags().StringSliceVar(&f.names, "name", nil,
		"call the file's network `NAME` instead; several names, separated by commas, make as many networks")
	f.renames = func() bool { return cmd.Flags().Changed("name") }
	mustComplete(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
}

func (f *fileFlags) given() bool { return len(f.paths) > 0 }

// readNetworks reads all documents of all files. If there are mistakes, it tells every one of them, and nothing else is
// done.
func (c *CLI) readNetworks(ctx context.Context, f *fileFlags) ([]model.Network, error) {
	var all []model.Network
	var problems []error
	from := map[string]string{}
	f.from = map[string]placedDocument{}
	for _, path := range f.paths {
		sources, err := c.sources(ctx, path)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, badFile(err)
		}
		for _, s := range sources {
			documents, err := spec.Documents(s.name, s.data, spec.Options{})
			if err != nil {
				problems = append(problems, err)
				continue
			}
			for _, d := range documents {
				n := d.Network
				if err := placeImages(&n, s.name); err != nil {
					return nil, badFile(err)
				}
				if first, twice := from[n.Name]; twice && first != s.name {
					problems = append(problems,
						fmt.Errorf("network %s is in %s and in %s: keep one of them, or rename one with --name",
							n.Name, first, s.name))
				}
				d.Network = n
				from[n.Name], f.from[n.Name] = s.name, placedDocument{d, s.name}
				all = append(all, n)
			}
		}
	}
	if len(problems) > 0 {
		return nil, badFile(errors.Join(problems...))
	}
	if len(all) == 0 {
		return nil, badFile(fmt.Errorf("%s: there is no network in it; a file begins with `network: NAME`",
			strings.Join(f.paths, ", ")))
	}
	if !f.renames() {
		return all, nil
	}
	networks, err := renamed(all, f.names)
	for _, n := range networks {
		f.from[n.Name] = f.from[all[0].Name]
	}
	return networks, err
}

// called gives networks that exist already the names by which the manager keeps them.
func (f *fileFlags) called(r *refs, networks []model.Network) error {
	for i := range networks {
		n := &networks[i]
		reference := n.Name
		if n.Owner != "" && !strings.Contains(reference, "/") {
			reference = n.Owner + "/" + reference
		}
		is, err := r.known().Find(reference)
		if several, ok := errors.AsType[*model.SeveralError](err); ok {
			several.Choices = append(several.Choices, fmt.Sprintf("%s/%s, which would be new", r.user, n.Name))
			return refused(fmt.Errorf("network %w (network: OWNER/NAME)", several))
		}
		if err == nil && is.Key != n.Name {
			f.from[is.Key] = f.from[n.Name]
			n.Name = is.Key
		}
	}
	return nil
}

// located adds to a refusal the lines of the files that it is about, in the form in which mistakes of the files are
// told.
func (f *fileFlags) located(err error) error {
	var refusal *client.Error
	if !errors.As(err, &refusal) {
		return err
	}
	text, found := refusal.Detail+":", false
	for _, reason := range refusal.Reasons {
		lines := []string{reason.Message}
		for i, p := range reason.Problems {
			if i == 0 {
				lines = nil
			}
			if len(f.names) > 1 { // --name made several networks of one document
				p.Message = "network " + p.Network + ": " + p.Message
			}
			line := p.Message
			if d, ok := f.from[p.Network]; ok {
				line, found = d.Locate(p).Error(), true
			}
			lines = append(lines, line)
		}
		text += "\n" + strings.Join(lines, "\n")
	}
	if !found {
		return err
	}
	return &Error{Code: exitCode(err), Err: &locatedError{text, err}}
}

// locatedError keeps an error, and so its exit status, under another text.
type locatedError struct {
	text string
	err  error
}

func (e *locatedError) Error() string { return e.text }
func (e *locatedError) Unwrap() error { return e.err }

// renamed makes the networks that --name asks for.
func renamed(all []model.Network, names []string) ([]model.Network, error) {
	if len(names) == 0 {
		return nil, badFile(errors.New("--name is empty: the network's new name is expected"))
	}
	if len(all) > 1 {
		have := each.Of(all, func(n model.Network) string { return n.Name })
		return nil, badFile(fmt.Errorf("--name renames one network, and there are %d in the file: %s", len(all),
			strings.Join(have, ", ")))
	}
	var out []model.Network
	for i, name := range names {
		if err := model.CheckReference(name); err != nil {
			return nil, badFile(fmt.Errorf("--name: %w", err))
		}
		if slices.Contains(names[:i], name) {
			return nil, badFile(fmt.Errorf("--name has %s twice: networks need names of their own", name))
		}
		n := all[0]
		n.Name = name
		out = append(out, n)
	}
	return out, nil
}

// stdinName is what standard input is called where a file would be.
const stdinName = "standard input"

// source is a file that networks are read from.
type source struct {
	name string
	data []byte
}

// sources reads a file, standard input, or all YAML files of a directory in the order of their names.
func (c *CLI) sources(ctx context.Context, path string) ([]source, error) {
	if path == "-" {
		if _, ok := terminalFD(c.In); ok {
			fmt.Fprintln(c.Err, "reading a network from the terminal; ^D ends it")
		}
		data, err := readBounded(ctx, func() (io.ReadCloser, error) { return io.NopCloser(c.In), nil })
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return []source{{stdinName, data}}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.IsDir() {
		data, err := readFile(ctx, path)
		return []source{{path, data}}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	var out []source
	for _, e := range entries {
		extension := filepath.Ext(e.Name())
		if e.IsDir() || extension != ".yaml" && extension != ".yml" {
			continue
		}
		name := filepath.Join(path, e.Name())
		data, err := readFile(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, source{name, data})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no .yaml or .yml file in this directory", path)
	}
	return out, nil
}

// readFile reads a file. It may be a pipe, as a shell's <(COMMAND) is.
func readFile(ctx context.Context, path string) ([]byte, error) {
	data, err := readBounded(ctx, func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil && ctx.Err() == nil {
		err = fileError(path, err)
	}
	return data, err
}

// readBounded opens something and reads it to its end, at most maxInput bytes, until the context ends. What never
// returns – a named pipe without a writer – is left behind: the process ends soon.
func readBounded(ctx context.Context, open func() (io.ReadCloser, error)) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := open()
		if err != nil {
			done <- answer{nil, err}
			return
		}
		defer r.Close()
		data, err := io.ReadAll(io.LimitReader(r, maxInput))
		done <- answer{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-done:
		return a.data, a.err
	}
}

// fileError says which file could not be read, and names those beside it when it does not exist.
func fileError(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return fmt.Errorf("read %s: %w", path, err)
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.y*ml"))
	hint := cmp.Or(didYouMean(path, files), "; `polyplane example` lists files to begin with")
	return fmt.Errorf("there is no file %s%s", path, hint)
}
