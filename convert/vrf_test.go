package convert

import (
	"strings"
	"testing"
)

// TestWrittenVRFs: the commands of a router make its VRFs, before its interfaces have addresses.
func TestWrittenVRFs(t *testing.T) {
	made := string(writeLab(t, "../examples/vrf.yaml")[0].Topology)
	at := 0
	for _, words := range []string{"ip rule add pref 32765 table local", "ip rule del pref 0", "ip link add blue type vrf table 1001",
		"ip link add red type vrf table 1002", "ip route add vrf red unreachable default metric 4278198272",
		"ip link set dev pe2.10 master red", "ip address add 10.1.0.2/24 dev red1"} {
		next := strings.Index(made[at:], words)
		if next < 0 {
			t.Fatalf("the topology does not say %q, or says it too early:\n%s", words, made)
		}
		at += next
	}
}
