package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// measured is the laboratory with a substrate of which one link is known, one in one direction only, and one not at
// all.
func measured() *fake {
	f := lab()
	f.dump.Substrate = []model.SubstrateLinkStatus{
		{SubstrateLink: model.SubstrateLink{A: "n1", B: "n2", Bandwidth: 1e9},
			Forth: &model.LinkMeasure{To: "n2", Up: true, Device: "to-n2", RTTMin: 81 * time.Microsecond,
				RTTMedian: 20321 * time.Microsecond,
				Sent:      200, Lost: 1, Capacity: 1e9, Used: 2e8, Available: 8e8},
			Back: &model.LinkMeasure{To: "n1", Up: true, Device: "to-n1", RTTMin: 80 * time.Microsecond,
				RTTMedian: 20 * time.Millisecond, Sent: 200,
				Capacity: 1e9, Available: 1e9}},
		{SubstrateLink: model.SubstrateLink{A: "n2", B: "n3"}, Back: &model.LinkMeasure{To: "n2", Sent: 4, Lost: 4,
			Problem: "no\nroute"}},
		{SubstrateLink: model.SubstrateLink{A: "n3", B: "n1"}},
	}
	return f
}

func TestSubstrate(t *testing.T) {
	for name, args := range map[string][]string{
		"substrate.txt":          {"get", "substrate"},
		"substrate-wide.txt":     {"get", "substrate", "-o", "wide"},
		"describe-node-link.txt": {"describe", "node/n1"},
	} {
		r := run(t, measured(), args...)
		if r.code != ExitOK || r.err != "" {
			t.Fatalf("%s: status %d, %s", name, r.code, r.err)
		}
		golden(t, name, r.out)
	}
}

func TestMetrics(t *testing.T) {
	const want = "polyplane_info 1\n"
	if r := run(t, lab(), "metrics"); r.code != ExitOK || r.out != want {
		t.Errorf("status %d: %s%s", r.code, r.out, r.err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "polyplane.prom")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, &fake{down: true}, "metrics", "--textfile", path); r.code != ExitNotRunning {
		t.Errorf("status %d: %s", r.code, r.err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("metrics that cannot be had made %q of the file", b)
	}
	if r := run(t, lab(), "metrics", "--textfile", path); r.code != ExitOK || r.out != "" {
		t.Errorf("status %d: %s%s", r.code, r.out, r.err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if b, _ := os.ReadFile(path); string(b) != want {
		t.Errorf("the file holds %q", b)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("there are left-overs: %v", entries)
	}
	if r := run(t, lab(), "metrics", "--textfile", filepath.Join(dir, "metrics.txt")); r.code != ExitUsage ||
		!strings.Contains(r.err, ".prom") {
		t.Errorf("status %d: %s", r.code, r.err)
	}
	if r := run(t, lab(), "metrics", "--textfile", filepath.Join(dir, "none", "x.prom")); r.code == ExitOK ||
		!strings.Contains(r.err, "x.prom") {
		t.Errorf("status %d: %s", r.code, r.err)
	}
}
