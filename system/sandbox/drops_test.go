package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDropsAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stat")
	if err := os.WriteFile(file, []byte("entries allocs\n00000053 0000000a\n00000053 00000010\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := column(file, 1, true); got != 26 {
		t.Errorf("%d, want 26", got)
	}
	if got := column("/proc/net/softnet_stat", 0, false); got == 0 {
		t.Error("the machine has never handled a packet: the wrong column")
	}
}
