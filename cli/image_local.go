package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/image"
)

// engines are the programs that may keep images on this machine. Both know the commands that are used here.
var engines = []string{"docker", "podman"}

// fromEngine has an image from docker or podman on this machine, by their `save`: their sockets are as good as root, so
// nothing of ours speaks to them. It runs as the caller, who sees there what the caller may see.
func fromEngine(ctx context.Context, engine, name string) (*image.Image, error) {
	if !slices.Contains(engines, engine) {
		return nil, fmt.Errorf("%q keeps no images that polyplane knows: %s was expected", engine,
			strings.Join(engines, " or "))
	}
	cmd := exec.CommandContext(ctx, engine, "save", "--", name)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	img, err := readImage(out)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // what follows the archive's end
	}
	out.Close() //nolint:errcheck // of what is larger than an image can be: the program cannot go on then
	ended, words := cmd.Wait(), strings.TrimSpace(said.String())
	switch {
	case ended == nil || err != nil && (words == "" || strings.Contains(words, "pipe")): // the one that we have closed
	case words != "":
		err = errors.New(words)
	default:
		err = ended
	}
	if err != nil {
		if img != nil {
			img.Close()
		}
		return nil, fmt.Errorf("%s save %s: %w", engine, name, err)
	}
	return img, nil
}

// engineWith is the program on this machine that has an image, or empty.
func engineWith(ctx context.Context, name string) string {
	for _, engine := range engines {
		if exec.CommandContext(ctx, engine, "image", "inspect", "--", name).Run() == nil {
			return engine
		}
	}
	return ""
}
