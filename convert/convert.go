// Package convert turns labs of other projects into polyplane's files, and networks into theirs. What cannot be carried
// over is told, with its line.
package convert

import (
	"fmt"

	"github.com/polyplane/polyplane/convert/clab"
	"github.com/polyplane/polyplane/convert/internal/lab"
	"github.com/polyplane/polyplane/convert/netlab"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// The formats that are known.
const (
	Containerlab = "containerlab"
	Netlab       = "netlab"
	Polyplane    = "polyplane" // a file of ours, which needs no conversion
)

// Note says what of a line was not carried over, or not as it was; Line is 0 where it is about the whole.
type Note = lab.Note

// Words are those that polyplane's files have.
type Words = lab.Words

// Error is what makes a file unreadable.
type Error = lab.Error

// Result is a lab in polyplane's form.
type Result struct {
	Format string // of what was read
	YAML   []byte
	Notes  []Note
}

// Lab is a network in the form of another project.
type Lab = clab.Lab

// Images are those that containers run, by what they are in the lab.
type Images = clab.Images

// Write turns a network into a lab of containerlab. It has the addresses that a new network would be given.
func Write(net model.Network, images Images) (*Lab, error) {
	document, problems := resolve.Read(net)
	if len(problems) > 0 {
		return nil, fmt.Errorf("it is not right: %s", problems[0].Message)
	}
	resolved, _, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
	if err != nil {
		return nil, err
	}
	return clab.Write(document.Network(), resolved, images)
}

// Read reads a lab of any format that is known, and tells by its content which it is. read reads the files that it
// names, relative to it; where it is nil, they are not looked into.
func Read(file string, data []byte, words Words, read func(path string) ([]byte, error)) (*Result, error) {
	root, err := lab.Parse(file, data)
	if err != nil {
		return nil, err
	}
	switch {
	case clab.Is(root):
		doc, notes := clab.Read(root, words, read)
		return &Result{Containerlab, doc.YAML(), notes}, nil
	case root.Has("network"):
		return &Result{Format: Polyplane, YAML: data}, nil
	case netlab.Is(root):
		doc, notes := netlab.Read(root, words)
		return &Result{Netlab, doc.YAML(), notes}, nil
	}
	return nil, &Error{File: file, Message: fmt.Sprintf("it is neither a topology of %s (which has topology: nodes:) "+
		"nor one of %s (which has nodes: and links:)", Containerlab, Netlab)}
}
