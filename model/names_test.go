package model

import (
	"net"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckName(t *testing.T) {
	for _, s := range []string{"r1", "R", "a.b-c_d", "0", strings.Repeat("x", 63)} {
		if err := CheckName(s); err != nil {
			t.Errorf("CheckName(%q): %v", s, err)
		}
	}
	for _, s := range []string{"", "lo", "all", "default", "-r", ".r", "r/1", "r:1", "r 1", "ü",
		strings.Repeat("x", 64), "r\n"} {
		if CheckName(s) == nil {
			t.Errorf("CheckName(%q) is content", s)
		}
	}
	for _, s := range []string{"ge-0/0/1", "et-0/0/1:0", "eth0", "eth0.100"} {
		if err := CheckInterfaceName(s); err != nil {
			t.Errorf("CheckInterfaceName(%q): %v", s, err)
		}
	}
	for _, s := range []string{"lo", "", "/", "a/", "a:", "a b"} {
		if CheckInterfaceName(s) == nil {
			t.Errorf("CheckInterfaceName(%q) is content", s)
		}
	}
}

// TestVRFsHaveNoNamesOfLinux: what a new network namespace has by itself would be taken for the VRF's device.
func TestVRFsHaveNoNamesOfLinux(t *testing.T) {
	for name := range linuxDevices {
		if err := CheckVRF(name); err == nil {
			t.Errorf("CheckVRF(%q) is content", name)
		}
	}
	for _, name := range []string{"red", "sit1", "r2.2", strings.Repeat("x", 15)} {
		if err := CheckVRF(name); err != nil {
			t.Error(err)
		}
	}
}

func TestDeviceName(t *testing.T) {
	for _, same := range []string{"eth0", "r2", "r2.2", strings.Repeat("x", 15)} {
		if got := DeviceName(same); got != same {
			t.Errorf("DeviceName(%q) = %q", same, got)
		}
	}
	for _, other := range []string{"ge-0/0/1", "et-0/0/1:0", "lo", "sit0", strings.Repeat("x", 16)} {
		got := DeviceName(other)
		if got == other || got != DeviceName(other) {
			t.Errorf("DeviceName(%q) = %q", other, got)
		}
	}
	if a, b := DeviceName("ge-0/0/1"), DeviceName("ge-0-0/1"); a == b || !strings.HasPrefix(a, "ge-0-0-1-") {
		t.Errorf("the aliases of ge-0/0/1 and ge-0-0/1 are %q and %q", a, b)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_./:-]{0,61}`).Draw(t, "name")
		d := DeviceName(name)
		if len(d) == 0 || len(d) > 15 || strings.ContainsAny(d, "/: \t\n") || d == "." || d == ".." || linuxDevices[d] {
			t.Fatalf("Linux refuses %q, the alias of %q", d, name)
		}
		if DeviceName(d) != d {
			t.Fatalf("the alias %q of %q has an alias itself", d, name)
		}
	})
}

func TestMAC(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range []PortID{{ID{"a", "r1"}, "x"}, {ID{"a", "r1"}, "y"}, {ID{"b", "r1"}, "x"}, {ID{"a", "r2"}, "x"}} {
		mac := MAC(p)
		m, err := net.ParseMAC(mac)
		if err != nil || len(m) != 6 || m[0]&3 != 2 {
			t.Errorf("MAC(%s) = %s is not unicast and locally administered", p, mac)
		}
		if seen[mac] || mac != MAC(p) {
			t.Errorf("MAC(%s) = %s is another's, or changes", p, mac)
		}
		seen[mac] = true
	}
}

func TestAxes(t *testing.T) {
	ok := map[[3]string]bool{}
	for _, line := range []string{
		"router netns guest,router,bridge,openflow,xdp", "router vm guest,router,bridge,openflow,xdp",
		"router controller openflow",
		"host netns guest", "host vm guest", "switch netns bridge,openflow,xdp", "switch vm bridge,openflow,xdp",
		"switch controller openflow",
	} {
		w := strings.Fields(line)
		for f := range strings.SplitSeq(w[2], ",") {
			ok[[3]string{w[0], w[1], f}] = true
		}
	}
	for _, k := range []Kind{Router, Host, Switch} {
		for _, c := range Controls {
			for _, f := range Forwardings {
				err := CheckAxes(k, c, f)
				if (err == nil) != ok[[3]string{string(k), string(c), string(f)}] {
					t.Errorf("%s, %s, %s: %v", k, c, f, err)
				}
			}
		}
	}
	if err := CheckAxes(Router, ControlController, ForwardXDP); err == nil ||
		!strings.HasSuffix(err.Error(), "it goes with openflow") {
		t.Errorf("the error does not tell what goes together: %v", err)
	}
	if CheckAxes(Router, "docker", ForwardGuest) == nil || CheckAxes(Router, ControlNetns, "magic") == nil {
		t.Error("unknown words are accepted")
	}
}
