package software

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

//go:generate ./inside/supervise/generate

// superviseProgram is the first process of elements that are made from images.
var superviseProgram = Program{Path: insideDir + "/supervise", Content: supervise, Mode: 0o755}

// Commands of the program in elements that are made from images.
var (
	// ImagePause is the first process where nothing is run.
	ImagePause = []string{superviseProgram.Path, "pause"}
	// ImagePipes, before a command, gives that the descriptors 3, 4 and 5 as its own.
	ImagePipes = []string{superviseProgram.Path, "pipes"}
)

// ImageShell is the program that elements from images see in any case.
func ImageShell() Plan { return Plan{Programs: []Program{superviseProgram}} }

// WithImage is a plan for an element that is made from an image. What the image runs by itself is the service, where
// the element has no other, and no routing software of the image is run.
func WithImage(plan Plan, s *model.Service, image *model.ImageRun) Plan {
	routed := len(plan.Daemons) > 0
	content := imageDefinition(s, image, routed)
	sum := sha256.Sum256([]byte(content))
	command := []string{superviseProgram.Path, "start"}
	if routed {
		command = slices.Concat(command, []string{strings.Join(plan.Daemons, ","),
			strings.Join(plan.Capabilities, ",")}, plan.Command)
	} else {
		plan.Console = []string{"/bin/sh"}
	}
	plan.NeedsProcesses, plan.Capabilities, plan.Command = true, nil, command
	plan.Programs = append(slices.Clip(plan.Programs), superviseProgram)
	plan.Service = &Service{
		Definition: File{Path: serviceConf, Content: content, Mode: 0o600, Owner: "root", Group: "root"},
		Hash:       hex.EncodeToString(sum[:]), Reload: []string{superviseProgram.Path, "reload"},
		Again: []string{superviseProgram.Path, "again"}}
	plan.Dirs = append(slices.Clip(plan.Dirs), Dir{Path: "/etc/polyplane", Mode: 0o755, Owner: "root", Group: "root"},
		Dir{Path: serviceKept, Mode: 0o755, Owner: "root", Group: "root"})
	return plan
}

// imageDefinition is what inside/supervise reads.
func imageDefinition(s *model.Service, image *model.ImageRun, routed bool) string {
	var w writer
	put := func(key string, values ...string) {
		for _, v := range values {
			if v != "" {
				w.line("%s %s", key, strconv.Quote(v))
			}
		}
	}
	w.line("# Written by polyplane from the network's file, and from the image.")
	put("start", s.Start...)
	put("stop", s.Stop...)
	put("run", s.Run)
	if s.Run == "" && !routed {
		for _, word := range image.Command() {
			w.line("own %s", strconv.Quote(word)) // one may be empty
		}
	}
	if len(s.Contents) > 0 { // the service is started again where they change
		put("files", hashOfContents(s.Contents))
	}
	if !routed { // else the image's user would be that of its routing software
		put("user", userOf(image.User))
	}
	put("dir", filepath.Clean("/"+image.WorkingDir))
	put("env", ImageEnvironment(s, image)...)
	put("restart", string(s.RestartsOn()))
	put("signal", stopSignal(image.StopSignal))
	if r := s.Ready; r != nil {
		if r.TCP != 0 {
			put("tcp", strconv.Itoa(r.TCP))
		}
		put("ready", r.Command)
	}
	return w.String()
}

// userOf is the image's user; empty for root.
func userOf(user string) string {
	switch user {
	case "root", "0", "root:root", "0:0":
		return ""
	}
	return user
}

// ImageEnvironment are the variables of an image, and the element's own, which go before.
func ImageEnvironment(s *model.Service, image *model.ImageRun) []string {
	all := slices.Clone(image.Env)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		all = append(all, name+"="+s.Env[name])
	}
	return all
}

// stopSignal is the number of a signal that an image names, like SIGQUIT, or 3; empty where it names none that there
// is.
func stopSignal(name string) string {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n < 32 {
		return name
	}
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); n > 0 {
		return strconv.Itoa(int(n))
	}
	return ""
}
