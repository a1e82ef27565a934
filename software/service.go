package software

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Service is what an element's owner has run in it, beside its routing software.
type Service struct {
	// Definition is the file from which inside/service knows it.
	Definition File
	// Hash is what its Note has once all of the definition is as it shall be.
	Hash string
	// Reload makes a service that runs take over a new definition. Again has it started again as it is; nil where only
	// commands are run.
	Reload, Again []string
}

const (
	// ServiceNotes is how the paths of inside/service's notes begin: those of ServiceNote, TroubleNote and WaitsNote.
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

//go:embed inside/service
var serviceScript []byte

var serviceProgram = Program{Path: insideDir + "/service", Content: serviceScript, Mode: 0o755}

// withService adds to a plan what the element's owner has run in it.
func withService(plan Plan, s *model.Service) Plan {
	content := definition(s)
	sum := sha256.Sum256([]byte(content))
	hash := hex.EncodeToString(sum[:])
	content += "want=" + hash + "\n" // inside/service says it, and does not have to work it out
	plan.Service = &Service{
		Definition: File{Path: serviceConf, Content: content, Mode: 0o600, Owner: "root", Group: "root"},
		Hash:       hash, Reload: []string{serviceProgram.Path, "reload"}}
	if s.Run != "" {
		plan.Service.Again = []string{serviceProgram.Path, "again"}
	}
	capabilities := each.Of(plan.Capabilities, func(c string) string {
		return "+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	})
	// In an element that was started by an earlier version, which wrote its notes elsewhere, this is another command
	// than it has. So it is started again.
	plan.Command = append([]string{serviceProgram.Path, "run", strings.Join(plan.Daemons, ","),
		strings.Join(capabilities, ",")}, plan.Command...)
	plan.NeedsProcesses, plan.Capabilities = true, nil
	plan.Dirs = append(plan.Dirs, Dir{Path: "/etc/polyplane", Mode: 0o755, Owner: "root", Group: "root"},
		Dir{Path: serviceKept, Mode: 0o755, Owner: "root", Group: "root"})
	plan.Programs = append(plan.Programs, serviceProgram)
	return plan
}

// definition are assignments in the language of inside/service, which is bash's.
func definition(s *model.Service) string {
	var w writer
	w.line("# Written by polyplane from the network's file.")
	w.line("start=%s", quotedAll(s.Start))
	w.line("stop=%s", quotedAll(s.Stop))
	w.line("run=%s", quoted(s.Run))
	w.line("restart=%s", quoted(string(s.RestartsOn())))
	variables := each.Of(slices.Sorted(maps.Keys(s.Env)), func(name string) string {
		return name + "=" + s.Env[name]
	})
	w.line("env=%s", quotedAll(variables))
	tcp, command := "", ""
	if r := s.Ready; r != nil {
		if r.TCP != 0 {
			tcp = strconv.Itoa(r.TCP)
		}
		command = r.Command
	}
	if len(s.Contents) > 0 && s.Run != "" { // the service is started again where they change
		w.line("files=%s", quoted(hashOfContents(s.Contents)))
	}
	w.line("tcp=%s", quoted(tcp))
	w.line("ready=%s", quoted(command))
	return w.String()
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

// quoted is a text as one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quotedAll(all []string) string {
	words := each.Of(all, quoted)
	return "(" + strings.Join(words, " ") + ")"
}
