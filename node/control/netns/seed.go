package netns

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// A document's configuration seeds an element. From then on it is the element's own. The document's configuration is
// written again if it has changed and the element's has not, or if an apply asked for it.

// seeds are the hashes of what was written last. They are kept beside the element's root.
type seeds struct {
	Files map[string]string `json:"files"`           // by path: the content's hash
	Given map[string]string `json:"given,omitempty"` // by path: what was put into it by its owner, as markOf has it
	// Trees are the IDs of those that it was given as a whole, by path. What they had stands beside (trees.go).
	Trees map[string]treeSeed `json:"trees,omitempty"`
	// Dirs are directories that were made for what it was given, and not below a tree's own, sorted.
	Dirs []string `json:"dirs,omitempty"`
	// Planted is how often files of Given were written or removed while the element ran.
	Planted    uint32 `json:"planted,omitempty"`
	Overwrites uint32 `json:"overwrites"`
	Lost       bool   `json:"-"` // it cannot be read
}

func (d *Driver) seedsPath(id model.ID) string { return filepath.Join(d.dirs.Files(id), "seeds.json") }

// readSeeds reads what an element was given; nothing when it was never started.
func (d *Driver) readSeeds(id model.ID) (seeds, error) {
	s := seeds{Files: map[string]string{}}
	data, err := os.ReadFile(d.seedsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read what configuration the element was given: %w", err)
	}
	if json.Unmarshal(data, &s) != nil || s.Files == nil {
		// The file was lost with the machine's power. What the element has counts as its own, and an earlier
		// --overwrite does not touch it.
		return seeds{Files: map[string]string{}, Lost: true}, nil
	}
	return s, nil
}

func (d *Driver) writeSeeds(id model.ID, s seeds) error {
	data, err := json.Marshal(s)
	if was, readErr := os.ReadFile(d.seedsPath(id)); err == nil && readErr == nil && bytes.Equal(was, data) {
		return nil // a full disk must not keep the element from being started
	}
	if err == nil {
		temporary := d.seedsPath(id) + ".new"
		if err = os.WriteFile(temporary, data, 0o600); err == nil {
			err = os.Rename(temporary, d.seedsPath(id))
		}
	}
	if err != nil {
		return fmt.Errorf("note what configuration the element was given: %w", err)
	}
	return nil
}

// maxConfig is the longest configuration file that is compared, in bytes.
const maxConfig = 64 << 20

// seeding says how to bring an element's configuration in line with the document's.
type seeding struct {
	write []*software.File
	seeds seeds    // as they are once that is written
	force bool     // what was edited inside is overwritten
	kept  []string // files that were edited inside and are kept although the document's have changed
	lost  []string // files that were damaged; they are among those to be written
}

// seed works out which files are to be written, and writes none. It is called again before the next start, since
// running software has read its files already.
func (d *Driver) seed(id model.ID, f *elementFiles, plan *software.Plan, overwrites uint32,
	runs bool) (s seeding, err error) {
	was, err := d.readSeeds(id)
	if err != nil {
		return s, err
	}
	force := overwrites > was.Overwrites && !was.Lost
	s.force = force
	for i := range plan.Files {
		file := &plan.Files[i]
		if !slices.Contains(plan.ConfigFiles, file.Path) {
			continue
		}
		want := contentHash([]byte(file.Content))
		seeded, known := was.Files[file.Path]
		settled := known && seeded == want && !force
		if settled && runs && !f.damaged && f.exists(file.Path) {
			continue
		}
		now, err := f.read(file.Path, maxConfig)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case f.image && f.isOfImage(file.Path): // the example that its package brings, which nobody has edited
		case err == nil && (hasZeros(now) || len(now) == 0 && f.damaged):
			s.lost = append(s.lost, file.Path)
		case settled:
			continue
		case err == nil && contentHash(now) == want:
			was.Files[file.Path] = want
			continue
		case !force && (err != nil || !known || contentHash(now) != seeded):
			s.kept = append(s.kept, file.Path) // if it cannot be read, as with a link, the element did that as well
			continue
		}
		s.write = append(s.write, file)
		was.Files[file.Path] = want
	}
	was.Overwrites = max(was.Overwrites, overwrites)
	s.seeds = was
	return s, nil
}

// sow writes it.
func (d *Driver) sow(id model.ID, f *elementFiles, s seeding) error {
	for _, file := range s.write {
		if err := f.writeFile(file); err != nil {
			return err
		}
	}
	return d.writeSeeds(id, s.seeds)
}

// noteContents notes in a container's annotations what its software is about to read.
func (d *Driver) noteContents(id model.ID, s *specs.Spec, plan *software.Plan) error {
	was, err := d.readSeeds(id)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for i := range plan.Files {
		if file := &plan.Files[i]; !slices.Contains(plan.ConfigFiles, file.Path) {
			files[file.Path] = file.Content
		}
	}
	if planted := was.Planted; planted > 0 && plan.Service != nil && plan.Service.Again != nil {
		s.Annotations[noteGiven] = strconv.FormatUint(uint64(planted), 10)
	}
	was.Given, was.Trees, was.Dirs, was.Planted = nil, nil, nil, 0 // no software has to load them
	if len(plan.ConfigFiles) == 0 {
		was.Overwrites = 0 // nothing is overwritten, so nothing has to read it
	}
	s.Annotations[noteFiles], s.Annotations[noteConfig] = hashOf(files, false), hashOf(was, false)
	if plan.Service != nil {
		s.Annotations[noteService] = plan.Service.Hash
	}
	return nil
}

func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// warning says that an element keeps its own configuration, or those of its files that were given to it, if it does.
func (s *seeding) warning(given []string) control.Warning {
	what, kept := "configuration", slices.Concat(s.kept, given)
	way := "`polyplane save --running` prints a file that has it"
	switch {
	case len(kept) == 0:
		return control.Warning{}
	case len(s.kept) == 0:
		what, way = "files", "`polyplane cp` copies it out of the element"
	}
	more := ""
	if n := len(kept) - mostKept; n > 0 {
		kept, more = kept[:mostKept], fmt.Sprintf(" and %d others", n)
	}
	return control.Warning{Reason: "ConfigurationKept",
		Message: fmt.Sprintf("keeps its own %s: %s was edited inside the element, and the network's has changed; "+
			"`polyplane apply --overwrite` replaces it by the network's, %s", what, strings.Join(kept, ", ")+more, way)}
}

// mostKept is how many files a warning names.
const mostKept = 5
