package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

func (c *CLI) copyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cp PATH NET/ELEMENT:PATH | cp NET/ELEMENT:PATH PATH",
		Short:   "Copy a file or a directory into an element, or out of it",
		GroupID: groupElements,
		Long: `Copy a file or a directory, with all that is in it, into an element or out of it, whichever node it is on.

What is copied goes into the directory at its destination, or gets the destination's name where there is
none. Inside the element it belongs to root. Modes and times are kept, set-user-ID bits are not. At most 1 GiB is copied.
"tar" inside the element does the work there, with the element's rights and within its limits.`,
		Example: "  polyplane cp ./site lab/web:/srv\n  polyplane cp lab/r1:/etc/frr/frr.conf .",
		Args:    args(2, 2, "PATH and NET/ELEMENT:PATH"),
		RunE: func(cmd *cobra.Command, given []string) error {
			from, fromPath, fromInside := c.elementPath(cmd.Context(), given[0])
			to, toPath, toInside := c.elementPath(cmd.Context(), given[1])
			if fromInside == toInside {
				return usageError(cmd, "one of %q and %q must be in an element, like lab/h1:/root", given[0], given[1])
			}
			for _, inside := range []struct {
				is   bool
				path string
			}{{fromInside, fromPath}, {toInside, toPath}} {
				if inside.is && (!path.IsAbs(inside.path) || strings.Contains(inside.path, "\x00")) {
					return usageError(cmd, "%q is no whole path in the element, like /root/x", inside.path)
				}
			}
			if toInside {
				return c.copyIn(cmd.Context(), given[0], to, toPath)
			}
			return c.copyOut(cmd.Context(), from, fromPath, given[1])
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
}

// elementPath reads NET/ELEMENT:PATH. What begins with a dot or a slash is a path here.
func (c *CLI) elementPath(ctx context.Context, s string) (id model.ID, inside string, ok bool) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") {
		return id, "", false
	}
	name, inside, ok := strings.Cut(s, ":")
	if !ok {
		return id, "", false
	}
	id, err := c.refs(ctx).element(name)
	return id, inside, err == nil
}

// maxCopied bounds, in bytes, what cp copies, and maxCopiedFiles how many files. What comes out of an element is
// whatever its root says.
const (
	maxCopied      = 1 << 30
	maxCopiedFiles = 200_000
)

// copyIn sends a tree to tar in an element.
func (c *CLI) copyIn(ctx context.Context, local string, id model.ID, inside string) error {
	info, err := os.Stat(local)
	if err != nil {
		return notFound("cp: %w", err)
	}
	if err := checkTree(local); err != nil {
		return failed("cp %s: %w", local, err)
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	within, err := c.isDirectory(ctx, cl, id, inside)
	if err != nil {
		return err
	}
	dir, name := path.Dir(path.Clean(inside)), path.Base(path.Clean(inside))
	switch absolute, err := filepath.Abs(local); {
	case err != nil:
		return failed("cp: %w", err)
	case within:
		dir, name = path.Clean(inside), filepath.Base(absolute)
	case strings.HasSuffix(inside, "/"):
		return failed("cp: %s:%s is no directory", id, inside)
	}
	if name == "/" || name == "." {
		return failed("cp: %s has no name that it could have in %s:%s", local, id, inside)
	}
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := writeTree(w, local, info, name)
		w.CloseWithError(err) //nolint:errcheck // it never fails
		sent <- err
	}()
	words := &bounded{most: 2000}
	code, err := cl.Exec(ctx, id, control.Command{Args: []string{"tar", "-x", "-f", "-", "--no-same-owner",
		"--no-overwrite-dir", "-C", dir}}, control.Stdio{In: r, Out: io.Discard, Err: words})
	r.CloseWithError(errEnded) //nolint:errcheck // it never fails
	if local := <-sent; local != nil && !errors.Is(local, errEnded) {
		return failed("cp %s: %w", given(local), local)
	}
	return c.copied(ctx, cl, id, inside, code, err, words)
}

// errEnded tells the writer of a tree that nobody reads it any more.
var errEnded = errors.New("tar in the element has ended")

func given(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Path
	}
	return "what is sent"
}

// isDirectory asks an element whether a path is a directory's.
func (c *CLI) isDirectory(ctx context.Context, cl Client, id model.ID, inside string) (bool, error) {
	words := &bounded{most: 2000}
	code, err := cl.Exec(ctx, id, control.Command{Args: []string{"test", "-d", inside}},
		control.Stdio{Out: io.Discard, Err: words})
	if err == nil && code <= 1 {
		return code == 0, nil
	}
	return false, c.copied(ctx, cl, id, inside, code, err, words)
}

// copied is the outcome of a command in the element that copies.
func (c *CLI) copied(ctx context.Context, cl Client, id model.ID, inside string, code int, err error,
	words *bounded) error {
	if err != nil {
		return c.ended(ctx, cl, code, err, id)
	}
	if code == 0 {
		return nil
	}
	if said := oneLine(words.String()); said != "" {
		return failed("cp: %s:%s: %s", id, inside, said)
	}
	return failed("cp: %s:%s: the copying command ended with status %d there", id, inside, code)
}

// copyOut takes a tree from tar in an element.
func (c *CLI) copyOut(ctx context.Context, id model.ID, inside, local string) error {
	inside = path.Clean(inside)
	dir, name := path.Dir(inside), path.Base(inside)
	if name == "/" {
		dir, name = "/", "."
	}
	into, as := filepath.Dir(filepath.Clean(local)), filepath.Base(filepath.Clean(local))
	if info, err := os.Stat(local); err == nil && info.IsDir() {
		into, as = local, name
		if name == "." {
			as = id.Element
		}
	} else if strings.HasSuffix(local, string(filepath.Separator)) {
		return failed("cp: %s is no directory", local)
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return failed("cp: %w", err)
	}
	defer root.Close()
	cl, err := c.connect()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := readTree(r, root, name, as)
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20)) // what tar fills its last block with
		}
		r.CloseWithError(err) //nolint:errcheck // it never fails
		taken <- err
	}()
	words := &bounded{most: 2000}
	code, err := cl.Exec(ctx, id, control.Command{Args: []string{"tar", "-c", "-f", "-", "--format=pax",
		"--hard-dereference", "-C", dir, "--", name}}, control.Stdio{Out: w, Err: words})
	w.Close() //nolint:errcheck // it never fails
	// Where the other side has failed, that its archive has no end says nothing.
	if local := <-taken; local != nil && (err == nil && code == 0 || !errors.Is(local, io.ErrUnexpectedEOF)) {
		return failed("cp %s:%s: %w", id, inside, local)
	}
	return c.copied(ctx, cl, id, inside, code, err, words)
}

// bounded keeps the first bytes that are written.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.most-b.Len())]) //nolint:errcheck // it never fails
	return len(p), nil
}
