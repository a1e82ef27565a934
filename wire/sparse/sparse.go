// Package sparse sends a file that is mostly holes as a stream: the pieces of it that have content, and a digest of
// all of it at the end. Whoever receives believes nothing: what does not make sense, is longer than it may be, or is
// not what its digest says, is refused.
package sparse

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The stream: magic, the file's size and the bytes of content in it; pieces, each with its offset and its length; a
// piece of no length; SHA-256 of everything before. Numbers have 64 bits and are little-endian.
const (
	magic    = "ppsparse"
	maxPiece = 1 << 20
)

// ErrDamaged is of a stream that is not what was sent.
var ErrDamaged = errors.New("what came is not what was sent")

// Size is how large a file is, and how much of it is content.
type Size struct{ File, Content int64 }

// SizeOf finds out about an open file. One that has no holes, or whose file system does not tell, is all content.
func SizeOf(f *os.File) (s Size, err error) {
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.File = info.Size()
	err = pieces(f, s.File, func(_, length int64) error {
		s.Content += length
		return nil
	})
	return s, err
}

// pieces calls each with the parts of a file that have content, in their order.
func pieces(f *os.File, size int64, each func(at, length int64) error) error {
	for at := int64(0); at < size; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole
		}
		if err != nil {
			return err
		}
		to, err := f.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if to = min(to, size); to <= from {
			return nil
		}
		if err := each(from, to-from); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// Send writes a file. It must not change meanwhile: sound, if it is not nil, says so before the digest has the stream
// count.
func Send(w io.Writer, f *os.File, sound func() error) error {
	size, err := SizeOf(f)
	if err != nil {
		return err
	}
	sum := sha256.New()
	to := io.MultiWriter(w, sum)
	if err := put(to, []byte(magic), uint64(size.File), uint64(size.Content)); err != nil {
		return err
	}
	buffer := make([]byte, maxPiece)
	err = pieces(f, size.File, func(at, length int64) error {
		for length > 0 {
			part := buffer[:min(length, maxPiece)]
			if _, err := f.ReadAt(part, at); err != nil {
				return err
			}
			if err := put(to, nil, uint64(at), uint64(len(part))); err != nil {
				return err
			}
			if _, err := to.Write(part); err != nil {
				return err
			}
			at, length = at+int64(len(part)), length-int64(len(part))
		}
		return nil
	})
	if err == nil {
		err = put(to, nil, uint64(size.File), 0)
	}
	if err == nil && sound != nil {
		err = sound()
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	return err
}

func put(w io.Writer, head []byte, numbers ...uint64) error {
	for _, n := range numbers {
		head = binary.LittleEndian.AppendUint64(head, n)
	}
	_, err := w.Write(head)
	return err
}

// Into is where a stream is written to.
type Into interface {
	io.WriterAt
	Truncate(size int64) error
}

// Receive reads a stream into an empty file. begin sees its sizes before anything is written, and refuses what has no
// room. Nothing of the file counts unless Receive succeeds.
func Receive(r io.Reader, begin func(Size) (Into, error)) (Size, error) {
	sum := sha256.New()
	from := io.TeeReader(r, sum)
	var size Size
	head := make([]byte, len(magic)+16)
	if _, err := io.ReadFull(from, head); err != nil {
		return size, broken(err)
	}
	if string(head[:len(magic)]) != magic {
		return size, fmt.Errorf("%w: it begins as no disk does", ErrDamaged)
	}
	size.File = int64(binary.LittleEndian.Uint64(head[len(magic):]))
	size.Content = int64(binary.LittleEndian.Uint64(head[len(magic)+8:]))
	if size.File < 0 || size.Content < 0 || size.Content > size.File {
		return size, fmt.Errorf("%w: its sizes make no sense", ErrDamaged)
	}
	into, err := begin(size)
	if err == nil {
		err = into.Truncate(size.File)
	}
	if err != nil {
		return size, err
	}
	if err := receive(from, into, size); err != nil {
		return size, err
	}
	is, told := sum.Sum(nil), make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, told); err != nil {
		return size, broken(err)
	}
	if subtle.ConstantTimeCompare(is, told) != 1 {
		return size, fmt.Errorf("%w: its digest is another", ErrDamaged)
	}
	switch n, err := io.ReadFull(r, told[:1]); {
	case n > 0:
		return size, fmt.Errorf("%w: there is more behind its end", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return size, err
	}
	return size, nil
}

// receive reads the pieces, which are in order.
func receive(from io.Reader, into io.WriterAt, size Size) error {
	var head [16]byte
	buffer := make([]byte, maxPiece)
	for at, content := int64(0), int64(0); ; {
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return broken(err)
		}
		offset, length := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
		switch {
		case length == 0 && offset == uint64(size.File) && content == size.Content:
			return nil
		case length == 0 || length > maxPiece || offset < uint64(at) || offset > uint64(size.File) ||
			length > uint64(size.File)-offset || int64(length) > size.Content-content:
			return fmt.Errorf("%w: a piece of it makes no sense", ErrDamaged)
		}
		part := buffer[:length]
		if _, err := io.ReadFull(from, part); err != nil {
			return broken(err)
		}
		if _, err := into.WriteAt(part, int64(offset)); err != nil {
			return err
		}
		at, content = int64(offset)+int64(length), content+int64(length)
	}
}

// broken is the error of a stream that ends early.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it broke off", ErrDamaged)
	}
	return err
}
