package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

func (c *CLI) exportCommand() *cobra.Command {
	out, partial := "", false
	cmd := &cobra.Command{
		Use:   "export NET",
		Short: "Write a network with everything in it into one archive",
		Long: `Write a network with everything in it into one archive, which import takes, here or elsewhere.

The archive is a tar: a manifest with the size and the SHA-256 of everything else, the network as save --running prints
it, the large files that it puts into elements, and for each element a tar of the regular files that were made or
changed inside, with their modes, owners and times. Links, devices, empty directories, logs and temporary files are not
taken along. If an element cannot be asked, or a router does not say what it runs with, nothing is written, unless
--partial is given. An element may have 10,000 files and 60 MiB.`,
		GroupID: groupNetworks,
		Example: "  polyplane export lab\n  polyplane export lab -o ann-lab.tar\n  polyplane export lab -o - | " +
			"ssh there polyplane import -",
		Args: args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			cl, record, err := c.recorded(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = strings.ReplaceAll(record.Network.Name, "/", "-") + ".tar"
			}
			return c.export(cmd.Context(), cl, record, out, partial)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "the archive's `FILE` (- is standard output); NET.tar when left out")
	cmd.Flags().BoolVar(&partial, "partial", false, "write what there is, although it is not everything")
	return cmd
}

// export writes an archive of a network. It appears under its name when it is whole.
func (c *CLI) export(ctx context.Context, cl Client, record model.Record, out string, partial bool) error {
	running, lacks, err := askRunning(ctx, cl, &record.Network)
	if err != nil {
		return err
	}
	_, title, _ := model.SplitReference(record.Network.Name)
	inside := record // whoever imports it owns it
	inside.Network.Name = title
	text, notes, err := spec.FormatRunning(inside, running)
	if err != nil {
		return err
	}
	if err := spec.CheckSize(text); err != nil {
		return failed("%s is not exported, since its document would not be read again: %v", record.Network.Name, err)
	}
	spool, err := temporaryFile()
	if err != nil {
		return err
	}
	defer spool.Close()
	parts := []archive.Content{archive.Document(text)}
	for _, id := range treesOf(&record.Network) {
		part, spool, err := archivedTree(ctx, cl, id)
		if err != nil {
			return wrap(ctx, cl, fmt.Errorf("the files %s that it is given: %w", image.Digest(id).Short(), err), ref{})
		}
		defer spool.Close()
		parts = append(parts, part)
	}
	with := 0
	for _, e := range record.Network.Elements {
		id := model.ID{Network: record.Network.Name, Element: e.Name}
		now := running[e.Name]
		if links := linksOf(now.Files); links != "" {
			notes = append(notes, fmt.Sprintf("%s: links are not taken along: %s", id, links))
		}
		if len(now.Files) == 0 && !now.More {
			continue
		}
		tree, err := packed(ctx, cl, id, e.Name, spool)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			lacks = append(lacks, fmt.Sprintf("%s: its files: %s", id, oneLine(err.Error())))
			continue
		}
		parts = append(parts, tree)
		with++
	}
	for _, note := range append(notes, lacks...) {
		fmt.Fprintln(c.Err, note)
	}
	if len(lacks) > 0 && !partial {
		return failed("%s is not exported, since that is not everything; --partial writes what there is",
			record.Network.Name)
	}
	manifest := archive.Manifest{Network: title, Made: c.Now().UTC(), By: c.Version}
	if out == "-" {
		return archive.Write(c.Out, manifest, parts)
	}
	size, err := writeArchive(out, manifest, parts)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s exported to %s: %s, files of %d, %s\n", record.Network.Name, out,
		contents(record.Network), with, model.Bytes(size).Rounded())
	return nil
}

// temporaryFile returns a file without a name. Nobody else can open it, and the kernel frees it when this process ends.
func temporaryFile() (*os.File, error) {
	f, err := os.CreateTemp("", "polyplane-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// packed adds an element's files to the end of a spool file, and makes a part of an archive of them.
func packed(ctx context.Context, cl Client, id model.ID, name string, spool *os.File) (archive.Content, error) {
	begin, err := spool.Seek(0, io.SeekEnd)
	if err != nil {
		return archive.Content{}, err
	}
	r, err := cl.Pack(ctx, id)
	if err != nil {
		return archive.Content{}, err
	}
	defer r.Close()
	size, err := io.Copy(spool, io.LimitReader(r, archive.MaxTree+1))
	if err != nil {
		return archive.Content{}, err
	}
	return archive.TreeOf(name, io.NewSectionReader(spool, begin, size), size)
}

// linksOf names the links among files.
func linksOf(files []model.OwnFile) string {
	links := each.That(files, func(f model.OwnFile) bool { return f.Link })
	return model.FewNames(8, each.Of(links, func(f model.OwnFile) string { return oneLine(f.Path) }))
}

// writeArchive writes an archive beside its place, and puts it there when all of it is on the disk.
func writeArchive(path string, manifest archive.Manifest, contents []archive.Content) (size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	err = archive.Write(f, manifest, contents)
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(f.Name(), path)
}
