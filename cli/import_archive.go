package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

// undoTime bounds how long an import that failed is taken back.
const undoTime = 30 * time.Second

// isArchive returns whether a file, or the standard input, begins as a tar archive does (POSIX.1-1988, ustar).
func (c *CLI) isArchive(path string) (bool, error) {
	const magic, at = "ustar", 257
	if path == "-" {
		in := bufio.NewReader(c.In)
		c.In = in
		begin, _ := in.Peek(at + len(magic)) // a shorter file is no archive
		return len(begin) == at+len(magic) && string(begin[at:]) == magic, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no regular file; - reads standard input", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	begin := make([]byte, len(magic))
	_, err = f.ReadAt(begin, at)
	return err == nil && string(begin) == magic, nil
}

// importArchive makes a network out of an archive.
func (c *CLI) importArchive(ctx context.Context, path, name string, timeout time.Duration) error {
	file, size, err := c.openArchive(path)
	if err != nil {
		return badFile(err)
	}
	defer file.Close()
	a, err := archive.Open(file, size)
	if err != nil {
		return badFile(fmt.Errorf("%s is refused: %w", path, err))
	}
	net, err := c.archived(a, path, name)
	if err != nil {
		return badFile(err)
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	return c.importNetwork(ctx, cl, a, net, timeout)
}

// openArchive opens an archive's file. What comes by standard input is written into a file that nobody finds.
func (c *CLI) openArchive(path string) (*os.File, int64, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file; - reads standard input", path)
		}
		if err != nil {
			f.Close()
			return nil, 0, err
		}
		return f, info.Size(), nil
	}
	f, err := temporaryFile()
	if err != nil {
		return nil, 0, err
	}
	size, err := io.Copy(f, io.LimitReader(c.In, archive.MaxSize+1))
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// archived is the network of an archive, for whoever imports it.
func (c *CLI) archived(a *archive.Archive, path, name string) (net model.Network, err error) {
	// Somebody else wrote the document, so it must not name files of this machine.
	networks, err := spec.Parse(path+": the network in it", a.Document, spec.Options{
		ReadFile: func(string) ([]byte, error) { return nil, errors.New("an archive names no files outside of it") }})
	if err != nil {
		return net, err
	}
	if len(networks) != 1 || networks[0].Name != a.Manifest.Network {
		return net, fmt.Errorf("%s is refused: its manifest tells of network %s, and its document of another", path,
			oneLine(a.Manifest.Network))
	}
	if name != "" {
		if networks, err = renamed(networks, []string{name}); err != nil {
			return net, err
		}
	}
	net = networks[0]
	net.Owner = ""
	for _, element := range a.Elements() {
		if !slices.ContainsFunc(net.Elements, func(e model.Element) bool { return e.Name == element }) {
			return net, fmt.Errorf("%s is refused: it has files of an element %s, which its document does not have",
				path, element)
		}
	}
	return net, nil
}

// importNetwork makes the network, whole or not at all.
func (c *CLI) importNetwork(ctx context.Context, cl Client, a *archive.Archive, net model.Network,
	timeout time.Duration) (err error) {
	begin := c.Now()
	if !strings.Contains(net.Name, "/") { // also where somebody else has one that is called so
		refs := c.refs(ctx)
		refs.known()
		if refs.user != "" {
			net.Name = refs.user + "/" + net.Name
		}
	}
	if err := c.bringArchived(ctx, cl, a, &net); err != nil {
		return err
	}
	made, err := cl.ApplyAll(ctx, []model.Document{{Network: net, Base: model.BaseNew}},
		model.ApplyOptions{Owner: c.User(), Provisional: true})
	if err != nil {
		return wrap(ctx, cl, fmt.Errorf("nothing is imported: %w", err), ref{})
	}
	net.Name = made[0].Record.Network.Name
	if err = c.fill(ctx, cl, a, net, timeout); err == nil {
		err = cl.Keep(ctx, net.Name)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		words := "nothing is imported, and what was made of it is being removed"
		if undone := cl.Delete(undo, net.Name, true); undone != nil {
			words = fmt.Sprintf("nothing is imported; what was made of it is removed within %v (it could not be "+
				"removed at once: %v)", model.ProvisionalTime, undone)
		}
		return wrap(ctx, cl, fmt.Errorf("%s: %w", words, err), ref{})
	}
	fmt.Fprintf(c.Out, "%s imported in %s: %s, files of %d\n", net.Name, elapsed(c.Now().Sub(begin)), contents(net),
		len(a.Elements()))
	return nil
}

// fill waits until the network's elements are there, and gives them their files.
func (c *CLI) fill(ctx context.Context, cl Client, a *archive.Archive, net model.Network, timeout time.Duration) error {
	missing := ""
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		elements, err := cl.Elements(ctx, net.Name)
		missing = ""
		for _, e := range elements {
			if e.Phase == model.PhasePending || e.LastTold != 0 {
				missing = e.ID.String()
			}
		}
		return missing == "" && len(elements) == len(net.Elements), err
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: ExitTimeout, Err: fmt.Errorf("%s is not made after %s", missing, timeout)}
	case err != nil:
		return err
	}
	for _, name := range a.Elements() {
		r, _ := a.Tree(name)
		tree, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := cl.Unpack(ctx, model.ID{Network: net.Name, Element: name}, tree); err != nil {
			return err
		}
	}
	return nil
}
