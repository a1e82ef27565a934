package netns

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// checkSuffix ends the names of the containers that configurations are checked in.
const checkSuffix = "+check"

func checkID(id model.ID) string { return containerID(id) + checkSuffix }

// maxComplaint is how much of what the software says about a configuration is told, in bytes.
const maxComplaint = 1000

// check has the software read a configuration that the document states, before anything runs on it: within the element,
// in a container of its own, since what a configuration includes is read as well.
func (d *Driver) check(ctx context.Context, w *work) error {
	p, id := &w.e.process, w.job.ID
	if len(p.plan.Check) == 0 {
		return nil
	}
	container, bundle := checkID(id), d.dirs.Bundle(id)+checkSuffix
	spec := d.newSpec(&w.job, container, nil, p.plan.Capabilities)
	spec.Process.Args = p.plan.Check
	defer os.RemoveAll(bundle)
	if err := writeBundle(bundle, spec); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dirs.Runc(), 0o711); err != nil {
		return fmt.Errorf("make runc's directory: %w", err)
	}
	if err := d.removeContainer(ctx, container, false); err != nil { // a check that was cut short
		return err
	}
	said, err := os.CreateTemp("", "polyplane-check-")
	if err != nil {
		return fmt.Errorf("make a file for what the check says: %w", err)
	}
	defer os.Remove(said.Name())
	defer said.Close()
	if err := d.runRunc(ctx, nil, said, "run", "--bundle", bundle, container); err != nil {
		if words := complaint(said.Name()); words != "" {
			return fmt.Errorf("%s refuses its configuration: %s", w.job.Element.Software, words)
		}
		return fmt.Errorf("check its configuration: %w", err)
	}
	return nil
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
