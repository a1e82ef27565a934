package software

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

//go:generate ./inside/supervise/generate

// superviseProgram is the first process of elements in which something is run.
var superviseProgram = Program{Path: insideDir + "/supervise", Content: supervise, Mode: 0o755}

// IsInit returns whether a command is one that can be the first process of an element by itself: it takes note of all
// that end.
func IsInit(command []string) bool { return len(command) > 0 && command[0] == superviseProgram.Path }

func withSupervise(programs []Program) []Program {
	if slices.ContainsFunc(programs, func(p Program) bool { return p.Path == superviseProgram.Path }) {
		return programs
	}
	return append(slices.Clip(programs), superviseProgram)
}

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
	if !routed {
		plan.Console = []string{"/bin/sh"}
	}
	return supervised(plan, imageDefinition(s, image, routed), true)
}

// imageDefinition is what inside/supervise reads.
func imageDefinition(s *model.Service, image *model.ImageRun, routed bool) string {
	var w writer
	w.line("# Written by polyplane from the network's file, and from the image.")
	if s.Run == "" && !routed {
		for _, word := range image.Command() {
			w.line("own %s", strconv.Quote(word)) // one may be empty
		}
	}
	if !routed { // else the image's user would be that of its routing software
		w.put("user", userOf(image.User))
	}
	w.put("dir", filepath.Clean("/"+image.WorkingDir))
	w.put("env", image.Env...)
	define(&w, s, true)
	w.put("signal", stopSignal(image.StopSignal))
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
