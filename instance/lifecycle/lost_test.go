package lifecycle

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
	"github.com/polyplane/polyplane/server/store"
)

// TestLostSettings: without its settings an instance does not begin anew over what there is of its nodes.
func TestLostSettings(t *testing.T) {
	m := substrate.Machine{Name: "box", CPU: 4000, Memory: 8 << 30}
	for _, c := range []struct {
		name     string
		there    []string // files below the directories
		settings string   // the file's text; "-" where there is none
		o        Options
		want     string // nothing: accepted
	}{
		{"a new instance", nil, "-", Options{}, ""},
		{"a first start that was cut short", []string{"run/nodes/n1/node.net", "run/nodes/n2/node.net"}, "-", Options{}, ""},
		{"simulated nodes, and nothing said", []string{"data/nodes/n1/desired.json", "data/nodes/n2/desired.json"}, "-",
			Options{}, "node n1, node n2, of which there are data, would go"},
		{"fewer nodes", []string{"data/nodes/n1/desired.json", "data/nodes/n2/desired.json"}, "-", Options{Nodes: 1},
			"node n2, of which there are data, would go"},
		{"as many nodes", []string{"data/nodes/n1/desired.json", "data/nodes/n2/desired.json"}, "-", Options{Nodes: 2}, ""},
		{"the machine itself", []string{"data/nodes/box/desired.json"}, "-", Options{}, ""},
		{"no data of what runs", []string{"run/nodes/n1/networks/lab/user"}, "-", Options{Nodes: 1},
			"node n1, and DATA has neither its settings nor data of these: is the disk that it was on mounted?"},
		{"damaged", []string{"data/nodes/n1/desired.json"}, "{", Options{Nodes: 1},
			"is damaged (unexpected end of JSON input). Nothing was changed"},
	} {
		dir := t.TempDir()
		d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "data")}
		for _, path := range c.there {
			if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(d.Data, 0o755); err != nil {
			t.Fatal(err)
		}
		if c.settings != "-" {
			if err := os.WriteFile(settingsFile(d), []byte(c.settings), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		u := &Up{Dirs: d, Out: &bytes.Buffer{}}
		old, remembered, whole, err := u.remembered()
		if err == nil {
			var s settings
			if s, err = decide(c.o, old, remembered, m); err != nil {
				t.Fatal(err)
			}
			if !remembered || !whole {
				err = checkLost(d, s)
			}
		}
		want := strings.ReplaceAll(c.want, "DATA", d.Data)
		var refused *RefusedError
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			!errors.As(err, &refused)) {
			t.Errorf("%s: %v, want %q", c.name, err, want)
		}
	}
}

// TestLostFilesComeBack: settings and the certificate authority, lost or damaged, come back from the newest backup, and
// nothing else is touched.
func TestLostFilesComeBack(t *testing.T) {
	p := newPlatform(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	p.up("--nodes", "2")
	if err := unix.Kill(p.pids()["up"], unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.until("the platform to end", func() error {
		if _, ends := p.pids()["up"]; ends {
			return errors.New("it runs")
		}
		return nil
	})
	if out := p.up("--listen", free.Addr().String()); strings.Contains(out, "was lost") {
		t.Errorf("the first start that serves others says %q", out)
	}
	p.apply(acrossNodes)
	p.check()
	views := p.views()
	if err = os.MkdirAll(p.dirs.Backups(), 0o700); err != nil {
		t.Fatal(err)
	}
	p.run("backup", store.NextBackup(p.dirs.Backups(), time.Now()), "--instance", p.dirs.Name)
	authority := filepath.Join(p.dirs.Data, instance.AuthorityFile)
	before, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	lose := func(path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		spoil func()
		want  []string
	}{
		{"lost", func() { lose(settingsFile(p.dirs)); lose(authority) }, []string{"settings.json was lost",
			"authority.pem was lost", "2 simulated nodes"}},
		{"damaged", func() {
			for _, path := range []string{settingsFile(p.dirs), authority} {
				if err := os.Truncate(path, 10); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"settings.json was lost", "authority.pem was lost"}},
	} {
		for _, pid := range p.pids() {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
				t.Fatal(err)
			}
		}
		c.spoil()
		out := p.up()
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: `up` says %q, and not %q", c.name, out, want)
			}
		}
		if now, err := os.ReadFile(authority); err != nil || !bytes.Equal(before, now) {
			t.Errorf("%s: the authority is another: %v", c.name, err)
		}
		p.until("the network to run", func() error {
			networks, err := p.client.Networks(t.Context())
			if err == nil && (len(networks) != 1 || networks[0].Phase != model.PhaseRunning) {
				return errors.New("it does not")
			}
			return err
		})
		p.check()
		if now := p.views(); strings.Join(now, " ") != strings.Join(views, " ") {
			t.Errorf("%s: afterwards %v, before %v", c.name, now, views)
		}
	}
}

// TestUpTellsDamagedRecords: `up` names a network whose record the store cannot read, and what can be done.
func TestUpTellsDamagedRecords(t *testing.T) {
	p := newPlatform(t)
	p.up("--nodes", "1")
	p.apply("network: lab\nhosts: [a, b]\nlinks: [a -- b]\n")
	for _, pid := range p.pids() {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
	st, err := store.OpenEmbedded(t.Context(), store.EmbeddedOptions{Dir: p.dirs.Store(),
		Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	err = st.Spoil(t.Context(), "lab")
	if err = errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	out := p.up()
	for _, want := range []string{"is up", "The store is damaged where it has network lab: ", "its checksum does not match",
		"There is no good backup that has it", "recover --from-nodes lab", "delete lab"} {
		if !strings.Contains(out, want) {
			t.Errorf("`up` does not say %q:\n%s", want, out)
		}
	}
	if out := p.run("recover", "--from-nodes", "lab", "--instance", p.dirs.Name); !strings.Contains(out, "lab") {
		t.Errorf("recover says %q", out)
	}
	p.until("the network to run", func() error {
		networks, err := p.client.Networks(t.Context())
		if err == nil && (len(networks) != 1 || networks[0].Phase != model.PhaseRunning || networks[0].Damaged) {
			return errors.New("it does not")
		}
		return err
	})
	if out := p.run("exec", "--instance", p.dirs.Name, "lab/a", "--", "hostname"); strings.TrimSpace(out) != "a" {
		t.Errorf("recovered, lab/a calls itself %q", out)
	}
}
