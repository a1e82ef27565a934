package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Files that are put into elements and are too large for a network's document come as an image of one layer. So they
// are kept, sent, verified and unpacked as images are. The layer has nothing but regular files: one that is called
// FilesName, or those below a directory of that name. They belong to root and have no time of their own: the same files
// have the same ID, whoever has copied them, and whenever.

// FilesName is what such an image has in its root.
const FilesName = "files"

// kindFiles is what the configuration of such an image says of it.
const kindFiles = "files"

// IsFiles tells whether these are files that are put into elements. No element is made from them.
func (i *Image) IsFiles() bool { return i.Config.Kind == kindFiles }

// Given is a file that is put into elements.
type Given struct {
	Path string // below the directory that is given; empty where a file is
	Size int64
	Perm fs.FileMode
	Open func() (io.ReadCloser, error)
}

// NewFiles is the image of files. They are read here, and again whenever it is written: those that have changed
// meanwhile are an error then.
func NewFiles(ctx context.Context, files []Given) (*Image, error) {
	for i := range files {
		if err := model.CheckTreePath(files[i].Path); err != nil {
			return nil, fmt.Errorf("%.120q: %w", files[i].Path, err)
		}
	}
	sum, size := sha256.New(), counter(0)
	if err := packFiles(ctx, io.MultiWriter(sum, &size), files); err != nil {
		return nil, err
	}
	c := Config{OS: "linux", Kind: kindFiles}
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []Digest{Digest(digestPrefix + hex.EncodeToString(sum.Sum(nil)))}
	raw, err := json.Marshal(&c)
	if err != nil {
		return nil, err
	}
	return New(raw, nil, []Layer{{Size: int64(size), Open: func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(packFiles(ctx, w, files)) }() //nolint:errcheck // never fails
		return r, nil
	}}})
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// packFiles writes the layer.
func packFiles(ctx context.Context, w io.Writer, files []Given) error {
	t := tar.NewWriter(w)
	for i := range files {
		if err := packFile(ctx, t, &files[i]); err != nil {
			return err
		}
	}
	return t.Close()
}

func packFile(ctx context.Context, t *tar.Writer, f *Given) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(FilesName, f.Path), Size: f.Size,
		Mode: int64(f.Perm & fs.ModePerm), ModTime: time.Unix(0, 0), Format: tar.FormatGNU})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(t, io.LimitReader(r, f.Size))
	if err != nil {
		return err
	}
	if more, _ := r.Read(make([]byte, 1)); n < f.Size || more > 0 {
		return fmt.Errorf("%s has changed while it was read", f.Path)
	}
	return nil
}

// checkFiles tells what is wrong with an image of files as a whole.
func (i *Image) checkFiles() error {
	switch {
	case !i.IsFiles() && i.Config.Kind != "":
		return fmt.Errorf("it is of a kind that is not known here: %.80q", i.Config.Kind)
	case i.IsFiles() && len(i.Layers) != 1:
		return fmt.Errorf("files that are put into elements are one layer, and it has %d", len(i.Layers))
	}
	return nil
}

// checkGiven tells what is wrong with one of the files of such an image.
func (c *Counts) checkGiven(e *entry) error {
	switch {
	case e.kind != tar.TypeReg:
		return fmt.Errorf("%.120q is no regular file, and only such are put into elements", e.path)
	case e.path != FilesName && !strings.HasPrefix(e.path, FilesName+"/"):
		return fmt.Errorf("%.120q is not below %s", e.path, FilesName)
	case e.mode&^fs.ModePerm != 0 || e.uid != 0 || e.gid != 0:
		return fmt.Errorf("%.120q belongs to somebody else than root, or has a mode beyond 0777", e.path)
	case c.Bytes > int64(model.MaxTree):
		return fmt.Errorf("the files have more than %s, the most that is put into an element at a path", model.MaxTree)
	case c.Files > model.MaxTreeFiles:
		return fmt.Errorf("there are more than %d files, the most that is put into an element at a path",
			model.MaxTreeFiles)
	}
	if err := model.CheckTreePath(strings.TrimPrefix(strings.TrimPrefix(e.path, FilesName), "/")); err != nil {
		return fmt.Errorf("%.120q: %w", e.path, err)
	}
	return nil
}

var (
	errRemoves = errors.New("files that are put into elements remove none")
	errNoFiles = errors.New("there is none of the files in it that are put into elements")
)
