// Package archive reads and writes networks as files: a tar of a manifest, the network's document, and the files of its
// elements. Whoever reads one believes nothing: an archive is verified whole before anything is done with it.
package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

const (
	// Format is the version of what is written here. Readers refuse others.
	Format = 1
	// MaxSize bounds an archive, in bytes.
	MaxSize = 2 << 30

	manifestName = "manifest.json"
	documentName = "network.yaml"
	elementsDir  = "elements/"
	givenDir     = "files/" // what the network puts into elements, and is too large for its document
	treeSuffix   = ".tar"

	maxManifest = 4 << 20
	maxDocument = 64 << 20
)

// Manifest is the first part of an archive.
type Manifest struct {
	Format  int       `json:"format"`
	Network string    `json:"network"`
	Made    time.Time `json:"made"`
	By      string    `json:"by"` // the version of polyplane
	// Parts are what follows, in its order: the document, then large files that it names by their digests, and the
	// trees of elements.
	Parts []Part `json:"parts"`
}

// Part is what a manifest says of a file of the archive.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Content is a part with what is in it.
type Content struct {
	Part
	open func() io.Reader
}

// element is whose tree a part is; empty where it is none.
func (p *Part) element() string {
	name, tree := strings.CutPrefix(p.Name, elementsDir)
	name, ended := strings.CutSuffix(name, treeSuffix)
	if !tree || !ended || model.CheckName(name) != nil {
		return ""
	}
	return name
}

// given are the digits by which the document names these files; empty where they are none.
func (p *Part) given() string {
	name, is := strings.CutPrefix(p.Name, givenDir)
	name, ended := strings.CutSuffix(name, treeSuffix)
	if !is || !ended || len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}

// MaxGiven is how long a part of large files is at most, in bytes: their names are in it.
const MaxGiven = int64(model.MaxTree) + model.MaxTreeFiles*4096

// GivenOf makes a part of files that the document names by their digits. Whoever takes them from an archive verifies
// them.
func GivenOf(digits string, content io.ReaderAt, size int64) (Content, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(content, 0, size)); err != nil {
		return Content{}, err
	}
	return Content{Part{givenDir + digits + treeSuffix, size, hex.EncodeToString(sum.Sum(nil))},
		func() io.Reader { return io.NewSectionReader(content, 0, size) }}, nil
}

// Document makes a part of a network's document.
func Document(text []byte) Content {
	sum := sha256.Sum256(text)
	return Content{Part{documentName, int64(len(text)), hex.EncodeToString(sum[:])},
		func() io.Reader { return bytes.NewReader(text) }}
}

// TreeOf makes a part of an element's tree, which is read twice.
func TreeOf(element string, tree io.ReaderAt, size int64) (Content, error) {
	sum := sha256.New()
	r := io.TeeReader(io.NewSectionReader(tree, 0, size), sum)
	if err := ReadTree(r, func(File, io.Reader) error { return nil }); err != nil {
		return Content{}, err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return Content{}, err
	}
	return Content{Part{elementsDir + element + treeSuffix, size, hex.EncodeToString(sum.Sum(nil))},
		func() io.Reader { return io.NewSectionReader(tree, 0, size) }}, nil
}

// Write writes an archive.
func Write(w io.Writer, manifest Manifest, contents []Content) error {
	manifest.Format, manifest.Parts = Format, nil
	manifest.Parts = append(manifest.Parts, each.Of(contents, func(c Content) Part { return c.Part })...)
	text, err := json.MarshalIndent(&manifest, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if size := length(int64(len(text)), manifest.Parts); size > MaxSize {
		return fmt.Errorf("the archive would have %s, and %s are allowed", model.Bytes(size).Rounded(),
			model.Bytes(MaxSize))
	}
	t := tar.NewWriter(w)
	add := func(name string, size int64, r io.Reader) error {
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600,
			ModTime: manifest.Made.Truncate(time.Second), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = io.CopyN(t, r, size)
		}
		return err
	}
	if err := add(manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, c := range contents {
		if err := add(c.Name, c.Size, c.open()); err != nil {
			return err
		}
	}
	return t.Close()
}

// length is how long an archive is.
func length(manifest int64, parts []Part) int64 {
	block := func(n int64) int64 { return 512 + (n+511)/512*512 }
	n := block(manifest) + 1024
	for _, p := range parts {
		n += block(p.Size)
	}
	return n
}

// Archive is one that was verified whole.
type Archive struct {
	Manifest Manifest
	Document []byte
	trees    map[string]*io.SectionReader // by element
	given    map[string]*io.SectionReader // by digits
}

// Given are files that the document names by these digits, and their length; nil where the archive has none.
func (a *Archive) Given(digits string) (io.Reader, int64) {
	t := a.given[digits]
	if t == nil {
		return nil, 0
	}
	return io.NewSectionReader(t, 0, t.Size()), t.Size()
}

// Elements are those that have files in the archive, sorted.
func (a *Archive) Elements() []string {
	var names []string
	for name := range a.trees {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Tree is an element's tree, and its length.
func (a *Archive) Tree(element string) (io.Reader, int64) {
	t := a.trees[element]
	return io.NewSectionReader(t, 0, t.Size()), t.Size()
}

// Open reads all of an archive, and verifies all of it.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	if size > MaxSize {
		return nil, fmt.Errorf("it has %s, and %s are allowed", model.Bytes(size).Rounded(), model.Bytes(MaxSize))
	}
	section := io.NewSectionReader(r, 0, size)
	t := tar.NewReader(section)
	next := func(name string, most int64) (*tar.Header, error) {
		h, err := t.Next()
		switch {
		case err != nil:
			return nil, whole(err)
		case h.Name != name || h.Typeflag != tar.TypeReg || h.Format&tar.FormatUSTAR == 0:
			return nil, fmt.Errorf("there is %.200q where the file %s was expected", h.Name, name)
		case h.Size > most:
			return nil, fmt.Errorf("%s has %d bytes, and %d are allowed", name, h.Size, most)
		}
		return h, nil
	}
	h, err := next(manifestName, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("this is no archive of a network: %w", err)
	}
	a := &Archive{trees: map[string]*io.SectionReader{}, given: map[string]*io.SectionReader{}}
	text, err := io.ReadAll(t)
	if err != nil {
		return nil, whole(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a.Manifest); err != nil {
		return nil, fmt.Errorf("its %s: %w", manifestName, err)
	}
	if a.Manifest.Format != Format {
		return nil, fmt.Errorf("it is of format %d, and this version of polyplane reads format %d", a.Manifest.Format,
			Format)
	}
	if err := a.Manifest.check(); err != nil {
		return nil, err
	}
	switch want := length(h.Size, a.Manifest.Parts); {
	case size < want:
		return nil, fmt.Errorf("it is cut off: %d of %d bytes are there", size, want)
	case size > want:
		return nil, fmt.Errorf("it has %d bytes, and its manifest tells of %d", size, want)
	}
	at := 512 + (h.Size+511)/512*512
	for i := range a.Manifest.Parts {
		p := &a.Manifest.Parts[i]
		if h, err = next(p.Name, p.Size); err != nil {
			return nil, err
		}
		sum := sha256.New()
		part := io.TeeReader(io.NewSectionReader(r, at+512, p.Size), sum)
		if element := p.element(); element != "" {
			a.trees[element] = io.NewSectionReader(r, at+512, p.Size)
			err = ReadTree(part, func(File, io.Reader) error { return nil })
			if err == nil {
				_, err = io.Copy(io.Discard, part)
			}
		} else if digits := p.given(); digits != "" {
			a.given[digits] = io.NewSectionReader(r, at+512, p.Size)
			_, err = io.Copy(io.Discard, part)
		} else {
			a.Document, err = io.ReadAll(part)
		}
		if h.Size != p.Size || hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
			return nil, fmt.Errorf("%s is not what its digest says: the archive is damaged", p.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		at += 512 + (p.Size+511)/512*512
	}
	var end [1024]byte
	if _, err := r.ReadAt(end[:], size-1024); err != nil && !errors.Is(err, io.EOF) || end != [1024]byte{} {
		return nil, whole(io.ErrUnexpectedEOF)
	}
	return a, nil
}

// check says what is wrong with what a manifest tells.
func (m *Manifest) check() error {
	if len(m.Parts) == 0 || m.Parts[0].Name != documentName {
		return fmt.Errorf("its manifest does not begin with %s", documentName)
	}
	seen := map[string]bool{}
	for i := range m.Parts {
		p := &m.Parts[i]
		most := int64(MaxTree)
		switch {
		case i == 0:
			most = maxDocument
		case p.given() != "":
			most = MaxGiven
		case p.element() == "":
			return fmt.Errorf("its manifest has a part %.200q, which no network has", p.Name)
		}
		if seen[p.Name] {
			return fmt.Errorf("its manifest has %s twice", p.Name)
		}
		if seen[p.Name] = true; p.Size < 0 || p.Size > most {
			return fmt.Errorf("%s has %d bytes, and %d are allowed", p.Name, p.Size, most)
		}
	}
	return nil
}
