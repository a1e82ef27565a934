package convert

import (
	"fmt"
	"strings"
	"testing"
)

// TestWrittenLabels: containers are put on label-switched paths by commands, and it is said what their machine needs.
func TestWrittenLabels(t *testing.T) {
	made := writeLab(t, "../examples/mpls.yaml")[0]
	for _, words := range []string{
		"sysctl -w net.mpls.platform_labels=65536", "sysctl -w net.mpls.conf.lo.input=1", "sysctl -w net.mpls.conf.pe1.input=1",
		"ip route add 10.2.0.0/24 encap mpls 100 via ", "ip -f mpls route add 100 as 101 via inet ",
		"ip -f mpls route add 200 via inet ", "ip -f mpls route add 101 dev lo",
	} {
		if !strings.Contains(string(made.Topology), words) {
			t.Errorf("the topology does not say %q:\n%s", words, made.Topology)
		}
	}
	if notes := fmt.Sprint(made.Notes); !strings.Contains(notes, "router a: it needs the modules mpls_router") {
		t.Errorf("noted is\n%s", notes)
	}
}
