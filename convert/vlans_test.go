package convert

import (
	"strings"
	"testing"
)

// TestWrittenVLANs: what a topology cannot say of VLANs is in scripts, and in the commands of containers.
func TestWrittenVLANs(t *testing.T) {
	made := writeLab(t, "../examples/vlans.yaml")[0]
	for name, want := range map[string][]string{
		"bridges.sh": {"ip link set dev s1 type bridge vlan_default_pvid 0\nip link set dev s1 type bridge vlan_filtering 1"},
		"vlans.sh": {"bridge vlan add dev s1-1 vid 1\n", "bridge vlan add dev s1-1 vid 10\n", "bridge vlan add dev s1-1 vid 20\n",
			"vid 10 pvid untagged\n", "vid 1 pvid untagged\n"},
	} {
		for _, words := range want {
			if !strings.Contains(string(made.Files[name]), words) {
				t.Errorf("%s does not say %q:\n%s", name, words, made.Files[name])
			}
		}
	}
	for _, words := range []string{"ip link add link s1 name s1.10 type vlan id 10", "ip address add 10.0.20.1/24 dev s1.20"} {
		if !strings.Contains(string(made.Topology), words) {
			t.Errorf("the topology does not say %q:\n%s", words, made.Topology)
		}
	}
}
