package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

const (
	// MaxTree bounds the files of one element, in bytes, with their names and what tar adds; MaxFiles how many there
	// are.
	MaxTree  = 60 << 20
	MaxFiles = 10000
	// owners are the user and group IDs that an element has.
	owners = 65536
	// treeMode is what of a file's mode is taken along. Set-user-ID and the like are not: they would be of a program
	// that somebody else brought.
	treeMode = fs.ModePerm
)

// File is a regular file of an element's own.
type File struct {
	Path     string // below the element's root, like root/work
	Size     int64
	Mode     fs.FileMode
	UID, GID int // as the element has them
	Modified time.Time
}

// check says what is wrong with a file that somebody else has described.
func (f *File) check() error {
	switch {
	case !fs.ValidPath(f.Path) || f.Path == "." || strings.ContainsRune(f.Path, 0):
		return fmt.Errorf("%.200q is no path below an element's root", f.Path)
	case f.Size < 0 || f.Size > MaxTree:
		return fmt.Errorf("%.200q has %d bytes, and %d are allowed", f.Path, f.Size, MaxTree)
	case f.UID < 0 || f.UID >= owners || f.GID < 0 || f.GID >= owners:
		return fmt.Errorf("%.200q belongs to user %d and group %d, which no element has", f.Path, f.UID, f.GID)
	}
	return nil
}

// Tree writes the files of an element.
type Tree struct {
	w     *tar.Writer
	bytes int64
	files int
}

// NewTree begins a tree. Close ends it; one that was not closed is no whole one.
func NewTree(w io.Writer) *Tree { return &Tree{w: tar.NewWriter(w)} }

// Add writes a file. It fails if the content is not as long as the file says.
func (t *Tree) Add(f File, content io.Reader) error {
	if err := f.check(); err != nil {
		return err
	}
	// A name of more than 100 bytes needs a record of its own.
	t.bytes += 512 + (f.Size+511)/512*512 + 1024 + int64(len(f.Path)+511)/512*512
	if t.files++; t.files > MaxFiles || t.bytes > MaxTree {
		return fmt.Errorf("it has more files of its own than an archive takes: %d of %d MiB together", MaxFiles,
			MaxTree>>20)
	}
	err := t.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size,
		Mode: int64(f.Mode & treeMode), Uid: f.UID, Gid: f.GID, ModTime: f.Modified.Truncate(time.Second),
		Format: tar.FormatPAX})
	if err != nil {
		return err
	}
	if _, err = io.CopyN(t.w, content, f.Size); errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s became shorter while it was read", f.Path)
	}
	return err
}

// Close ends the tree.
func (t *Tree) Close() error { return t.w.Close() }

// ReadTree reads the files of an element. It refuses whatever a Tree does not write: links, devices, paths that lead
// out of the root, holes. An error of each ends it. A tree that ends too early is an error, too.
func ReadTree(r io.Reader, each func(File, io.Reader) error) error {
	counted := &counting{r: io.LimitReader(r, MaxTree+1)}
	t := tar.NewReader(counted)
	seen := map[string]bool{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return whole(err)
		}
		f := File{Path: h.Name, Size: h.Size, Mode: fs.FileMode(h.Mode) & treeMode, UID: h.Uid, GID: h.Gid,
			Modified: h.ModTime}
		if h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%.200q is no regular file: links, devices and the like are not taken", h.Name)
		}
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse") {
				return fmt.Errorf("%.200q has holes, which are not taken", h.Name)
			}
		}
		if err := f.check(); err != nil {
			return err
		}
		if seen[f.Path] {
			return fmt.Errorf("%.200q is there twice", f.Path)
		}
		if seen[f.Path] = true; len(seen) > MaxFiles {
			return fmt.Errorf("there are more than %d files", MaxFiles)
		}
		if err := each(f, t); err != nil {
			return err
		}
	}
	// The end of a tar is 1024 zero bytes. Where they are missing, something else may be, too.
	if !counted.ended() {
		return whole(io.ErrUnexpectedEOF)
	}
	return nil
}

// whole says that something is not whole.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("it is cut off")
	}
	return fmt.Errorf("it is damaged: %w", err)
}

// counting remembers the last bytes that were read.
type counting struct {
	r    io.Reader
	tail [1024]byte // the last ones, at the end
	n    int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	switch b := p[:n]; {
	case n >= len(c.tail):
		copy(c.tail[:], b[n-len(c.tail):])
	default:
		copy(c.tail[:], c.tail[n:])
		copy(c.tail[len(c.tail)-n:], b)
	}
	return n, err
}

// ended tells whether what was read ends as a tar does, and nothing comes after it.
func (c *counting) ended() bool {
	if n, _ := c.Read(make([]byte, 1)); n > 0 {
		return false
	}
	return c.n >= 1024 && c.tail == [1024]byte{}
}
