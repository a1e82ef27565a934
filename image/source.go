package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// files are those of a source, by their paths.
type files interface {
	open(name string) (io.ReadCloser, int64, error)
}

// Open opens an image: the directory of an OCI layout, an archive of one, or what `docker save` has written; archives
// may be compressed as a whole.
func Open(name string) (*Image, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		img, err := openFiles(directory{root})
		if err != nil {
			root.Close()
			return nil, err
		}
		img.close = root.Close
		return img, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	img, err := OpenArchive(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return img, nil
}

// OpenArchive opens an archive as Open does. The image closes the file.
func OpenArchive(f *os.File) (*Image, error) {
	f, err := plainFile(f)
	if err != nil {
		return nil, err
	}
	a, err := index(f)
	if err != nil {
		return nil, err
	}
	img, err := openFiles(a)
	if err != nil {
		return nil, err
	}
	img.close = f.Close
	return img, nil
}

// plainFile is the file itself, or what is in it, in a file that has no name, where it is compressed.
func plainFile(f *os.File) (*os.File, error) {
	kind, err := compression(bufio.NewReader(io.NewSectionReader(f, 0, 16)))
	if err != nil || kind == plain {
		return f, err
	}
	r, err := decompress(io.NewSectionReader(f, 0, MaxSize))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	spool, err := os.CreateTemp("", "polyplane-image-")
	if err != nil {
		return nil, err
	}
	os.Remove(spool.Name()) //nolint:errcheck // it only has no use for its name
	n, err := io.Copy(spool, io.LimitReader(r, MaxSize+1))
	if err == nil && n > MaxSize {
		err = errTooLarge
	}
	if err != nil {
		spool.Close()
		return nil, readable(err)
	}
	f.Close()
	return spool, nil
}

// openFiles finds out what a source is.
func openFiles(f files) (*Image, error) {
	if _, err := small(f, storedConfig); !errors.Is(err, fs.ErrNotExist) {
		return openStored(f)
	}
	data, err := small(f, "index.json")
	if err == nil {
		return openLayout(f, data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data, err = small(f, "manifest.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it has neither index.json, as OCI's archives and layouts have, nor manifest.json, " +
			"as `docker save` writes it: it is no image")
	}
	if err != nil {
		return nil, err
	}
	return openSaved(f, data)
}

// small reads a file that can only be short.
func small(f files, name string) ([]byte, error) {
	r, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > MaxConfig {
		return nil, fmt.Errorf("its %s has %d bytes: at most %d are read", name, size, MaxConfig)
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxConfig))
	if err != nil {
		return nil, fmt.Errorf("its %s: %w", name, readable(err))
	}
	return data, nil
}

// blob reads a short file that must have this digest.
func blob(f files, d Digest) ([]byte, error) {
	name, err := blobName(d)
	if err != nil {
		return nil, err
	}
	data, err := small(f, name)
	if err != nil {
		return nil, err
	}
	if is := digestOf(data); is != d {
		return nil, fmt.Errorf("its %s does not have the content that its name says (it has %s)", name, is)
	}
	return data, nil
}

func blobName(d Digest) (string, error) {
	if !d.Valid() {
		return "", fmt.Errorf("%.80q is no SHA-256 digest", string(d))
	}
	return "blobs/sha256/" + d.Hex(), nil
}

// descriptor is OCI's.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// runs tells whether an image with this descriptor can run on this architecture. What says no platform may.
func (d *descriptor) runs() bool {
	return d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
}

// manifest is OCI's index or manifest: which of the two its members tell.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// nested is how deep an index may lead to other indexes.
const nested = 4

func openLayout(f files, data []byte) (*Image, error) {
	var names []string
	for range nested {
		var m manifest
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("its index or manifest is no JSON of OCI: %w", err)
		}
		if m.Config != nil {
			return openManifest(f, &m, names)
		}
		d, err := choose(m.Manifests)
		if err != nil {
			return nil, err
		}
		for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
			if name := d.Annotations[key]; name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if data, err = blob(f, d.Digest); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("its indexes lead to ever more indexes")
}

// choose chooses the one image that runs here.
func choose(all []descriptor) (*descriptor, error) {
	var fit, other []string
	var chosen *descriptor
	for i := range all {
		d := &all[i]
		if d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" {
			continue
		}
		if !d.runs() {
			other = append(other, d.Platform.OS+"/"+d.Platform.Architecture)
			continue
		}
		if chosen == nil || chosen.Digest != d.Digest {
			chosen = d
			name := d.Annotations["org.opencontainers.image.ref.name"]
			if name == "" {
				name = d.Digest.Short()
			}
			fit = append(fit, name)
		}
	}
	switch {
	case len(fit) == 1:
		return chosen, nil
	case len(fit) > 1:
		return nil, fmt.Errorf("it holds several images (%.300s): write one into an archive of its own",
			strings.Join(fit, ", "))
	case len(other) > 0:
		return nil, fmt.Errorf("it holds no image for linux/%s, only for %.300s", runtime.GOARCH,
			strings.Join(other, ", "))
	}
	return nil, errors.New("it holds no image")
}

func openManifest(f files, m *manifest, names []string) (*Image, error) {
	config, err := blob(f, m.Config.Digest)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) > MaxLayers {
		return nil, fmt.Errorf("it has %d layers: at most %d are allowed", len(m.Layers), MaxLayers)
	}
	var layers []Layer
	for i := range m.Layers {
		name, err := blobName(m.Layers[i].Digest)
		if err == nil {
			err = addLayer(f, &layers, name)
		}
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return New(config, names, layers)
}

// addLayer adds a file of the source to the layers.
func addLayer(f files, layers *[]Layer, name string) error {
	r, size, err := f.open(name)
	if err != nil {
		return err
	}
	r.Close()
	*layers = append(*layers, Layer{Size: size, Open: func() (io.ReadCloser, error) {
		r, _, err := f.open(name)
		return r, err
	}})
	return nil
}

// openSaved opens what `docker save` has written.
func openSaved(f files, data []byte) (*Image, error) {
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("its manifest.json is not what `docker save` writes: %w", err)
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("it holds %d images: save one", len(all))
	}
	config, err := small(f, all[0].Config)
	if err != nil {
		return nil, err
	}
	if len(all[0].Layers) > MaxLayers {
		return nil, fmt.Errorf("it has %d layers: at most %d are allowed", len(all[0].Layers), MaxLayers)
	}
	var layers []Layer
	for i, name := range all[0].Layers {
		if err := addLayer(f, &layers, name); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return New(config, all[0].RepoTags, layers)
}

// directory is a layout in a directory. Links do not lead out of it.
type directory struct{ root *os.Root }

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("its %s is no regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// archived are the files in a tar, where each begins, and how long it is.
type archived struct {
	from  io.ReaderAt
	parts map[string]part
}

type part struct {
	at, size int64
	link     string // another file's name, where it is a link
}

// maxParts is how many files an archive of an image has at most: some for each layer.
const maxParts = 16 * MaxLayers

// index finds the files in a tar.
func index(f *os.File) (*archived, error) {
	counter := &position{from: f}
	r := tar.NewReader(counter)
	a := &archived{from: f, parts: map[string]part{}}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			if errors.Is(err, tar.ErrHeader) && len(a.parts) == 0 {
				return nil, errors.New("it is no tar: an image is an archive or a layout of OCI, or what `docker " +
					"save` writes")
			}
			return nil, readable(err)
		}
		if len(a.parts) >= maxParts {
			return nil, fmt.Errorf("it has more than %d files: an image's archive has a few for each layer", maxParts)
		}
		name := path.Clean("/" + h.Name)[1:]
		if isSparse(h) {
			return nil, fmt.Errorf("its %.80q has holes", name)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			a.parts[name] = part{at: counter.at, size: h.Size}
		case tar.TypeLink:
			a.parts[name] = part{link: path.Clean("/" + h.Linkname)[1:]}
		case tar.TypeSymlink: // older versions of docker save make these
			a.parts[name] = part{link: path.Join("/", path.Dir(name), h.Linkname)[1:]}
		}
	}
}

// position is where in a file its reader is. It skips by seeking.
type position struct {
	from *os.File
	at   int64
}

func (p *position) Read(b []byte) (int, error) {
	n, err := p.from.ReadAt(b, p.at)
	p.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (p *position) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		p.at = offset
	case io.SeekCurrent:
		p.at += offset
	default:
		return 0, errors.ErrUnsupported
	}
	if p.at < 0 {
		return 0, fs.ErrInvalid
	}
	return p.at, nil
}

func (a *archived) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean("/" + name)[1:]
	for range 4 {
		p, ok := a.parts[name]
		if !ok {
			break
		}
		if p.link == "" {
			return io.NopCloser(io.NewSectionReader(a.from, p.at, p.size)), p.size, nil
		}
		name = p.link
	}
	return nil, 0, fmt.Errorf("it has no file %.120q: %w", name, fs.ErrNotExist)
}

// The form in which images are kept and sent: a tar of the configuration, and of the layers from the lowest on, as
// their source had them.
const (
	storedConfig = "polyplane-image.json"
	storedLayer  = "layers/"
)

// Write writes an image in the form in which it is kept. The same image from the same source gives the same bytes.
func (i *Image) Write(w io.Writer) error {
	t := tar.NewWriter(w)
	put := func(name string, size int64, r io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Format: tar.FormatGNU}); err != nil {
			return err
		}
		n, err := io.Copy(t, r)
		if err == nil && n < size {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := put(storedConfig, int64(len(i.raw)), bytes.NewReader(i.raw)); err != nil {
		return err
	}
	for k := range i.Layers {
		r, err := i.Layers[k].Open()
		if err != nil {
			return err
		}
		err = put(fmt.Sprint(storedLayer, k), i.Layers[k].Size, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("layer %d: %w", k+1, readable(err))
		}
	}
	return t.Close()
}

func openStored(f files) (*Image, error) {
	config, err := small(f, storedConfig)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	var layers []Layer
	for i := range c.RootFS.DiffIDs {
		if err := addLayer(f, &layers, fmt.Sprint(storedLayer, i)); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return New(config, nil, layers)
}

// StoredSize is how many bytes Write writes.
func (i *Image) StoredSize() int64 {
	const block = 512
	size := int64(2 * block)
	whole := func(n int64) int64 { return block + (n+block-1)/block*block }
	size += whole(int64(len(i.raw)))
	for k := range i.Layers {
		size += whole(i.Layers[k].Size)
	}
	return size
}
