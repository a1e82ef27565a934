package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// checkSuffix ends the names of containers in which configurations are checked.
const checkSuffix = "+check"

func checkID(id model.ID) string { return containerID(id) + checkSuffix }

// maxComplaint bounds how many bytes of the software's message about a configuration are told.
const maxComplaint = 1000

// check has the software read a configuration from the document before anything runs on it. This happens in a container
// of its own, since a configuration may include other files of the element. In that container the candidates stand in
// the place of the element's own files. The files themselves stay as they are: what runs may read them at any moment,
// and must find them again if the check fails.
func (d *Driver) check(ctx context.Context, w *work, files *elementFiles, candidates []*software.File) error {
	p, id := w.p, w.job.ID
	if len(p.plan.Check) == 0 || len(candidates) == 0 && !d.hasConfig(id, &p.plan) {
		return nil
	}
	container, bundle := checkID(id), d.dirs.Bundle(id)+checkSuffix
	spec := d.newSpec(&w.job, container, nil, capabilitiesOf(&p.plan))
	spec.Process.Args = p.plan.Check
	defer os.RemoveAll(bundle)
	beside := filepath.Join(d.dirs.Files(id), "candidates")
	if len(candidates) > 0 {
		defer os.RemoveAll(beside)
		if err := os.Mkdir(beside, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make a directory for the new configuration: %w", err)
		}
	}
	for i, file := range candidates {
		source := filepath.Join(beside, strconv.Itoa(i))
		if err := writeCandidate(source, file, files); err != nil {
			return fmt.Errorf("write the new %s beside the running one: %w", file.Path, err)
		}
		m := readOnly(file.Path)
		m.Source = source
		spec.Mounts = append(spec.Mounts, m)
	}
	if err := writeBundle(bundle, spec); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dirs.Runc(), 0o711); err != nil {
		return fmt.Errorf("make runc's directory: %w", err)
	}
	if err := d.removeContainer(ctx, container, 0); err != nil { // a check that was cut short
		return err
	}
	said, err := d.temporary("check-")
	if err != nil {
		return fmt.Errorf("make a file for what the check says: %w", err)
	}
	defer os.Remove(said.Name())
	defer said.Close()
	if err := d.runRunc(w.shift.wish, nil, said, "run", "--no-new-keyring", "--bundle", bundle, container); err != nil {
		if words := complaint(said.Name()); words != "" {
			return fmt.Errorf("%s refuses its configuration: %s", w.job.Element.Software, words)
		}
		return fmt.Errorf("check its configuration: %w", err)
	}
	return nil
}

// hasConfig tells whether the element's own configuration is a file that can be read to its end. Who
// reads anything else – a pipe, a device – may do so for ever. What runs in the element says what is wrong then.
func (d *Driver) hasConfig(id model.ID, plan *software.Plan) bool {
	root, err := os.OpenRoot(d.rootfs(id))
	if err != nil {
		return true // whoever starts it tells what is wrong
	}
	defer root.Close()
	for _, path := range plan.ConfigFiles {
		file, err := openRegular(root, path)
		if err != nil {
			return false
		}
		info, err := file.Stat()
		file.Close()
		if err != nil || info.Size() > maxConfig {
			return false
		}
	}
	return true
}

func writeCandidate(path string, file *software.File, of *elementFiles) error {
	uid, gid, err := of.owner(file.Owner, file.Group)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(file.Content), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, of.base+uid, of.base+gid), os.Chmod(path, file.Mode))
}

// complaint is what a check printed, in one line.
func complaint(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(data[:min(len(data), maxComplaint)])) {
		if words := strings.Join(strings.Fields(line), " "); words != "" {
			lines = append(lines, words)
		}
	}
	return strings.Join(lines, "; ")
}
