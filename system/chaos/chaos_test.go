package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/system/sandbox"
)

// seed is that of the runs here: CHAOS_SEED, or always the same.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("CHAOS_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_SEED: %v", err)
	}
	return n
}

// try runs the harness and logs its report.
func try(t *testing.T, c Config) (Report, error) {
	t.Helper()
	var log strings.Builder
	c.Name, c.Log = NewName(), &log
	if c.Binary == "" {
		c.Binary = os.Getenv(sandbox.BinaryVariable)
	}
	report, err := Run(t.Context(), c)
	report.Write(&log)
	t.Logf("seed %d\n%s", c.Seed, log.String())
	return report, err
}

// meets wants every one of the faults to have met an operation at least.
func meets(t *testing.T, r Report, faults ...string) {
	t.Helper()
	for _, f := range faults {
		if r.Matrix.During(f) == 0 {
			t.Errorf("no operation met the fault %q: choose another seed, or more operations", f)
		}
	}
}

// The short form of `make soak`.
func TestChaos(t *testing.T) {
	report, err := try(t, Config{Seed: seed(t), Operations: 32})
	if err != nil {
		t.Error(err)
	}
	meets(t, report, "agent", "manager", "up")
}

// The same with an external etcd, members of which are killed and cut off.
func TestChaosWithExternalEtcd(t *testing.T) {
	faults := []string{"etcd member", "etcd leader", "etcd cut off"}
	report, err := try(t, Config{Seed: seed(t), Operations: 6, Cluster: true, Faults: faults})
	if err != nil {
		t.Error(err)
	}
	meets(t, report, faults...)
}

// A mistake of the agent's is found: what its network has others of on the node is never removed.
func TestPlantedMistakeIsFound(t *testing.T) {
	binary := planted(t, "../../node/agent/pass.go", "if !wanted[f.ID] && a.shallGo(f.ID.Network) {",
		"if !wanted[f.ID] && a.shallGo(f.ID.Network) && !slices.ContainsFunc(a.plan.order, func(id model.ID) bool "+
			"{ return id.Network == f.ID.Network }) {")
	_, err := try(t, Config{Binary: binary, Seed: 1, Operations: 30, Every: 10, Faults: []string{"agent"},
		Sought: func(difference string) bool {
			return strings.Contains(difference, "the namespace of c") && strings.Contains(difference, "is left")
		}})
	if err == nil || !strings.Contains(err.Error(), "the namespace of c") || !strings.Contains(err.Error(), "is left") {
		t.Errorf("the run says %v", err)
	}
}

// planted builds the program with a piece of one of its files replaced. The file itself stays as it is.
func planted(t *testing.T, file, right, wrong string) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), right); n != 1 {
		t.Fatalf("%s has %q %d times: plant the mistake elsewhere", file, right, n)
	}
	replaced := filepath.Join(dir, "replaced.go")
	if err := os.WriteFile(replaced, []byte(strings.Replace(string(text), right, wrong, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "polyplane")
	if err := sandbox.Build("../../cmd/polyplane", binary, "-overlay", filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}
	return binary
}

// During is how many operations met a fault.
func (m Matrix) During(fault string) (tried int) {
	for _, row := range m {
		if c := row[fault]; c != nil {
			tried += c.tried
		}
	}
	return tried
}
