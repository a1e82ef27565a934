package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/spec"
)

// bringTrees finds out which files of elements are too large for the network's document, and names them by their IDs.
// With send it brings what the manager does not have.
func (c *CLI) bringTrees(ctx context.Context, cl Client, networks []model.Network, send bool) error {
	is := map[treeSource]string{}
	for i := range networks {
		elements := slices.Clone(networks[i].Elements)
		for k := range elements {
			all := elements[k].Contents
			for _, at := range slices.Sorted(maps.Keys(all)) {
				f := all[at]
				if !path.IsAbs(f.Tree) {
					continue
				}
				from := treeSource{f.Tree, f.Mode}
				if is[from] == "" {
					id, err := c.bringTree(ctx, cl, f, send)
					if err != nil {
						return err
					}
					is[from] = id
				}
				f.Tree, f.Mode = is[from], ""
				all = maps.Clone(all)
				all[at] = f
			}
			elements[k].Contents = all
		}
		networks[i].Elements = elements
	}
	return nil
}

// treeSource is where files are that are too large for a document, and the mode that all of them get.
type treeSource struct{ path, mode string }

// bringTree brings the files of one place, and returns their ID. The plan has looked at them before: if the manager has
// them already, they are not read again.
func (c *CLI) bringTree(ctx context.Context, cl Client, f model.File, send bool) (string, error) {
	if id := c.trees[treeSource{f.Tree, f.Mode}]; id != "" && send {
		_, err := cl.NameImage(ctx, id, "")
		if err == nil || !client.IsNotFound(err) {
			return id, wrap(ctx, cl, err, ref{})
		}
	}
	files, closeAll, err := spec.LargeFiles(f)
	if err != nil {
		return "", badFile(err)
	}
	defer closeAll() //nolint:errcheck // files that were only read
	given := each.Of(files, func(is spec.LargeFile) image.Given {
		return image.Given{Path: is.Path, Size: is.Size, Perm: is.Perm, Open: is.Open}
	})
	img, err := image.NewFiles(ctx, given)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", badFile(fmt.Errorf("%s: %w", f.Tree, err))
	}
	if send {
		err = c.sendTree(ctx, cl, img, f.Tree)
	} else {
		if c.trees == nil {
			c.trees = map[treeSource]string{}
		}
		c.trees[treeSource{f.Tree, f.Mode}] = string(img.ID)
	}
	return string(img.ID), err
}

// sendTree gives files to the manager. What is there already is not sent.
func (c *CLI) sendTree(ctx context.Context, cl Client, img *image.Image, what string) error {
	_, err := cl.NameImage(ctx, string(img.ID), "")
	if err == nil || !client.IsNotFound(err) {
		return wrap(ctx, cl, err, ref{})
	}
	say(c.Err, "files %s (%s): sending %s\n", what, img.ID.Short(), byteCount(uint64(img.StoredSize())))
	_, err = c.put(ctx, cl, img, "", "files "+what)
	return err
}

// treesOf returns the IDs of the sets of files that a network puts into its elements.
func treesOf(n *model.Network) (ids []string) {
	for i := range n.Elements {
		for _, f := range n.Elements[i].Contents {
			if f.Tree != "" && !slices.Contains(ids, f.Tree) {
				ids = append(ids, f.Tree)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// archivedTree is a part of an archive with files that the manager has.
func archivedTree(ctx context.Context, cl Client, id string) (archive.Content, io.Closer, error) {
	r, err := cl.KeptTree(ctx, id)
	if err != nil {
		return archive.Content{}, nil, err
	}
	defer r.Close()
	spool, err := temporaryFile()
	if err != nil {
		return archive.Content{}, nil, err
	}
	size, err := io.Copy(spool, io.LimitReader(r, archive.MaxGiven+1))
	var part archive.Content
	if err == nil {
		part, err = archive.GivenOf(image.Digest(id).Hex(), spool, size)
	}
	if err != nil {
		spool.Close()
		return archive.Content{}, nil, err
	}
	return part, spool, nil
}

// bringArchived gives the manager the files that an archive has of a network's.
func (c *CLI) bringArchived(ctx context.Context, cl Client, a *archive.Archive, net *model.Network) error {
	for _, id := range treesOf(net) {
		content, _ := a.Given(image.Digest(id).Hex())
		if content == nil {
			continue // the manager may have them
		}
		spool, err := temporaryFile()
		if err != nil {
			return err
		}
		if _, err := io.Copy(spool, content); err != nil {
			spool.Close()
			return err
		}
		img, err := image.OpenArchive(spool)
		if err != nil {
			spool.Close()
			return badFile(fmt.Errorf("the archive's files %s: %w", image.Digest(id).Short(), err))
		}
		if string(img.ID) != id || !img.IsFiles() {
			err = badFile(fmt.Errorf("the archive's files %s are not what their name says", image.Digest(id).Short()))
		} else {
			err = c.sendTree(ctx, cl, img, "of the archive")
		}
		img.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
