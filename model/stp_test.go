package model

import "testing"

func TestSTP(t *testing.T) {
	for _, c := range []struct {
		text     string
		is       STP
		priority uint16
		on       bool
	}{
		{"true", STPUsual, 32768, true}, {"false", "", 32768, false}, {"0", "0", 0, true}, {"4096", "4096", 4096, true},
		{"61440", "61440", 61440, true}, {"08192", "8192", 8192, true},
	} {
		is, err := ParseSTP(c.text)
		if err != nil || is != c.is {
			t.Errorf("%q is %q, %v", c.text, is, err)
		}
		if p, on := is.Priority(); p != c.priority || on != c.on {
			t.Errorf("%q has the priority %d, %v", c.text, p, on)
		}
	}
	for _, bad := range []string{"", "yes", "1", "4097", "65536", "-4096", "1e4", "99999999999999999999"} {
		if is, err := ParseSTP(bad); err == nil {
			t.Errorf("%q is %q", bad, is)
		}
	}
	if STPMaxAge > 2*(STPForwardDelay-second) || STPMaxAge < 2*(STPHello+second) { // IEEE 802.1D-2004, 17.14
		t.Error("these times are not allowed together")
	}
}
