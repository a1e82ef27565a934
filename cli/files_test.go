package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A network comes from a pipe as well as from a file: that is what a shell's <(COMMAND) is.
func TestNetworksFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(path, []byte(duo), 0o600) //nolint:errcheck // the reader tells
	if r := run(t, lab(), "plan", "-f", path); r.code != ExitOK || !strings.Contains(r.out, "duo") {
		t.Errorf("got %+v", r)
	}
}

// Reading ends with the context, whatever the file does, and never takes more than is allowed.
func TestReadingAFileEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a pipe that nobody writes: %v", err)
	}
	if data, err := readFile(t.Context(), "/dev/zero"); err != nil || len(data) != maxInput {
		t.Errorf("/dev/zero: %d bytes, %v", len(data), err)
	}
	if r := run(t, lab(), "plan", "-f", "/dev/zero"); r.code != ExitUsage ||
		!strings.Contains(r.err, "33554432 are allowed") {
		t.Errorf("got %+v", r)
	}
}

// --name as nothing is a mistake – a script's variable was empty – and never the file's own name.
func TestEmptyNameIsRefused(t *testing.T) {
	for _, args := range [][]string{{"apply", "-f", "-"}, {"plan", "-f", "-"}, {"delete", "-f", "-"}} {
		f := lab()
		r := runWith(t, f, duo, append(args, "--name", "")...)
		if r.code != ExitUsage || !strings.Contains(r.err, "--name is empty") || len(f.applied)+len(f.deleted) != 0 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := run(t, lab(), "delete", "lab", "--name", "x"); r.code != ExitUsage ||
		!strings.Contains(r.err, "it needs -f FILE") {
		t.Errorf("got %+v", r)
	}
}

// TestSecondSignal runs a command that ends at no signal, in a process of its own: the second one ends it.
func TestSecondSignal(t *testing.T) {
	if os.Getenv("POLYPLANE_TEST_STUBBORN") != "" {
		c := New(nil)
		root := c.Root()
		root.Run, root.RunE = nil, nil
		stubborn := c.versionCommand()
		stubborn.Use, stubborn.RunE = "stubborn", nil
		root.AddCommand(stubborn)
		stubborn.Run = func(cmd *cobra.Command, _ []string) {
			os.Stdout.WriteString("ready\n")
			<-cmd.Context().Done()
			// The hook that gives the signals back may run a moment after this.
			os.Stdout.WriteString("first\n")
			select {}
		}
		c.Execute(root, []string{"stubborn"})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondSignal$")
	cmd.Env = append(os.Environ(), "POLYPLANE_TEST_STUBBORN=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	expect := func(word string) {
		t.Helper()
		b := make([]byte, 64)
		n, err := out.Read(b)
		if err != nil || !bytes.Contains(b[:n], []byte(word)) {
			cmd.Process.Kill()
			t.Fatalf("it says %q, %v; expected %q", b[:n], err, word)
		}
	}
	expect("ready")
	cmd.Process.Signal(unix.SIGTERM)
	expect("first")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		cmd.Process.Signal(unix.SIGTERM) //nolint:errcheck // it may have ended
		select {
		case <-ended:
			if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != unix.SIGTERM {
				t.Errorf("it ended with %s, not by the signal", cmd.ProcessState)
			}
			return
		case <-t.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
