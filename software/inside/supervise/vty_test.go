package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakes listen where FRR's daemons would, and note what each is told.
type fakes struct {
	mu   sync.Mutex
	told map[string][]string
}

func listenAs(t *testing.T, dir string, names []string) *fakes {
	t.Helper()
	f := &fakes{told: map[string][]string{}}
	for _, name := range names {
		l, err := net.Listen("unix", filepath.Join(dir, name+".vty"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go f.serve(name, c)
			}
		}()
	}
	return f
}

func (f *fakes) serve(name string, c net.Conn) {
	defer c.Close()
	var got []byte
	part := make([]byte, 4096)
	for {
		n, err := c.Read(part)
		got = append(got, part[:n]...)
		for {
			text, rest, whole := bytes.Cut(got, []byte{0})
			if !whole {
				break
			}
			f.mu.Lock()
			f.told[name] = append(f.told[name], string(text))
			f.mu.Unlock()
			c.Write([]byte{0, 0, 0, 0})
			got = rest
		}
		if err != nil {
			return
		}
	}
}

// TestShareIsVtyshs has FRR's own vtysh give every generated configuration to daemons that only listen. Each is told by
// us what vtysh tells it, in the same order. After each block vtysh leaves and enters the configuration of all daemons
// anew, which we spare them.
func TestShareIsVtyshs(t *testing.T) {
	if out, err := exec.Command("/usr/lib/frr/zebra", "--version").CombinedOutput(); err != nil {
		t.Fatalf("zebra, of Debian's package frr: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "version 8.4") {
		t.Skipf("only FRR 8.4 is configured without vtysh; here is %.40q", out)
	}
	files, err := filepath.Glob("../../testdata/frr-*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no generated configurations (%v)", err)
	}
	programs := strings.Fields(everybody)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines, known := share(string(text))
		if !known {
			t.Errorf("%s is left to vtysh: a line of it has no rule", file)
			continue
		}
		dir := t.TempDir()
		conf := filepath.Join(dir, "frr.conf")
		if err := os.WriteFile(conf, text, 0o644); err != nil {
			t.Fatal(err)
		}
		f := listenAs(t, dir, programs)
		if out, err := exec.Command("vtysh", "-b", "--vty_socket", dir, "--config_dir", dir).CombinedOutput(); err != nil {
			t.Fatalf("%s: vtysh: %v\n%s", file, err, out)
		}
		f.mu.Lock()
		for _, program := range programs {
			is, want := commandsFor(program, lines), withoutPairs(f.told[program])
			if !slices.Equal(is, want) {
				t.Errorf("%s: %s is told %q, and by vtysh %q", filepath.Base(file), program, is, want)
			}
		}
		f.mu.Unlock()
	}
}

func withoutPairs(told []string) (all []string) {
	for i := 0; i < len(told); i++ {
		if told[i] == "end" && i+1 < len(told) && told[i+1] == "configure" {
			i++
			continue
		}
		all = append(all, told[i])
	}
	return all
}
