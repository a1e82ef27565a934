package linux

import (
	"os"
	"strings"
	"testing"
)

// TestProbeVLANs: what is found out is what the kernel does, and what it lacks is said in words that name it.
func TestProbeVLANs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	for name, probe := range map[string]func() error{"CONFIG_VLAN_8021Q": ProbeVLANs,
		"CONFIG_BRIDGE_VLAN_FILTERING": ProbeBridgeVLANs} {
		err := probe()
		if err != nil && (!strings.HasPrefix(err.Error(), "its kernel ") || !strings.Contains(err.Error(), name)) {
			t.Errorf("what the kernel lacks is told as %q", err)
		}
		if again := probe(); (again == nil) != (err == nil) {
			t.Errorf("first %v, then %v", err, again)
		}
		t.Logf("%s: %v", name, err)
	}
}
