package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/polyplane/polyplane/model"
)

const nonblock = syscall.O_NONBLOCK

type compressed int

const (
	plain compressed = iota
	gzipped
	zstandard
)

// compression tells by the first bytes how something is compressed.
func compression(r *bufio.Reader) (compressed, error) {
	begin, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return plain, err
	}
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		return gzipped, nil
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstandard, nil
	case bytes.HasPrefix(begin, []byte("BZh")), bytes.HasPrefix(begin, []byte{0xfd, '7', 'z', 'X'}):
		return plain, errors.New("it is compressed by bzip2 or xz: only gzip and zstd are known")
	}
	return plain, nil
}

// maxWindow bounds the memory that decompressing takes, in bytes. OCI's tools use windows of 8 MiB.
const maxWindow = 64 << 20

// decompress reads what may be compressed.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	kind, err := compression(b)
	if err != nil {
		return nil, err
	}
	switch kind {
	case gzipped:
		z, err := gzip.NewReader(b)
		return z, readable(err)
	case zstandard:
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// readable is an error of a reader in words for people.
func readable(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is cut short")
	}
	return err
}

// entry is one file of a layer. Its path is clean, and below the root; "" is the root itself.
type entry struct {
	path string
	kind byte   // tar.TypeReg, TypeDir, TypeSymlink or TypeLink
	link string // where a link leads: for TypeLink a path like the entry's own
	mode fs.FileMode
	uid  int
	gid  int
	time time.Time
	size int64
}

// removal is what a layer removes of those below it.
type removal struct {
	path   string
	within bool // not it, but all that is in it
}

// Counts tell how much is in an image.
type Counts struct {
	Bytes int64 // of all files
	Files int   // and directories and links
	// LeftOut is how many devices, pipes and the like there are. They are not unpacked.
	LeftOut int
	// blocks is how much of a file system the files take, in bytes.
	blocks   int64
	removals [][]removal // by layer
}

// OCI's whiteouts (image-spec, layer.md).
const (
	whiteout = model.PrefixRemoved
	opaque   = ".wh..wh..opq"
)

// scan reads a whole layer, and proves it. It calls put for each file, in the layer's order.
func (l *Layer) scan(ctx context.Context, c *Counts, put func(entry, io.Reader) error) (gone []removal, err error) {
	stored, err := l.Open()
	if err != nil {
		return nil, err
	}
	defer stored.Close()
	unpacked, err := decompress(stored)
	if err != nil {
		return nil, err
	}
	defer unpacked.Close()
	sum := &summed{ctx: ctx, from: unpacked, hash: sha256.New()}
	r := tar.NewReader(sum)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readable(err)
		}
		if c.Files++; c.Files > MaxFiles {
			return nil, errTooMany
		}
		name, err := cleanPath(h.Name)
		if err != nil {
			return nil, err
		}
		if base := path.Base(name); strings.HasPrefix(base, whiteout) {
			switch hidden := strings.TrimPrefix(base, whiteout); {
			case base == opaque:
				gone = append(gone, removal{path: parentOf(name), within: true})
			case strings.HasPrefix(hidden, whiteout), hidden == "", hidden == ".", hidden == "..":
				// other things of aufs, which say nothing about files
			default:
				gone = append(gone, removal{path: path.Join(parentOf(name), hidden)})
			}
			continue
		}
		e, ok, err := entryOf(name, h)
		if err != nil {
			return nil, err
		}
		if !ok {
			c.LeftOut++
			continue
		}
		if c.Bytes += e.size; c.Bytes > MaxSize || e.size > MaxSize {
			return nil, errTooLarge
		}
		c.blocks += (e.size + 4095) &^ 4095
		if e.kind == tar.TypeDir || len(e.link) >= 60 { // shorter ones are in the inode
			c.blocks += 4096
		}
		if err := put(e, r); err != nil {
			return nil, err
		}
	}
	if _, err := io.Copy(io.Discard, sum); err != nil { // what follows its end is part of what was hashed
		return nil, readable(err)
	}
	if is := Digest(digestPrefix + hex.EncodeToString(sum.hash.Sum(nil))); is != l.DiffID {
		return nil, fmt.Errorf("its content is not what the image's configuration says: it is %s, and should be %s", is,
			l.DiffID)
	}
	return gone, nil
}

// summed hashes what is read through it, and bounds it.
type summed struct {
	ctx  context.Context
	from io.Reader
	hash hash.Hash
	n    int64
}

// tarOverhead is what a layer's tar may have beside the content of files, in bytes.
const tarOverhead = MaxFiles * 2048

func (s *summed) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.from.Read(p)
	s.hash.Write(p[:n])
	if s.n += int64(n); s.n > MaxSize+tarOverhead {
		return n, errTooLarge
	}
	return n, err
}

// parentOf is the directory of a clean path.
func parentOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return ""
}

// cleanPath makes a path in a layer one below the root. One that names ".." is refused: no tool that makes images
// writes such a thing.
func cleanPath(name string) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", fmt.Errorf("its file %.120q leads out of the image", name)
		case len(part) > 255 || strings.ContainsRune(part, 0):
			return "", fmt.Errorf("its file %.120q has a name that no file can have", name)
		}
		parts = append(parts, part)
	}
	if len(parts) > maxDepth {
		return "", fmt.Errorf("its file %.120q lies deeper than %d directories", name, maxDepth)
	}
	clean := strings.Join(parts, "/")
	if len(clean) > 4000 {
		return "", fmt.Errorf("its file %.120q has a path of %d bytes", name, len(clean))
	}
	return clean, nil
}

// entryOf is a file as it is to be unpacked. ok is false for what is left out.
func entryOf(name string, h *tar.Header) (e entry, ok bool, err error) {
	// A set-user-ID bit has no effect in elements. Directories pass on their group by theirs.
	mode := fs.FileMode(h.Mode & 0o777)
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if h.Mode&0o2000 != 0 && h.Typeflag == tar.TypeDir {
		mode |= fs.ModeSetgid
	}
	e = entry{path: name, kind: h.Typeflag, mode: mode, uid: h.Uid, gid: h.Gid, time: h.ModTime}
	if h.Uid < 0 || h.Uid > MaxID || h.Gid < 0 || h.Gid > MaxID {
		return e, false, fmt.Errorf("its file %.120q belongs to user %d and group %d: networks have the numbers 0 to "+
			"%d", name, h.Uid, h.Gid, MaxID)
	}
	if isSparse(h) {
		return e, false, fmt.Errorf("its file %.120q has holes, which the tools that make images do not write", name)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		e.size = h.Size
	case tar.TypeDir:
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4000 || strings.ContainsRune(h.Linkname, 0) {
			return e, false, fmt.Errorf("its link %.120q leads to %.120q, which is no path", name, h.Linkname)
		}
		e.link = h.Linkname
	case tar.TypeLink:
		if e.link, err = cleanPath(h.Linkname); err != nil {
			return e, false, fmt.Errorf("its hard link %.120q: %w", name, err)
		}
	default:
		return e, false, nil
	}
	if name == "" && e.kind != tar.TypeDir {
		return e, false, errors.New("its root is no directory")
	}
	if year := e.time.Year(); year < 1970 || year > 2400 {
		e.time = time.Unix(0, 0)
	}
	return e, true, nil
}

// isSparse tells whether a file in a tar has holes. It may then say to be of any size.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// Verify reads all of an image, and proves that it is what its ID says and can be unpacked.
func (i *Image) Verify(ctx context.Context) (c Counts, err error) {
	if err := i.checkFiles(); err != nil {
		return c, err
	}
	for k := range i.Layers {
		gone, err := i.Layers[k].scan(ctx, &c, func(e entry, _ io.Reader) error {
			if i.IsFiles() {
				return c.checkGiven(&e)
			}
			return nil
		})
		if err == nil && i.IsFiles() && len(gone)+c.LeftOut > 0 {
			err = errRemoves
		}
		if err == nil && i.IsFiles() && c.Files == 0 {
			err = errNoFiles
		}
		if err != nil {
			return c, fmt.Errorf("layer %d of %d: %w", k+1, len(i.Layers), err)
		}
		c.removals = append(c.removals, gone)
	}
	return c, nil
}
