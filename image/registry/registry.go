// Package registry has images from registries, with the credentials that the user has for other tools.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/polyplane/polyplane/image"
)

// Pull has the image that runs on this machine's architecture. Its layers lie in a file that vanishes with it.
func Pull(ctx context.Context, reference string, told func(done, of int64)) (*image.Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("%q is no name of an image in a registry: %w", reference, err)
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(&impatient{remote.DefaultTransport}),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, explain(ref, err)
	}
	// The configuration is read into memory: how long it is must be known before.
	manifest, err := img.Manifest()
	if err != nil {
		return nil, explain(ref, err)
	}
	if size := manifest.Config.Size; size > image.MaxConfig {
		return nil, explain(ref, fmt.Errorf("its configuration has %d bytes: at most %d are read", size,
			image.MaxConfig))
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, explain(ref, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, explain(ref, err)
	}
	return spool(config, ref.String(), layers, told, func(err error) error { return explain(ref, err) })
}

// spool has the layers in one file.
func spool(config []byte, name string, from []v1.Layer, told func(done, of int64),
	explain func(error) error) (img *image.Image, err error) {
	if len(from) > image.MaxLayers {
		return nil, fmt.Errorf("it has %d layers: at most %d are allowed", len(from), image.MaxLayers)
	}
	f, err := os.CreateTemp("", "polyplane-image-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) //nolint:errcheck // it only has no use for its name
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var done, of int64
	for _, l := range from {
		if size, err := l.Size(); err == nil {
			of += size
		}
	}
	var layers []image.Layer
	for i, l := range from {
		r, err := l.Compressed()
		if err != nil {
			return nil, explain(err)
		}
		begin := done
		n, err := io.Copy(&counted{f, &done, of, told}, io.LimitReader(r, image.MaxSize-begin+1))
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, explain(err))
		}
		layers = append(layers, image.Layer{Size: n, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(f, begin, n)), nil
		}})
	}
	img, err = image.New(config, []string{name}, layers)
	if err != nil {
		return nil, err
	}
	img.OnClose(f.Close)
	return img, nil
}

// counted tells how much was written.
type counted struct {
	w    io.Writer
	done *int64
	of   int64
	told func(done, of int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.done += int64(n)
	if c.told != nil {
		c.told(*c.done, c.of)
	}
	return n, err
}

// explain tells a registry's refusal in words.
func explain(ref name.Reference, err error) error {
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		switch refused.StatusCode {
		case http.StatusNotFound:
			return fmt.Errorf("%s has no image %s", ref.Context().RegistryStr(), ref)
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%s does not give %s to whoever is logged in there (docker's and podman's log-ins "+
				"count), or has no such image: %w", ref.Context().RegistryStr(), ref, err)
		}
	}
	return fmt.Errorf("get %s: %w", ref, err)
}
