package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/spec"
)

// mostOutside is how many files from elsewhere are told.
const mostOutside = 16

// addOutsideFlag adds the flag that says where networks may take files from, besides the directories of their files.
func (f *fileFlags) addOutsideFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.elsewhere, "outside-files", nil, "let `files:` and `config:` also name files below "+
		"`DIR` (/ is all), which is not below the file's own directory; may be repeated")
	mustComplete(cmd.MarkFlagDirname("outside-files"))
}

// checkOutside refuses networks that take files from elsewhere. A file may be somebody else's, and name anything that
// its reader can read; what is put into an element can leave it with the first packet. Images from elsewhere are only
// told: they are often kept elsewhere, and a file that is no image is refused anyway.
func (c *CLI) checkOutside(f *fileFlags) error {
	var refused, told []string
	for _, d := range f.from {
		for _, is := range d.Outside() {
			allowed, err := f.allows(is.Path)
			if err != nil {
				return err
			}
			if !allowed {
				refused = append(refused, is.String())
			}
		}
		told = append(told, f.outsideImages(d)...)
	}
	for i, s := range shortened(told, "images are") {
		if _, err := fmt.Fprintf(c.Err, "note: %s\n", oneLine(s)); err != nil || i == mostOutside {
			return err
		}
	}
	if len(refused) == 0 {
		return nil
	}
	refused = shortened(refused, "are")
	for i := range refused {
		refused[i] = oneLine(refused[i])
	}
	return badFile(errors.New(strings.Join(refused, "\n") + "\nIf they are to leave this machine, say where they " +
		"may be taken from: --outside-files DIR (/ is all)"))
}

// allows returns whether --outside-files allows what is at a path.
func (f *fileFlags) allows(path string) (bool, error) {
	for _, dir := range f.elsewhere {
		below, err := spec.Below(dir, path)
		if err != nil {
			return false, badFile(fmt.Errorf("--outside-files %s: %w", dir, err))
		}
		if below {
			return true, nil
		}
	}
	return false, nil
}

// outsideImages says which images a network takes from elsewhere. Their paths are absolute already.
func (f *fileFlags) outsideImages(d placedDocument) (words []string) {
	for i := range d.Network.Elements {
		e := &d.Network.Elements[i]
		if !isImageFile(e.Image) {
			continue
		}
		if below, err := spec.Below(filepath.Dir(d.file), e.Image); err != nil || below {
			continue // whoever reads it says what is wrong
		}
		if allowed, err := f.allows(e.Image); err == nil && !allowed {
			words = append(words, fmt.Sprintf("image of %s is read from %s, outside of the file's directory", e.Name,
				e.Image))
		}
	}
	return words
}

// shortened returns the first of the sorted lines, and then how many more there are.
func shortened(lines []string, are string) []string {
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if more := len(lines) - mostOutside; more > 0 {
		lines = append(lines[:mostOutside:mostOutside], fmt.Sprintf("and %d more %s read from outside of their file's "+
			"directory", more, are))
	}
	return lines
}
