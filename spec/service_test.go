package spec

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// An element runs what it says itself, else what the defaults say. Variables and file systems in memory are taken one
// by one, and nothing in a key takes back what the defaults say.
func TestWhatElementsRun(t *testing.T) {
	nets, err := Parse("lab.yaml", []byte(`network: lab
defaults:
  hosts: {run: iperf3 -s, start: [a, "b, c"], env: {TZ: UTC, N: 1}, tmpfs: {/a: 1MiB}, restart: no, ready: {tcp: 5201}}
  routers: {start: echo router}
routers: {r: {stop: [x]}}
hosts:
  h1:
  h2: {run: "", start: [], env: {TZ: CET}, tmpfs: {/b: 2MiB}}
  h3:
    run: |
      one
      two
    stop: last
links: [h1 -- r, h2 -- r, h3 -- r]
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	env, tmpfs := model.Variables{"TZ": "UTC", "N": "1"}, map[string]model.Bytes{"/a": 1 << 20}
	start, ready := []string{"a", "b, c"}, &model.Readiness{TCP: 5201}
	for i, want := range []model.Service{
		{Start: []string{"echo router"}, Stop: []string{"x"}},
		{Run: "iperf3 -s", Start: start, Env: env, Tmpfs: tmpfs, Restart: model.RestartNo, Ready: ready},
		{Env: model.Variables{"TZ": "CET", "N": "1"},
			Tmpfs: map[string]model.Bytes{"/a": 1 << 20, "/b": 2 << 20}},
		{Run: "one\ntwo\n", Stop: []string{"last"}, Start: start, Env: env, Tmpfs: tmpfs, Restart: model.RestartNo,
			Ready: ready},
	} {
		if e := nets[0].Elements[i]; !reflect.DeepEqual(e.Service, want) {
			t.Errorf("%s runs %+v, want %+v", e.Name, e.Service, want)
		}
	}
}

func drawService(t *rapid.T) model.Service {
	commands := []string{"true", "echo a, b: c", "[ -e /x ]", "x='1' && echo \"$x\" # no", "one\ntwo\n", "-n", "no", "1.5"}
	command := rapid.SampledFrom(commands)
	s := model.Service{Run: command.Draw(t, "run")}
	if maybe(t, "start") {
		s.Start = rapid.SliceOfN(command, 1, 3).Draw(t, "start commands")
	}
	if maybe(t, "stop") {
		s.Stop = []string{command.Draw(t, "stop command")}
		s.Restart = rapid.SampledFrom(model.RestartPolicies).Draw(t, "restart")
	}
	if maybe(t, "env") {
		s.Env = model.Variables{"TZ": "UTC", "A": command.Draw(t, "value"), "EMPTY": ""}
	}
	if maybe(t, "ready") {
		s.Ready = &model.Readiness{TCP: rapid.IntRange(1, 65535).Draw(t, "port"), Command: command.Draw(t, "sign")}
	}
	if maybe(t, "tmpfs") {
		s.Tmpfs = map[string]model.Bytes{"/data": 64 << 20, "/srv/a b": 4096}
	}
	if maybe(t, "files") {
		s.Contents = map[string]model.File{"/etc/motd": model.FileOf([]byte(command.Draw(t, "content")), "0755"),
			"/srv/c d": model.FileOf(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"), "")}
	}
	return s
}
