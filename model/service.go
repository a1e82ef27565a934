package model

import "cmp"

// Service is what people have run in an element, beside its routing software.
type Service struct {
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
}

// Variables are those of an environment.
type Variables map[string]string

// Readiness is a sign that a service is ready: a TCP port that somebody listens on, or a command that ends with
// success.
type Readiness struct {
	TCP     int    `json:"tcp,omitempty"`
	Command string `json:"command,omitempty"`
}

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

// Size is about how many bytes it takes in JSON.
func (s *Service) Size() int {
	n := len(s.Run) + sizeOfOther/2*(len(s.Start)+len(s.Stop)+len(s.Env)+len(s.Tmpfs))
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
	return n
}

// Bounds of what people have run in one element.
const (
	MaxCommands    = 64       // of start, and of stop
	MaxCommandSize = 16 << 10 // bytes
	MaxVariables   = 128
	MaxTmpfs       = 16
	// MinTmpfs is the smallest file system in memory: a page.
	MinTmpfs = Bytes(4 << 10)
)
