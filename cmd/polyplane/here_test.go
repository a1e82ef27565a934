package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is meant for a manager elsewhere is not done here: every command of the platform's own refuses it.
func TestNothingForElsewhereIsDoneHere(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".config", "polyplane"), 0o700); err != nil {
		t.Fatal(err)
	}
	login := filepath.Join(home, ".config", "polyplane", "login.json")
	run := func(env map[string]string, args ...string) string {
		app := newApp()
		var out bytes.Buffer
		app.Out, app.Err = &out, &out
		app.Getenv = func(name string) string {
			if name == "HOME" {
				return home
			}
			return env[name]
		}
		root := newRoot(app)
		for _, c := range daemonCommands(app) {
			root.AddCommand(c)
		}
		if code := app.Execute(root, args); code == 0 {
			t.Errorf("%v was done: %s", args, out.String())
		}
		return out.String()
	}
	file := filepath.Join(t.TempDir(), "x")
	for _, c := range [][]string{{"backup", file}, {"restore", file}, {"up", "-d"}, {"down"},
		{"join", "--manager", "127.0.0.1:1", "--token", "x"}, {"install"}, {"uninstall"}} {
		want := c[0] + " works on the manager's machine only, and this speaks to 127.0.0.1:1"
		if out := run(nil, append(c, "--server", "127.0.0.1:1", "--instance", "test-nowhere")...); !strings.Contains(out, want) {
			t.Errorf("%v with --server says %q", c, out)
		}
		if c[0] != "backup" && c[0] != "restore" {
			continue
		}
		if out := run(map[string]string{"POLYPLANE_SERVER": "127.0.0.1:1"}, c...); !strings.Contains(out, want) {
			t.Errorf("%v with the variable says %q", c, out)
		}
	}
	if err := os.WriteFile(login, []byte(`{"server": "127.0.0.1:1", "token": "x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"backup", file}, {"restore", file}} {
		if out := run(nil, c...); !strings.Contains(out, c[0]+" works on the manager's machine only") {
			t.Errorf("%v with a login says %q", c, out)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a backup")
	}
}
