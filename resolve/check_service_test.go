package resolve

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestServicesAreChecked: all that is wrong with what an element is to run is told.
func TestServicesAreChecked(t *testing.T) {
	long, tree := strings.Repeat("x", model.MaxCommandSize+1), "sha256:"+strings.Repeat("0", 64)
	for _, c := range []struct {
		s    model.Service
		want string // "" where it is right
	}{
		{model.Service{Start: []string{"ip route add 192.0.2.0/24 via 10.0.0.1"}, Run: "iperf3 -s"}, ""},
		{model.Service{Run: "x", Restart: model.RestartOnFailure, Env: model.Variables{"TZ": "UTC", "_a1": ""},
			Ready: &model.Readiness{TCP: 80, Command: "true"},
			Tmpfs: map[string]model.Bytes{"/data": 1 << 20, "/tmp": 1 << 30, "/run/x": 4096}}, ""},
		{model.Service{Env: model.Variables{"A": "b"}}, ""},
		{model.Service{Image: "nginx:1.27", Restart: model.RestartNo, Ready: &model.Readiness{TCP: 80}}, ""},
		{model.Service{Image: "lab/web@sha256:" + strings.Repeat("0", 64)}, ""},
		{model.Service{Image: "a b"}, `"a b" is no name of an image`},
		{model.Service{Image: strings.Repeat("x", model.MaxImageName+1)}, "is no name of an image"},
		{model.Service{Start: []string{"true", " \t"}}, "start: there is an empty command"},
		{model.Service{Stop: []string{"a\x00b"}}, "stop: a command is not UTF-8 text"},
		{model.Service{Run: "\xff"}, "run: a command is not UTF-8 text"},
		{model.Service{Run: long}, "bytes in a command"},
		{model.Service{Start: make([]string, model.MaxCommands+1)}, "commands under start"},
		{model.Service{Run: "x", Restart: "never"}, `restart: "never" is unknown; there are always, on-failure`},
		{model.Service{Start: []string{"x"}, Restart: model.RestartNo}, "there is no run"},
		{model.Service{Stop: []string{"x"}, Ready: &model.Readiness{TCP: 1}}, "neither start nor run"},
		{model.Service{Run: "x", Ready: &model.Readiness{}}, "ready says nothing"},
		{model.Service{Run: "x", Ready: &model.Readiness{TCP: 65536}}, "65536 is no TCP port"},
		{model.Service{Run: "x", Ready: &model.Readiness{Command: " "}}, "ready/command: there is an empty command"},
		{model.Service{Env: model.Variables{"1A": "b"}}, `"1A" is no name of a variable`},
		{model.Service{Env: model.Variables{"A": "\x00"}}, "the value of A is not UTF-8 text"},
		{model.Service{Tmpfs: map[string]model.Bytes{"data": 1 << 20}}, `"data" is not a whole path`},
		{model.Service{Tmpfs: map[string]model.Bytes{"/a/../b": 1 << 20}}, `"/a/../b" is not a whole path`},
		{model.Service{Tmpfs: map[string]model.Bytes{"/usr/lib": 1 << 20}}, "needs what is at /usr/lib"},
		{model.Service{Tmpfs: map[string]model.Bytes{"/": 1 << 20}}, "needs what is at /;"},
		{model.Service{Tmpfs: map[string]model.Bytes{"/run/polyplane": 1 << 20}}, "needs what is at /run/polyplane"},
		{model.Service{Tmpfs: map[string]model.Bytes{"/d": 1}}, "tmpfs: 1B is less than the 4KiB"},
		{model.Service{Contents: map[string]model.File{"/srv/a": {Tree: tree, Size: 5 << 20}}}, ""},
		{model.Service{Contents: map[string]model.File{"/srv/a": {Tree: "sha256:1"}}}, "is no ID of files"},
		{model.Service{Contents: map[string]model.File{"/srv/a": {Tree: tree, Text: "x"}}}, "it takes one of them"},
		{model.Service{Contents: map[string]model.File{"/srv/a": {Tree: tree, Mode: "0755"}}}, "a tree and a mode"},
		{model.Service{Contents: map[string]model.File{"/srv/a": {Text: "x", Size: 1}}}, "the size 1B"},
		{model.Service{Tmpfs: map[string]model.Bytes{"/d": 1 << 60}}, "more than any machine has"},
	} {
		net := model.Network{Name: "lab", Elements: []model.Element{{Name: "h", Kind: model.Host, Service: c.s}}}
		_, problems := Read(net)
		all := ""
		for _, p := range problems {
			all += p.Message + "\n"
		}
		if c.want == "" && all != "" || !strings.Contains(all, c.want) {
			t.Errorf("%+.60v: got %q, want %q", c.s, all, c.want)
		}
	}
	net := model.Network{Name: "lab", Elements: []model.Element{{Name: "s", Kind: model.Switch,
		Service: model.Service{Run: "x"}}}}
	if _, problems := Read(net); len(problems) != 1 || !strings.Contains(problems[0].Message, "a switch runs nothing") {
		t.Errorf("a switch with run: %v", problems)
	}
}
