package model

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"strconv"
	"unicode/utf8"
)

// Service is what people have run in an element, beside its routing software.
type Service struct {
	// Image is what the element's files begin as, NAME@ID once the manager has found which image that is. Where it is
	// empty, they are the machine's own programs. What the image runs by itself is run where Run is empty.
	Image string `json:"image,omitempty"`
	// Start are commands that are run one after the other when the element starts, once it has its interfaces and
	// addresses, and before Run. Stop are run before the element ends. All are a shell's (sh -c).
	Start []string `json:"start,omitempty"`
	Stop  []string `json:"stop,omitempty"`
	// Run is a command that lives as long as the element, and Restart says what is done when it ends: RestartAlways
	// when empty.
	Run     string        `json:"run,omitempty"`
	Restart RestartPolicy `json:"restart,omitempty"`
	// Env are variables of all commands, those of `exec` included.
	Env Variables `json:"env,omitempty"`
	// Ready is what must be so before the element counts as running.
	Ready *Readiness `json:"ready,omitempty"`
	// Tmpfs are file systems in memory, by path; their sizes bound them.
	Tmpfs map[string]Bytes `json:"tmpfs,omitempty"`
	// Contents are files that are put into it, by path. A file of the network calls them files, which in stored
	// documents is how many files may be open.
	Contents map[string]File `json:"contents,omitempty" key:"files"`
}

// ImageIDs are the IDs of what the manager keeps for it: its image, and its trees.
func (s *Service) ImageIDs() (ids []string) {
	if _, id := SplitImage(s.Image); id != "" {
		ids = append(ids, id)
	}
	for _, f := range s.Contents {
		if IsImageID(f.Tree) {
			ids = append(ids, f.Tree)
		}
	}
	return ids
}

// HasTrees tells whether something is put into it that is too large for the document.
func (s *Service) HasTrees() bool {
	for _, f := range s.Contents {
		if f.Tree != "" {
			return true
		}
	}
	return false
}

// File is what is put into an element at a path: a file with text or any bytes, or a tree.
type File struct {
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Tree is the ID of a file or a directory that is too large for a network's document, and which the manager keeps
	// as it keeps images. Where a file of the network was just read, it is still the whole path where that is. Size is
	// how many bytes it has. Its files have their own modes.
	Tree string `json:"tree,omitempty"`
	Size Bytes  `json:"size,omitempty"`
	// Mode are its permissions in octal digits, like 0755; DefaultFileMode when empty.
	Mode string `json:"mode,omitempty"`
}

// DefaultFileMode is what a File without a mode has.
const DefaultFileMode = "0644"

// FileOf is a file with this content.
func FileOf(content []byte, mode string) File {
	if mode == DefaultFileMode {
		mode = ""
	}
	if utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
		return File{Text: string(content), Mode: mode}
	}
	return File{Base64: content, Mode: mode}
}

// Content is what is in it.
func (f File) Content() string {
	if len(f.Base64) > 0 {
		return string(f.Base64)
	}
	return f.Text
}

// Perm are its permissions. ok is false where the mode is not of three octal digits, with a zero before them or not.
func (f File) Perm() (perm fs.FileMode, ok bool) {
	mode := cmp.Or(f.Mode, DefaultFileMode)
	n, err := strconv.ParseUint(mode, 8, 12)
	return fs.FileMode(n), err == nil && n <= 0o777 && (len(mode) == 3 || len(mode) == 4)
}

// String says how large it is.
func (f File) String() string {
	if f.Tree != "" {
		return fmt.Sprintf("a tree of %s, %s", f.Size.Rounded(), ShortImage(f.Tree))
	}
	return fmt.Sprintf("%s, mode %s", Bytes(len(f.Content())).Rounded(), cmp.Or(f.Mode, DefaultFileMode))
}

// Variables are those of an environment.
type Variables map[string]string

// Readiness is a sign that a service is ready: a TCP port that somebody listens on, or a command that ends with
// success.
type Readiness struct {
	TCP     int    `json:"tcp,omitempty"`
	Command string `json:"command,omitempty"`
}

// SharedFiles are parts of the machine's /etc that elements see.
var SharedFiles = []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/ssl/certs", "/etc/terminfo", "/etc/iproute2", "/etc/protocols", "/etc/services",
	"/etc/ethertypes", "/etc/rpc", "/etc/bash_completion.d", "/etc/vim"}

// RestartPolicy says what is done when a service ends by itself.
type RestartPolicy string

const (
	RestartAlways    RestartPolicy = "always"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartNo        RestartPolicy = "no"
)

// RestartPolicies are all there are.
var RestartPolicies = []RestartPolicy{RestartAlways, RestartOnFailure, RestartNo}

// Runs tells whether anything is to be run.
func (s *Service) Runs() bool { return s.Run != "" || len(s.Start) > 0 || len(s.Stop) > 0 }

// RestartsOn is what is done when the service ends by itself.
func (s *Service) RestartsOn() RestartPolicy { return cmp.Or(s.Restart, RestartAlways) }

// HasService tells whether a service is run: the element's own, or what its image runs by itself.
func (s *Service) HasService() bool { return s.Run != "" || s.Image != "" }

// Size is about how many bytes it takes in JSON.
func (s *Service) Size() int {
	n := len(s.Run) + len(s.Image) + sizeOfOther/2*(len(s.Start)+len(s.Stop)+len(s.Env)+len(s.Tmpfs))
	for _, list := range [][]string{s.Start, s.Stop} {
		for _, command := range list {
			n += len(command)
		}
	}
	for name, value := range s.Env {
		n += len(name) + len(value)
	}
	for path := range s.Tmpfs {
		n += len(path)
	}
	if s.Ready != nil {
		n += len(s.Ready.Command)
	}
	for path, f := range s.Contents {
		n += sizeOfOther/2 + len(path) + len(f.Tree) + len(f.Text) + (len(f.Base64)+2)/3*4
	}
	return n
}

// Bounds of what people have run in one element.
const (
	MaxCommands    = 64       // of start, and of stop
	MaxCommandSize = 16 << 10 // bytes
	MaxVariables   = 128
	MaxTmpfs       = 16
	MaxContents    = 512 // files that are put into it
	MaxFilePath    = 1024
	MaxFileDepth   = 64      // names in a path
	MaxContentSize = 4 << 20 // bytes of one of them, and of a directory, that stand in the document
	// A larger file or directory is a tree.
	MaxTree      = Bytes(1 << 30)
	MaxTreeFiles = 20_000
	// MinTmpfs is the smallest file system in memory: a page.
	MinTmpfs = Bytes(4 << 10)
)
