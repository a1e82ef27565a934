package polyplane_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPathHoldsPackagesOnly: the search path of the tests has what the packages of scripts/setup bring, their
// dependencies and alternatives too, and no command of any other package or of nobody's, which this machine may have.
func TestPathHoldsPackagesOnly(t *testing.T) {
	out, err := exec.Command("scripts/path", "test").Output()
	if err != nil {
		t.Fatalf("scripts/path test: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	for _, name := range []string{"python3", "mypy", "bash", "sh", "awk", "flock", "ip", "nft", "runc", "tini",
		"vtysh", "birdc", "ethtool",
		"traceroute", "tcpdump", "iperf3", "clang", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the tests' search path lacks %s, which packages of scripts/setup bring: %v", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(target, "/usr/local/") || strings.HasPrefix(target, "/opt/") {
			t.Errorf("%s leads to %s, which no package of Debian's brought", e.Name(), target)
		}
	}
	// make and git are what people have before they call scripts/setup; neither is in what it installs.
	for _, name := range []string{"make", "git", "go"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("the tests' search path has %s, which no package of scripts/setup needs", name)
		}
	}
}
