package instance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
)

// Desired keeps on disk what a node was last told to have. The next agent begins with it, and networks can be made from
// it again. Each network has a file of its own, named by what is in it, so that a small change writes little. One file
// names all the others; it is replaced last, and in one step. Earlier versions had everything in that one file.
type Desired struct {
	dirs NodeDirs
	kept map[string]keptNetwork // what is known to be on the disk
}

type keptNetwork struct {
	file string
	is   model.NodeNetwork
}

// desiredFile is the form of the file that names the others.
type desiredFile struct {
	model.NodeState
	Files map[string]string `json:"files,omitempty"` // by network
}

// NewDesired is what is kept of a node.
func NewDesired(d NodeDirs) *Desired { return &Desired{dirs: d, kept: map[string]keptNetwork{}} }

func (d *Desired) dir() string { return filepath.Join(filepath.Dir(d.dirs.Desired()), "desired") }

// Read returns what was kept; nil if nothing was. If files of networks are damaged or missing, the error says which,
// and the state has these networks on hold: the node leaves what it has of them as it is.
func (d *Desired) Read() (s *model.NodeState, err error) {
	for range 3 {
		if s, err = d.readOnce(); !errors.Is(err, fs.ErrNotExist) {
			break
		} // what the first file named has just been replaced, it may be
	}
	return s, err
}

func (d *Desired) readOnce() (*model.NodeState, error) {
	b, err := os.ReadFile(d.dirs.Desired())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var is desiredFile
	if err := json.Unmarshal(b, &is); err != nil {
		return nil, fmt.Errorf("%s: %w", d.dirs.Desired(), err)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(is.Files)) {
		n, err := d.read(name, is.Files[name])
		if err != nil {
			problems = append(problems, fmt.Errorf("what the node was told of network %s: %w", name, err))
			if !slices.Contains(is.Hold, name) {
				is.Hold = append(is.Hold, name)
			}
			continue
		}
		is.Networks = append(is.Networks, *n)
		d.kept[name] = keptNetwork{is.Files[name], *n}
	}
	return &is.NodeState, errors.Join(problems...)
}

func (d *Desired) read(name, file string) (*model.NodeNetwork, error) {
	path := filepath.Join(d.dir(), filepath.Base(file))
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if is := nameOf(b); is != file {
		return nil, fmt.Errorf("%s is damaged: its contents are not what was written", path)
	}
	var n model.NodeNetwork
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if n.Name != name {
		return nil, fmt.Errorf("%s is of network %s", path, n.Name)
	}
	return &n, nil
}

// nameOf is the name of a file with these contents.
func nameOf(contents []byte) string {
	sum := sha256.Sum256(contents)
	return hex.EncodeToString(sum[:16]) + ".json"
}

// Write replaces what is kept in one step, and returns when it is on the disk. It does not write networks again that
// are the same values as in what was read or written before.
func (d *Desired) Write(s *model.NodeState) error {
	if err := os.MkdirAll(d.dir(), 0o700); err != nil {
		return err
	}
	kept := make(map[string]keptNetwork, len(s.Networks))
	files := make(map[string]string, len(s.Networks))
	written := false
	for i := range s.Networks {
		n := &s.Networks[i]
		k, have := d.kept[n.Name]
		if !have || !n.Is(&k.is) {
			b, err := json.Marshal(n)
			if err != nil {
				return fmt.Errorf("encode network %s: %w", n.Name, err)
			}
			if file := nameOf(b); !have || file != k.file {
				if err := durable.Put(filepath.Join(d.dir(), file), b, 0o600); err != nil {
					return err
				}
				k.file, written = file, true
			}
			k.is = *n
		}
		kept[n.Name], files[n.Name] = k, k.file
	}
	if written {
		if err := durable.Sync(d.dir()); err != nil {
			return err
		}
	}
	is := desiredFile{*s, files}
	is.Networks = nil
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(is); err != nil {
		return err
	}
	if err := durable.Replace(d.dirs.Desired(), b.Bytes(), 0o600); err != nil {
		return err
	}
	d.kept = kept
	return d.sweep(files)
}

// sweep removes files that nothing names any longer.
func (d *Desired) sweep(files map[string]string) error {
	named := make(map[string]bool, len(files))
	for _, file := range files {
		named[file] = true
	}
	there, err := os.ReadDir(d.dir())
	if err != nil {
		return err
	}
	for _, e := range there {
		if !named[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(d.dir(), e.Name())))
		}
	}
	return err
}
