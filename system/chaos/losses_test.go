package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGapsAreNamed(t *testing.T) {
	f := &flow{}
	for _, k := range []uint64{0, 1, 3, 64, 65, 130} {
		f.note(k)
	}
	lost, which := f.lostSoFar()
	if want := "1 packets from 2 on, 60 packets from 4 on, 64 packets from 66 on"; lost != 125 || which != want {
		t.Errorf("%d lost, %q; want 125, %q", lost, which, want)
	}
	if lost, which := (&flow{}).lostSoFar(); lost != 0 || which != "" {
		t.Errorf("of nothing %d were lost: %q", lost, which)
	}
}

func TestMachineDropsAreRead(t *testing.T) {
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
