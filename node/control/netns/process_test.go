package netns

import (
	"maps"
	"testing"
)

func TestRestartFor(t *testing.T) {
	noted := map[string]string{noteSpec: "s", noteFiles: "f", noteConfig: "c", noteResources: "r"}
	with := func(key, value string) map[string]string {
		m := maps.Clone(noted)
		m[key] = value
		return m
	}
	for _, c := range []struct {
		what  string
		asked bool
		wrote written
		now   map[string]string
		why   string
		load  bool
	}{
		{what: "nothing", now: noted},
		{what: "other limits", now: with(noteResources, "other")},
		{what: "somebody's own configuration", wrote: written{kept: true}, now: noted},
		{what: "asked for", asked: true, wrote: written{config: true, other: true}, now: with(noteSpec, "other"),
			why: "as requested"},
		{what: "another command", wrote: written{config: true}, now: with(noteSpec, "other"),
			why: "its command or its surroundings changed"},
		{what: "another file", wrote: written{other: true, config: true}, now: noted, why: "its daemons changed"},
		{what: "a file that was written by somebody who ended before the restart", now: with(noteFiles, "other"),
			why: "its daemons changed"},
		{what: "another configuration", wrote: written{config: true}, now: noted, load: true},
		{what: "a configuration that was written by somebody who ended before it was loaded",
			now: with(noteConfig, "other"), load: true},
	} {
		if why, load := restartFor(c.asked, c.wrote, noted, c.now); why != c.why || load != c.load {
			t.Errorf("%s: %q, load %v; want %q, load %v", c.what, why, load, c.why, c.load)
		}
	}
}
