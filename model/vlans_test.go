package model

import "testing"

func TestVLANsAreCounted(t *testing.T) {
	for v, want := range map[VLANs]int{"": 0, AllVLANs: 0, "7": 1, "2,5-9,4094": 7, "1-4094": 4094} {
		if n := v.Count(); n != want || n != len(v.List()) {
			t.Errorf("%q: %d, and %d are listed; wanted are %d", v, n, len(v.List()), want)
		}
	}
}
