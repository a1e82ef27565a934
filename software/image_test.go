package software

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"os/exec"

	"github.com/polyplane/polyplane/model"
)

// TestSuperviseIsCurrent: the program in images is compiled from its source, for every architecture.
func TestSuperviseIsCurrent(t *testing.T) {
	paths, err := filepath.Glob("inside/supervise/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal("there is no source", err)
	}
	hash := sha256.New()
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(data)
	}
	want := hex.EncodeToString(hash.Sum(nil))
	for _, arch := range []string{"amd64", "arm64"} {
		data, err := os.ReadFile("inside/supervise_" + arch)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) {
			t.Errorf("inside/supervise_%s is not compiled from its source: go generate ./software", arch)
		}
	}
	program := filepath.Join(t.TempDir(), "supervise")
	if err := os.WriteFile(program, supervise, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "sources").Output()
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("that for %s says %q, %v", runtime.GOARCH, out, err)
	}
}

func TestImageDefinition(t *testing.T) {
	image := &model.ImageRun{User: "web:staff", WorkingDir: "srv", Entrypoint: []string{"/a b"}, Cmd: []string{"", "c\n\"d"},
		Env: []string{"X=1", "Y=2"}, StopSignal: "SIGQUIT"}
	s := &model.Service{Env: model.Variables{"X": "own"}, Ready: &model.Readiness{TCP: 80, Command: "true"},
		Start: []string{"one"}, Stop: []string{"two"}, Restart: model.RestartNo}
	plan := WithImage(Plan{Console: []string{"/bin/bash"}}, s, image)
	want := `# Written by polyplane from the network's file, and from the image.
own "/a b"
own ""
own "c\n\"d"
user "web:staff"
dir "/srv"
env "X=1"
env "Y=2"
start "one"
stop "two"
env "X=own"
restart "no"
tcp "80"
ready "true"
signal "3"
`
	if got := plan.Service.Definition.Content; got != want {
		t.Errorf("it is\n%s", got)
	}
	if !plan.NeedsProcesses || !slices.Equal(plan.Command, []string{"/run/polyplane/supervise", "start"}) {
		t.Errorf("it is started as %q", plan.Command)
	}
	// Of an image with routing software nothing else is run, and that begins with what it may do.
	routed := Plan{Daemons: []string{"zebra", "ospfd"}, Command: []string{"/run/polyplane/supervise", "frr", "start"},
		Capabilities: []string{"CAP_NET_ADMIN", "CAP_KILL"}, Console: []string{"/usr/bin/vtysh"},
		Programs: []Program{superviseProgram}, Dirs: []Dir{{Path: "/etc/frr"}}}
	with := WithImage(routed, s, image)
	if !slices.Equal(with.Command, []string{"/run/polyplane/supervise", "start", "zebra,ospfd", "CAP_NET_ADMIN,CAP_KILL",
		"/run/polyplane/supervise", "frr", "start"}) || with.Console[0] != "/usr/bin/vtysh" || len(with.Programs) != 1 ||
		len(with.Dirs) != 3 || len(with.Capabilities) != 0 {
		t.Errorf("with routing software it is %+v", with)
	}
	for _, none := range []string{"own", "user"} {
		if strings.Contains(with.Service.Definition.Content, "\n"+none+" ") {
			t.Errorf("with routing software there is %s in\n%s", none, with.Service.Definition.Content)
		}
	}
	if len(routed.Programs) != 1 || len(routed.Dirs) != 1 {
		t.Error("the plan that was given has changed")
	}
	s.Run = "other"
	image.User, image.StopSignal = "0:0", "SIGNOTHING"
	got := WithImage(Plan{}, s, image).Service.Definition.Content
	for _, none := range []string{"own", "user", "signal"} {
		if strings.Contains(got, "\n"+none+" ") {
			t.Errorf("with run there is %s in\n%s", none, got)
		}
	}
	for given, number := range map[string]string{"QUIT": "3", "SIGTERM": "15", "9": "9", "-1": "", "99": "", "x": ""} {
		if n := stopSignal(given); n != number {
			t.Errorf("signal %s is %s", given, n)
		}
	}
}
