package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/polyplane/polyplane/cli"
)

// docs/cli.md is written from the commands, and must not be behind them.
func TestReferenceIsCurrent(t *testing.T) {
	var want bytes.Buffer
	app := newApp()
	root := newRoot(app)
	root.AddCommand(daemonCommands(app)...)
	for _, c := range root.Commands() {
		if !c.Hidden && c.GroupID == "" && c.Name() != "help" && c.Name() != "completion" {
			t.Errorf("%s is in no group: the reference leaves it out", c.Name())
		}
	}
	if err := cli.WriteDocs(&want, root); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/cli.md is not what the commands say; write it anew with `go generate ./cmd/polyplane`")
	}
}
