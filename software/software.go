// Package software turns a resolved element into what runs inside it: FRR's or BIRD's configuration, the command that
// starts it, and what it needs. It is pure: drivers write the files and start the command.
package software

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Plan is what runs inside one element.
type Plan struct {
	// NeedsProcesses says that the element is more than a namespace. Hosts, switches, and routers whose software is
	// static or none have neither files nor a command, unless their owner has something run.
	NeedsProcesses bool
	Dirs           []Dir  // to exist before the files are written, parents first
	Files          []File // sorted by path
	// Programs are ours: the driver shows them to the element, which cannot change them.
	Programs []Program
	// ConfigFiles are the paths of those Files that are the software's own running configuration. The document's file
	// is only their beginning: what is written inside the element stays.
	ConfigFiles []string
	// Daemons are the names of the processes that must be running with their configuration, in the order in which they
	// start. Each then has a Note.
	Daemons []string
	// Command is what the element's PID 1 (a minimal init) starts and waits for. It stays in the foreground.
	Command []string
	// Reload makes what runs take over its configuration, without dropping what did not change. It fails if it does
	// not.
	Reload []string
	// Check reads a configuration that the document states in the software's own words. It fails with what is wrong
	// with it. It is empty if the configuration is generated.
	Check []string
	// Console is the command of an interactive session.
	Console []string
	// Capabilities are the fewest with which Command works, inside the network's user namespace ("CAP_NET_ADMIN").
	Capabilities []string
	// LogFiles are where the software writes, absolute paths inside the element.
	LogFiles []string
	// Contents are files that are put into it, sorted by path. What is written in their place inside the element stays.
	Contents []File
	// Service is what the element's owner has run; nil where that is nothing. Command runs it too, with what a person's
	// commands may use: Capabilities are empty then.
	Service *Service
}

// Dir is a directory inside an element.
type Dir struct {
	Path         string
	Mode         fs.FileMode
	Owner, Group string
}

// File is a file inside an element. Owner and Group are names of the element's own user database ("root", "frr").
type File struct {
	Path    string
	Content string
	// Tree is the ID of what is put there instead of a file with this content: a file or a directory that is kept as
	// images are. Its files have their own modes.
	Tree         string
	Mode         fs.FileMode
	Owner, Group string
}

// Render plans what runs inside a resolved element: every interface has its addresses and its far end, every intent its
// neighbours. It refuses what the software cannot do, naming the element and what would be right.
func Render(net string, el model.ResolvedElement) (Plan, error) {
	id := model.ID{Network: net, Element: el.Name}
	software := el.Software
	if el.Kind != model.Router {
		software = model.SoftwareNone
	}
	var plan Plan
	var err error
	switch software {
	case model.SoftwareFRR:
		plan, err = renderFRR(el)
	case model.SoftwareBIRD:
		plan, err = renderBIRD(el)
	case model.SoftwareStatic, model.SoftwareNone, "":
		plan, err = renderNothing(el)
	default:
		err = fmt.Errorf("unknown software %q; known are %s, %s, %s and %s", el.Software,
			model.SoftwareFRR, model.SoftwareBIRD, model.SoftwareStatic, model.SoftwareNone)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("configuring %s: %w", id, err)
	}
	if el.IsServed() && el.Image == "" { // else WithImage follows
		plan = withService(plan, &el.Service)
	}
	plan.Contents = contents(el.Contents)
	slices.SortFunc(plan.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return plan, nil
}

// InImage are the files without which an image's routing software cannot run: where FRR's own images, Alpine and Debian
// have them.
func InImage(s model.Software) []string {
	switch s {
	case model.SoftwareFRR:
		return []string{"/usr/lib/frr/zebra", "/usr/bin/vtysh"}
	case model.SoftwareBIRD:
		return []string{"/usr/sbin/bird", "/usr/sbin/birdc"}
	}
	return nil
}

// MemoryInImage is the directory where routing software keeps its sockets and process numbers. None of an earlier life
// may be there, so it is in memory where all else is an image's.
func MemoryInImage(s model.Software) string {
	return map[model.Software]string{model.SoftwareFRR: "/run/frr", model.SoftwareBIRD: "/run/bird"}[s]
}

// Required is a file that must be on a machine, and Debian's package that brings it.
type Required struct{ Path, Package string }

// Requires are the files of a machine without which routing software cannot run there.
func Requires(s model.Software) []Required {
	switch s {
	case model.SoftwareFRR:
		return []Required{{"/usr/lib/frr/zebra", "frr"}, {"/usr/bin/vtysh", "frr"},
			{"/usr/lib/frr/frr-reload.py", "frr-pythontools"}}
	case model.SoftwareBIRD:
		return []Required{{"/usr/sbin/bird", "bird2"}, {"/usr/sbin/birdc", "bird2"}}
	}
	return nil
}

// renderNothing is for elements that are a namespace and nothing else: the kernel routes.
func renderNothing(el model.ResolvedElement) (Plan, error) {
	if len(el.Spoken()) > 0 {
		return Plan{}, fmt.Errorf("routing protocols need routing software: set software to %s or %s",
			model.SoftwareFRR, model.SoftwareBIRD)
	}
	if len(el.Config) != 0 {
		return Plan{}, fmt.Errorf("there is no software here that would read %s: set software to %s or %s",
			strings.Join(slices.Sorted(maps.Keys(el.Config)), ", "), model.SoftwareFRR, model.SoftwareBIRD)
	}
	return Plan{Console: []string{"/bin/bash"}}, nil
}

// checkConfigNames refuses configuration files that the software would not read.
func checkConfigNames(config map[string]string, software model.Software) error {
	known := model.ConfigFiles(software)
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s reads no configuration file %q; it knows %s", software, name,
				strings.Join(known, ", "))
		}
	}
	return nil
}
