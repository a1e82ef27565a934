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
