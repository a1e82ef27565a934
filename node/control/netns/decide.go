package netns

import "strconv"

// What is to be done with an element's processes is decided here, of values alone. process.go does it.

// written says what has happened to an element's files.
type written struct {
	config bool // its configuration is another one
	other  bool // something else that its processes have read has changed
	kept   bool // a configuration that somebody edited was left as it is
}

// deed is what is to be done with an element's processes. The zero value leaves them alone.
type deed struct {
	start   bool   // they do not run
	restart string // why they are to be ended and started again
	// The others are done while they run.
	load  bool // they are to read their new configuration
	serve bool // what their owner has run is another thing
	again bool // what their owner has run is to be started again, since files that it may have read are others
	limit bool // they are to have other limits
}

// decide compares what was noted at the processes' start, or at their last change, with what is wanted now.
func decide(running, asked bool, wrote written, noted, now map[string]string) deed {
	differs := func(note string) bool { return noted[note] != now[note] }
	switch {
	case !running:
		return deed{start: true}
	case asked:
		return deed{restart: "as requested"}
	case differs(noteSpec):
		return deed{restart: "its command or its surroundings changed"}
	case wrote.other, differs(noteFiles):
		return deed{restart: "its daemons changed"}
	}
	return deed{load: wrote.config || differs(noteConfig), serve: differs(noteService),
		again: differs(noteGiven) && !differs(noteService), limit: differs(noteResources)}
}

// asksRestart returns whether more restarts were asked for than a container has had.
func asksRestart(asked uint32, notes map[string]string) bool {
	had, _ := strconv.ParseUint(notes[noteRestarts], 10, 32)
	return uint64(asked) > had
}
