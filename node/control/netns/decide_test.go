package netns

import (
	"maps"
	"testing"
)

func TestDecide(t *testing.T) {
	noted := map[string]string{noteSpec: "s", noteFiles: "f", noteConfig: "c", noteResources: "r", noteService: "v", noteGiven: "1"}
	with := func(keys ...string) map[string]string {
		m := maps.Clone(noted)
		for _, key := range keys {
			m[key] = "other"
		}
		return m
	}
	surroundings := deed{restart: "its command or its surroundings changed"}
	daemons := deed{restart: "its daemons changed"}
	for _, c := range []struct {
		what        string
		dead, asked bool
		wrote       written
		now         map[string]string
		want        deed
	}{
		{what: "nothing", now: noted},
		{what: "somebody's own configuration", wrote: written{kept: true}, now: noted},
		{what: "processes that ended", dead: true, now: noted, want: deed{start: true}},
		{what: "processes that ended, and everything else", dead: true, asked: true,
			wrote: written{config: true, other: true}, now: with(noteSpec, noteFiles, noteConfig, noteResources),
			want: deed{start: true}},
		{what: "asked for", asked: true, wrote: written{config: true, other: true}, now: with(noteSpec, noteResources),
			want: deed{restart: "as requested"}},
		{what: "another command", wrote: written{config: true}, now: with(noteSpec), want: surroundings},
		{what: "another command, and another service", now: with(noteSpec, noteService), want: surroundings},
		{what: "another file", wrote: written{other: true, config: true}, now: noted, want: daemons},
		{what: "a file that was written by somebody who ended before the restart", now: with(noteFiles), want: daemons},
		{what: "another configuration", wrote: written{config: true}, now: noted, want: deed{load: true}},
		{what: "a configuration that was written by somebody who ended before it was loaded", now: with(noteConfig),
			want: deed{load: true}},
		{what: "something else to run", now: with(noteService), want: deed{serve: true}},
		{what: "something else to run, with other files", now: with(noteService, noteGiven), want: deed{serve: true}},
		{what: "files that were overwritten", now: with(noteGiven), want: deed{again: true}},
		{what: "other limits", now: with(noteResources), want: deed{limit: true}},
		{what: "all that can be done while they run", wrote: written{config: true}, now: with(noteService, noteResources),
			want: deed{load: true, serve: true, limit: true}},
	} {
		if is := decide(!c.dead, c.asked, c.wrote, noted, c.now); is != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, is, c.want)
		}
	}
}

func TestAsksRestart(t *testing.T) {
	for _, c := range []struct {
		asked uint32
		had   string
		want  bool
	}{{0, "", false}, {1, "", true}, {1, "1", false}, {3, "2", true}, {2, "3", false}, {1, "no number", true}} {
		if is := asksRestart(c.asked, map[string]string{noteRestarts: c.had}); is != c.want {
			t.Errorf("asked %d times, had %q: %v", c.asked, c.had, is)
		}
	}
}
