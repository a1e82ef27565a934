package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConvert(t *testing.T) {
	lab, err := filepath.Abs("../convert/testdata/written.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "lab")
	r := run(t, &fake{}, "convert", "-f", lab, "--to", "clab", "-o", dir, "--host-image", "busybox")
	if r.code != ExitOK || !strings.Contains(r.err, "edge out is not carried over\n") {
		t.Fatalf("%d: %s", r.code, r.err)
	}
	for file, want := range map[string]string{"written.clab.yml": "image: busybox\n", "r1/frr.conf": "router ospf\n",
		"r2/bird.conf": "protocol ospf", "bridges.sh": "ip link add name s1 type bridge\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "impair.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("impair.sh cannot be run: %v", err)
	}
	two := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(two, []byte("network: a\n---\nnetwork: b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-f", lab, "-o", dir}, "is there already"},
		{[]string{"-f", lab}, "-o is needed"},
		{[]string{"-o", dir}, "-f is needed"},
		{[]string{"-f", two, "-o", dir + "2"}, "there are 2 networks"},
		{[]string{"-f", lab, "-o", dir + "2", "--to", "netlab"}, "clab"},
	} {
		r := run(t, &fake{}, append([]string{"convert"}, c.args...)...)
		if _, err := os.Stat(dir + "2"); r.code != ExitUsage || !strings.Contains(r.err, c.want) || err == nil {
			t.Errorf("%v: %d, %q; wanted %q", c.args, r.code, r.err, c.want)
		}
	}
}
