package model

import (
	"testing"

	"pgregory.net/rapid"
)

func TestParseUnits(t *testing.T) {
	for s, want := range map[string]Bandwidth{"10Mbit": 10e6, "1.5Gbit": 1.5e9, "100 kbit": 1e5, "0bit": 0,
		"64bit": 64, "9Tbit": 9e12} {
		if got, err := ParseBandwidth(s); err != nil || got != want {
			t.Errorf("ParseBandwidth(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]Bytes{"512MiB": 512 << 20, "2GiB": 2 << 30, "1.5KiB": 1536, "7B": 7} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]CPU{"0.5": 500, "2": 2000, "0.001": 1, " 1.25 ": 1250} {
		if got, err := ParseCPU(s); err != nil || got != want {
			t.Errorf("ParseCPU(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]Duration{"10ms": 10e6, "1.5s": 1.5e9, "5 us": 5000, "0": 0} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]float64{"0.01": 0.01, "1%": 0.01, "100 %": 1, "0": 0, "0.1%": 0.001} {
		if got, err := ParseLoss(s); err != nil || got != want {
			t.Errorf("ParseLoss(%q) = %g, %v, want %g", s, got, err, want)
		}
	}
}

func TestParseUnitsRefuse(t *testing.T) {
	for _, s := range []string{"", "10", "10MB", "10Mbps", "10mbit", "-1Mbit", "Mbit", "1e3Mbit", "0x10bit",
		"99999999999Gbit", "1..5Mbit", "1.5.5Mbit", "+1bit"} {
		if v, err := ParseBandwidth(s); err == nil {
			t.Errorf("ParseBandwidth(%q) = %d", s, v)
		}
	}
	for _, s := range []string{"", "512", "512MB", "512M", "1.5", "99999999TiB"} {
		if v, err := ParseBytes(s); err == nil {
			t.Errorf("ParseBytes(%q) = %d", s, v)
		}
	}
	for _, s := range []string{"", "500m", "-1", "1e3", "inf", "NaN", "0.0001", "99999999"} {
		if v, err := ParseCPU(s); err == nil {
			t.Errorf("ParseCPU(%q) = %d", s, v)
		}
	}
	for _, s := range []string{"", "10", "-5ms", "ms", "5 parsecs"} {
		if v, err := ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %d", s, v)
		}
	}
	for _, s := range []string{"", "2", "101%", "-1%", "%", "half"} {
		if v, err := ParseLoss(s); err == nil {
			t.Errorf("ParseLoss(%q) = %g", s, v)
		}
	}
}

func TestUnitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bandwidth(rapid.Uint64Range(0, 1<<62).Draw(t, "bandwidth"))
		if got, err := ParseBandwidth(b.String()); err != nil || got != b {
			t.Fatalf("%s is read as %d, %v", b, got, err)
		}
		m := Bytes(rapid.Uint64Range(0, 1<<62).Draw(t, "bytes"))
		if got, err := ParseBytes(m.String()); err != nil || got != m {
			t.Fatalf("%s is read as %d, %v", m, got, err)
		}
		c := CPU(rapid.Uint32().Draw(t, "cpu"))
		if got, err := ParseCPU(c.String()); err != nil || got != c {
			t.Fatalf("%s is read as %d, %v", c, got, err)
		}
		d := Duration(rapid.Int64Range(0, 1<<62).Draw(t, "duration"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%s is read as %d, %v", d, got, err)
		}
	})
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"10Mbit", "1.5GiB", "0.5", "10ms", "1%", "", "99999999999999999999bit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseBandwidth(s); err == nil {
			if again, err := ParseBandwidth(v.String()); err != nil || again != v {
				t.Errorf("%q is %s, which is read as %d, %v", s, v, again, err)
			}
		}
		if v, err := ParseBytes(s); err == nil {
			if again, err := ParseBytes(v.String()); err != nil || again != v {
				t.Errorf("%q is %s, which is read as %d, %v", s, v, again, err)
			}
		}
		if v, err := ParseCPU(s); err == nil {
			if again, err := ParseCPU(v.String()); err != nil || again != v {
				t.Errorf("%q is %s, which is read as %d, %v", s, v, again, err)
			}
		}
		if v, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(v.String()); err != nil || again != v || v < 0 {
				t.Errorf("%q is %s, which is read as %d, %v", s, v, again, err)
			}
		}
		if v, err := ParseLoss(s); err == nil && !(v >= 0 && v <= 1) {
			t.Errorf("%q is the loss %g", s, v)
		}
	})
}

// People read sizes to a tenth, and never more than there is.
func TestSizesAreRounded(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0B", 1023: "1023B", 512 << 20: "512MiB",
		8425503402: "7.8GiB", 8 << 30: "8GiB",
		8<<30 - 1: "7.9GiB", 150<<30 + 1<<29: "150GiB", 5 << 50: "5120TiB"} {
		if got := b.Rounded(); got != want {
			t.Errorf("%d is %s, want %s", b, got, want)
		}
	}
}
