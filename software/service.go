package software

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Service is what an element's owner has run in it, beside its routing software.
type Service struct {
	// Definition is the file from which inside/supervise knows it.
	Definition File
	// Hash is what its Note has once all of the definition is as it shall be.
	Hash string
	// Reload makes a service that runs take over a new definition. Again has it started again as it is; nil where only
	// commands are run.
	Reload, Again []string
}

const (
	// ServiceNotes is how the paths of inside/supervise's notes begin: those of ServiceNote, TroubleNote and WaitsNote.
	ServiceNotes = insideDir + "/service."
	// ServiceNote is also the name of the process that writes it.
	ServiceNote = "service"
	// WaitsNote is the name of the note that says, for people, what is waited for.
	WaitsNote = "waits"
	// StopFailed is a file in the element that says, for people, which command failed before its end.
	StopFailed = serviceKept + "/stop-failed"

	serviceConf = "/etc/polyplane/service"
	serviceKept = "/var/lib/polyplane"
)

// withService adds to a plan what the element's owner has run in it.
func withService(plan Plan, s *model.Service) Plan {
	var w writer
	w.line("# Written by polyplane from the network's file.")
	// A service is started again where files change. Without one there is nothing that they would be another for.
	define(&w, s, s.Run != "")
	return supervised(plan, w.String(), s.Run != "")
}

// supervised is a plan in which a program of ours runs what the definition says, beside the plan's own command. What it
// runs as the service can be started again.
func supervised(plan Plan, definition string, service bool) Plan {
	sum := sha256.Sum256([]byte(definition))
	command := []string{superviseProgram.Path, "start"}
	if len(plan.Daemons) > 0 {
		command = slices.Concat(command, []string{strings.Join(plan.Daemons, ","),
			strings.Join(plan.Capabilities, ",")}, plan.Command)
	}
	plan.NeedsProcesses, plan.Capabilities, plan.Command = true, nil, command
	plan.Programs = withSupervise(plan.Programs)
	plan.Service = &Service{
		Definition: File{Path: serviceConf, Content: definition, Mode: 0o600, Owner: "root", Group: "root"},
		Hash:       hex.EncodeToString(sum[:]), Reload: []string{superviseProgram.Path, "reload"}}
	if service {
		plan.Service.Again = []string{superviseProgram.Path, "again"}
	}
	plan.Dirs = append(slices.Clip(plan.Dirs), Dir{Path: "/etc/polyplane", Mode: 0o755, Owner: "root", Group: "root"},
		Dir{Path: serviceKept, Mode: 0o755, Owner: "root", Group: "root"})
	return plan
}

// put writes lines of a definition, which inside/supervise reads.
func (w *writer) put(key string, values ...string) {
	for _, v := range values {
		if v != "" {
			w.line("%s %s", key, strconv.Quote(v))
		}
	}
}

// define writes what an element's owner has run.
func define(w *writer, s *model.Service, files bool) {
	w.put("start", s.Start...)
	w.put("stop", s.Stop...)
	w.put("run", s.Run)
	if len(s.Contents) > 0 && files {
		w.put("files", hashOfContents(s.Contents))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		w.put("env", name+"="+s.Env[name])
	}
	w.put("restart", string(s.RestartsOn()))
	if r := s.Ready; r != nil {
		if r.TCP != 0 {
			w.put("tcp", strconv.Itoa(r.TCP))
		}
		w.put("ready", r.Command)
	}
}

// contents are the files that are put into an element.
func contents(all map[string]model.File) []File {
	var files []File
	for _, path := range slices.Sorted(maps.Keys(all)) {
		f := all[path]
		perm, _ := f.Perm()
		files = append(files, File{Path: path, Content: f.Content(), Tree: f.Tree, Mode: perm, Owner: "root",
			Group: "root"})
	}
	return files
}

func hashOfContents(all map[string]model.File) string {
	sum := sha256.New()
	for _, f := range contents(all) {
		fmt.Fprintf(sum, "%q %o %d\n%s", f.Path, f.Mode, len(f.Content), f.Content)
		if f.Tree != "" {
			fmt.Fprintf(sum, "tree %s\n", f.Tree)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}
