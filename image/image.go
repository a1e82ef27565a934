// Package image reads container images: archives and layouts of OCI, what `docker save` writes, and the form in which
// polyplane keeps them. Whatever is read may be hostile. It is verified whole before any of it is unpacked, and what is
// unpacked stays below one directory.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Bounds of an image. They are far above what people make.
const (
	// MaxSize is how many bytes all layers have at most, unpacked and as they are kept.
	MaxSize = 16 << 30
	// MaxFiles is how many files, directories and links all layers have at most.
	MaxFiles  = 500_000
	MaxLayers = 128
	// MaxConfig is how long a configuration, a manifest or an index is at most, in bytes.
	MaxConfig = 1 << 20
	// maxDepth is how deep below the root a file lies at most.
	maxDepth = 128
	// MaxID is the highest number of a user or group to whom a file can belong: networks have so many.
	MaxID = 65535
)

// Digest is the SHA-256 of something, as "sha256:" and 64 hexadecimal digits.
type Digest string

const digestPrefix = "sha256:"

// Valid tells whether it is one.
func (d Digest) Valid() bool {
	hexadecimal, ok := strings.CutPrefix(string(d), digestPrefix)
	return ok && len(hexadecimal) == 64 && strings.Trim(hexadecimal, "0123456789abcdef") == ""
}

// Hex are its digits.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// Short is enough of it for people.
func (d Digest) Short() string { return d.Hex()[:min(12, len(d.Hex()))] }

func digestOf(data []byte) Digest {
	sum := sha256.Sum256(data)
	return Digest(digestPrefix + hex.EncodeToString(sum[:]))
}

// Image is an image that was opened. Its ID is the digest of its configuration, which has the digests of its unpacked
// layers: the same image has the same ID wherever it comes from, and however its layers are compressed.
type Image struct {
	ID     Digest
	Names  []string // as the source calls it
	Config Config
	Layers []Layer
	raw    []byte // of the configuration
	close  func() error
}

// Close closes its source.
func (i *Image) Close() error {
	if i.close == nil {
		return nil
	}
	return i.close()
}

// OnClose tells what is to be done when nobody needs the image's source any more.
func (i *Image) OnClose(do func() error) { i.close = do }

// Layer is one layer, as its source has it: as a tar, which may be compressed.
type Layer struct {
	DiffID Digest // of the tar
	Size   int64  // in bytes, as the source has it
	Open   func() (io.ReadCloser, error)
}

// Config is what an image says of itself: the part of OCI's image configuration that is used here.
type Config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	// Kind is what it is where it is no image that elements are made from (files.go).
	Kind string `json:"polyplane,omitempty"`
	// Config is what it has run where nothing else is said.
	Config model.ImageRun `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []Digest `json:"diff_ids"`
	} `json:"rootfs"`
}

// New is an image of a configuration and its layers, lowest first. Their DiffIDs are taken from the configuration.
func New(config []byte, names []string, layers []Layer) (*Image, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if len(layers) != len(c.RootFS.DiffIDs) {
		return nil, fmt.Errorf("its configuration names %d layers, and it has %d", len(c.RootFS.DiffIDs), len(layers))
	}
	layers = slices.Clone(layers)
	var size int64
	for i := range layers {
		layers[i].DiffID = c.RootFS.DiffIDs[i]
		if layers[i].Size < 0 || layers[i].Size > MaxSize {
			return nil, fmt.Errorf("layer %d: %w", i+1, errTooLarge)
		}
		size += layers[i].Size
	}
	if size > MaxSize {
		return nil, errTooLarge
	}
	return &Image{ID: digestOf(config), Names: names, Config: c, Layers: layers, raw: config}, nil
}

var (
	errTooLarge = fmt.Errorf("it is larger than %d GiB, the most that an image can have", MaxSize>>30)
	errTooMany  = fmt.Errorf("it has more than %d files, the most that an image can have", MaxFiles)
)

func parseConfig(data []byte) (c Config, err error) {
	if len(data) > MaxConfig {
		return c, fmt.Errorf("its configuration has more than %d bytes", MaxConfig)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("its configuration is no JSON of an image: %w", err)
	}
	switch {
	case c.OS != "" && c.OS != "linux":
		return c, fmt.Errorf("it is for %.20q: elements run Linux", c.OS)
	case c.RootFS.Type != "" && c.RootFS.Type != "layers":
		return c, fmt.Errorf("its files are of type %.20q: only layers are known", c.RootFS.Type)
	case len(c.RootFS.DiffIDs) > MaxLayers:
		return c, fmt.Errorf("it has %d layers: at most %d are allowed", len(c.RootFS.DiffIDs), MaxLayers)
	}
	for _, d := range c.RootFS.DiffIDs {
		if !d.Valid() {
			return c, fmt.Errorf("its configuration names the layer %.80q, which is no SHA-256 digest", string(d))
		}
	}
	return c, checkRun(&c.Config)
}

// checkRun tells what could not be run. A null in a word would end it for the kernel, and hide the rest from who reads
// it.
func checkRun(r *model.ImageRun) error {
	words := slices.Concat(r.Env, r.Entrypoint, r.Cmd, []string{r.User, r.WorkingDir, r.StopSignal})
	size := 0
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return errors.New("its configuration has a word with a null in it")
		}
		size += len(w) + 1
	}
	switch {
	case size > MaxRun:
		return fmt.Errorf("its command and variables have %d bytes: at most %d are allowed", size, MaxRun)
	case r.WorkingDir != "" && !path.IsAbs(r.WorkingDir):
		return fmt.Errorf("its working directory %.80q is not absolute", r.WorkingDir)
	}
	for _, v := range r.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return fmt.Errorf("its variable %.80q has no name or no value", v)
		}
	}
	return nil
}

// MaxRun is how long an image's command and variables are at most, in bytes.
const MaxRun = 128 << 10
