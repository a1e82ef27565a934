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

// fromEngine gets an image that docker or podman has on this machine. It runs their `save` as the caller, who gets only
// what the caller may see there. It does not speak to their sockets: access to these is as good as root.
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
		_, err = io.Copy(io.Discard, out) // padding after the archive's end
	}
	out.Close() //nolint:errcheck // if the image is too large, this ends the program, which still writes
	ended, words := cmd.Wait(), strings.TrimSpace(said.String())
	switch {
	case ended == nil || err != nil && (words == "" || strings.Contains(words, "pipe")): // it tells of the closed pipe
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

// engineWith returns the program on this machine that has an image; empty if none has it.
func engineWith(ctx context.Context, name string) string {
	for _, engine := range engines {
		if exec.CommandContext(ctx, engine, "image", "inspect", "--", name).Run() == nil {
			return engine
		}
	}
	return ""
}
