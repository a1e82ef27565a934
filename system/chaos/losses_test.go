package chaos

import "testing"

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
