package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/image/registry"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

func (c *CLI) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Images that hosts and routers are made from",
		Long: `Images that hosts and routers are made from (` + "`image:`" + ` in a file). The manager keeps them, and sends each
once to every node that needs it, joined ones included. There it is unpacked once, read-only, for all
elements. What nobody has used for ten minutes goes from a node, and stays with the manager.
Large files that networks put into elements (` + "`files:`" + `) are in the list, too. They have no name, and go an
hour after the last network that used them.

Who is an owner has images of the own; those of administrators are everybody's. A quota bounds them
(` + "`polyplane quota owner/NAME images=5GiB`" + `).`,
		GroupID: groupNetworks,
	}
	cmd.AddCommand(c.imageImport(), c.imagePull(), c.imageList(), c.imageRemove())
	return cmd
}

func (c *CLI) imageImport() *cobra.Command {
	name, from := "", ""
	cmd := &cobra.Command{
		Use: "import FILE|DIR|-|NAME", Short: "Give an image to the manager",
		Long: `Give an image to the manager: an archive or a layout of OCI, or what ` + "`docker save`" + ` or ` + "`podman save`" + `
writes; - is standard input. It is read whole and verified; one that is damaged, too large or that leads
out of its own files is refused in words, and leaves nothing behind.

It gets the name that it has in the archive, else the file's, else that of --name.

With --from it is an image of docker or podman on this machine. ` + "`apply`" + ` looks there, too, for images that the
manager does not have, before it asks a registry.`,
		Example: "  polyplane image import web.tar\n  docker save lab/web:1 | polyplane image import -\n" +
			"  polyplane image import ./layout --name lab/web:2\n  polyplane image import --from docker lab/web:1",
		Args: args(1, 1, "FILE, DIR, - or NAME"),
		RunE: func(cmd *cobra.Command, given []string) error {
			img, err := c.imageOf(cmd.Context(), from, given[0])
			if err != nil {
				return badFile(err)
			}
			defer img.Close()
			if name == "" && from != "" {
				name = given[0]
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if name == "" {
				name = nameOf(img, given[0])
			}
			return c.sendImage(cmd.Context(), cl, img, name)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what it is called, like `lab/web:1`")
	cmd.Flags().StringVar(&from, "from", "", "who has the image on this machine: `docker` or podman")
	mustComplete(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
	mustComplete(cmd.RegisterFlagCompletionFunc("from",
		cobra.FixedCompletions(engines, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// imageOf gets an image from docker or podman, or from a file if neither is named.
func (c *CLI) imageOf(ctx context.Context, from, what string) (*image.Image, error) {
	if from != "" {
		return fromEngine(ctx, from, what)
	}
	img, err := c.openImage(what)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return img, err
}

func (c *CLI) imagePull() *cobra.Command {
	return &cobra.Command{
		Use: "pull NAME", Short: "Have an image from a registry, and give it to the manager",
		Long: `Have an image from a registry, and give it to the manager under the same name. This command talks to the
registry by itself, with the log-ins of docker and podman on this machine; the manager and the nodes talk
to none. An image that is there under this name already is had anew; networks get it at their next apply.`,
		Example: "  polyplane image pull nginx:1.27\n  polyplane image pull registry.example.org/lab/web@sha256:…",
		Args:    args(1, 1, "NAME"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			return c.pullImage(cmd.Context(), cl, given[0])
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func (c *CLI) imageList() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the images that elements can be made from",
		RunE: c.connected(func(cmd *cobra.Command, cl Client, _ []string) error {
			all, err := cl.Images(cmd.Context())
			if err != nil {
				return err
			}
			if o.format != formatTable {
				return writeValue(c.Out, o.format, all)
			}
			if len(all) == 0 {
				fmt.Fprintln(c.Out, "there are no images: `polyplane image import FILE` or `polyplane image pull "+
					"NAME` brings one")
				return nil
			}
			const columns = "%-32s %-12s %-10s %-10s %-10s %s\n"
			fmt.Fprintf(c.Out, columns, "NAME", "ID", "KEPT", "UNPACKED", "OWNER", "USED BY")
			for _, i := range all {
				names := i.Names
				if len(names) == 0 {
					names = []string{"-"}
				}
				if i.Tree {
					names = []string{"(files)"}
				}
				for _, name := range names {
					fmt.Fprintf(c.Out, columns, name, image.Digest(i.ID).Short(), byteCount(uint64(i.Size)),
						byteCount(uint64(i.Unpacked)), cmp.Or(i.Owner, "everybody"),
						cmp.Or(model.FewNames(4, i.UsedBy), "-"))
				}
			}
			return nil
		}),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) imageRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME|ID…", Aliases: []string{"rm"}, Short: "Remove images that no network uses",
		Long: `Remove images that no network uses. Of an image with several names only the one that is given goes, and the
image with the last of them. The first 12 digits of an ID are enough.`,
		Example: "  polyplane image remove lab/web:1",
		Args:    args(1, -1, "NAME"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			for _, of := range given {
				if _, err := cl.RemoveImage(cmd.Context(), of); err != nil {
					return err
				}
				say(c.Out, "removed: %s\n", of)
			}
			return nil
		}),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if cl, err := c.connect(); err == nil {
				all, _ := cl.Images(cmd.Context())
				for _, i := range all {
					names = append(names, i.Names...)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// openImage opens an image of a file, a directory or standard input.
func (c *CLI) openImage(path string) (*image.Image, error) {
	if path != "-" {
		return image.Open(path)
	}
	return readImage(c.In)
}

// readImage reads an archive that comes as a stream.
func readImage(r io.Reader) (*image.Image, error) {
	f, err := os.CreateTemp("", "polyplane-image-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) //nolint:errcheck // nobody needs the name; at worst it stays
	n, err := io.Copy(f, io.LimitReader(r, image.MaxSize+1))
	if err == nil && n > image.MaxSize {
		err = errors.New("it is larger than an image can be")
	}
	var img *image.Image
	if err == nil {
		img, err = image.OpenArchive(f)
	}
	if err != nil {
		f.Close()
	}
	return img, err
}

// nameOf is what an image is called: as its archive says, else as its file is called.
func nameOf(img *image.Image, path string) string {
	for _, name := range img.Names {
		if strings.ContainsAny(name, ":/") { // a bare tag says nothing
			return name
		}
	}
	base := filepath.Base(path)
	if path == "-" || base == "." || base == "/" {
		return "imported-" + img.ID.Short()
	}
	return strings.TrimLeft(base, ".")
}

// The manager may end while something is sent to it. sendTries is how often it is sent in all, backWithin how long the
// next manager is waited for, and backEvery how often it is asked meanwhile.
const (
	sendTries  = 3
	backWithin = 30 * time.Second
	backEvery  = 200 * time.Millisecond
)

// put sends the manager an image; what is its name in errors. If the manager ends meanwhile, put sends the image again
// to the next one.
func (c *CLI) put(ctx context.Context, cl Client, img *image.Image, name, what string) (is model.Image, err error) {
	for try := 1; ; try++ {
		is, err = putOnce(ctx, cl, img, name, what)
		var own *Error
		var refusal *client.Error
		if err == nil || ctx.Err() != nil || errors.As(err, &refusal) ||
			errors.As(err, &own) && own.Code != ExitNotRunning {
			return is, err
		}
		if try == sendTries || !isBack(ctx, cl) {
			// The cause is not wrapped: ExecuteContext takes a broken pipe for a reader of the output that has gone,
			// and would print nothing.
			return is, failed("%s: sending broke off (%v), and nothing was applied; the same command again sends it "+
				"anew", what, err)
		}
		say(c.Err, "%s: the manager ended while this was sent; it is back, and gets it again\n", what)
	}
}

// isBack waits until a manager answers.
func isBack(ctx context.Context, cl Client) bool {
	for end := time.Now().Add(backWithin); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(backEvery) {
		if _, err := cl.Ping(ctx); err == nil {
			return true
		}
	}
	return false
}

func putOnce(ctx context.Context, cl Client, img *image.Image, name, what string) (model.Image, error) {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := img.Write(w)
		w.CloseWithError(err) //nolint:errcheck // never fails
		wrote <- err
	}()
	is, err := cl.PutImage(ctx, string(img.ID), name, img.StoredSize(), r)
	r.CloseWithError(io.ErrClosedPipe) //nolint:errcheck // never fails
	if own := <-wrote; own != nil && !errors.Is(own, io.ErrClosedPipe) {
		return is, badFile(fmt.Errorf("%s: %w", what, own))
	}
	return is, wrap(ctx, cl, err, ref{})
}

// sendImage gives an image to the manager. What is there already is not sent.
func (c *CLI) sendImage(ctx context.Context, cl Client, img *image.Image, name string) error {
	_, err := cl.NameImage(ctx, string(img.ID), name)
	if err == nil {
		say(c.Out, "image %s (%s) is there already\n", name, img.ID.Short())
		return nil
	}
	if !client.IsNotFound(err) {
		return wrap(ctx, cl, err, ref{})
	}
	say(c.Err, "image %s (%s): sending %s\n", name, img.ID.Short(), byteCount(uint64(img.StoredSize())))
	begin := c.Now()
	is, err := c.put(ctx, cl, img, name, "image "+name)
	if err != nil {
		return err
	}
	words := ""
	if is.LeftOut > 0 {
		words = fmt.Sprintf("; %s of devices, pipes and sockets are left out", plural(is.LeftOut, "file"))
	}
	say(c.Out, "image %s (%s): %s, %s unpacked, in %s%s\n", name, img.ID.Short(), plural(is.Files, "file"),
		byteCount(uint64(is.Unpacked)), c.Now().Sub(begin).Round(time.Millisecond), words)
	return nil
}

// pullTold is the time between two lines that tell how far a pull has come.
const pullTold = 10 * time.Second

func (c *CLI) pullImage(ctx context.Context, cl Client, name string) error {
	say(c.Err, "image %s: pulling\n", name)
	told := c.Now()
	img, err := registry.Pull(ctx, name, func(done, of int64) {
		if now := c.Now(); now.Sub(told) > pullTold {
			told = now
			say(c.Err, "image %s: %s of %s\n", name, byteCount(uint64(done)), byteCount(uint64(max(of, done))))
		}
	})
	if err != nil {
		return &Error{Code: ExitFailed, Err: err}
	}
	defer img.Close()
	return c.sendImage(ctx, cl, img, name)
}

// isImageFile tells whether an image is named by a path.
func isImageFile(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}

// placeImages makes the paths of images absolute. In a file they are relative to the directory of that file.
func placeImages(n *model.Network, file string) error {
	for i := range n.Elements {
		e := &n.Elements[i]
		if !isImageFile(e.Image) || filepath.IsAbs(e.Image) {
			continue
		}
		dir := "."
		if file != stdinName {
			dir = filepath.Dir(file)
		}
		path, err := filepath.Abs(filepath.Join(dir, e.Image))
		if err != nil {
			return err
		}
		e.Image = path
	}
	return nil
}

// bringImages finds out which images networks name by files, and brings what the manager does not have. Without send it
// only finds out.
func (c *CLI) bringImages(ctx context.Context, cl Client, networks []model.Network, send bool) error {
	if err := c.bringTrees(ctx, cl, networks, send); err != nil {
		return err
	}
	var names []string
	for i := range networks {
		for k := range networks[i].Elements {
			if name := networks[i].Elements[k].Image; name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := cl.Images(ctx)
	if err != nil {
		return wrap(ctx, cl, err, ref{})
	}
	is := map[string]string{}
	for _, name := range names {
		if is[name], err = c.bringImage(ctx, cl, all, name, send); err != nil {
			return err
		}
	}
	for i := range networks {
		elements := slices.Clone(networks[i].Elements)
		for k := range elements {
			if name := elements[k].Image; name != "" {
				elements[k].Image = is[name]
			}
		}
		networks[i].Elements = elements
	}
	return nil
}

// bringImage brings one image, and returns how it is named to the manager.
func (c *CLI) bringImage(ctx context.Context, cl Client, all []model.Image, name string, send bool) (string, error) {
	if isImageFile(name) {
		img, err := image.Open(name)
		if err != nil {
			return "", badFile(fmt.Errorf("image %s: %w", name, err))
		}
		defer img.Close()
		as := nameOf(img, name)
		if send {
			err = c.sendImage(ctx, cl, img, as)
		}
		return model.PinImage(as, string(img.ID)), err
	}
	known, id := model.SplitImage(name)
	there := slices.ContainsFunc(all, func(i model.Image) bool {
		return id != "" && i.ID == id || id == "" && (slices.Contains(i.Names, known) ||
			len(known) >= 12 && strings.HasPrefix(image.Digest(i.ID).Hex(), strings.TrimPrefix(known, "sha256:")))
	})
	if there || !send || id != "" {
		return name, nil
	}
	if engine := engineWith(ctx, name); engine != "" {
		say(c.Err, "image %s: from %s on this machine\n", name, engine)
		img, err := fromEngine(ctx, engine, name)
		if err != nil {
			return "", &Error{Code: ExitFailed, Err: err}
		}
		defer img.Close()
		return name, c.sendImage(ctx, cl, img, name)
	}
	return name, c.pullImage(ctx, cl, name)
}
