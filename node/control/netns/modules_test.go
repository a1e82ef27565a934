package netns

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestElementsHaveWhatNetworksAreBuiltOf: devices, tunnels, traffic control, rules and questions that kernels have in
// modules work in an element, and others do not, where the kernel runs the program that refuses them.
func TestElementsHaveWhatNetworksAreBuiltOf(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/modprobe"); err != nil {
		t.Skip("this kernel loads no modules")
	}
	_, had := os.Stat("/sys/module/vcan")
	n := newNode(t)
	jobs := frrLine("lab", 9, 2)[:1]
	jobs[0].Element.Software = model.SoftwareStatic
	n.apply(t, jobs)
	tries := []string{"ss -tunawx >/dev/null"}
	for _, kind := range []string{"bridge", "dummy", "ifb", "vrf table 7", "vxlan id 5 dstport 4789", "geneve id 5 remote 10.0.0.1", "wireguard",
		"gre remote 10.0.0.1 local 10.0.0.2", "gretap remote 10.0.0.1 local 10.0.0.2", "ipip remote 10.0.0.1 local 10.0.0.2",
		"sit remote 10.0.0.1 local 10.0.0.2", "ip6tnl remote fd00::1 local fd00::2", "ip6gre remote fd00::1 local fd00::2",
		"veth peer name y", "bond"} {
		tries = append(tries, "ip link add x type "+kind+" && ip link del x")
	}
	for _, kind := range []string{"vlan id 7", "macvlan", "ipvlan"} {
		tries = append(tries, "ip link del outer 2>/dev/null; ip link add outer type veth peer name other && ip link add link outer x type "+kind+" && ip link del outer")
	}
	for _, discipline := range []string{"htb", "netem delay 1ms", "fq_codel", "tbf rate 1mbit burst 10k latency 1s", "prio", "sfq", "clsact"} {
		tries = append(tries, "tc qdisc del dev lo root 2>/dev/null; tc qdisc add dev lo root "+discipline+" || tc qdisc add dev lo "+discipline)
	}
	for _, filter := range []string{"u32 match ip dst 10.0.0.1", "flower dst_ip 10.0.0.1", "matchall classid 1:1", "basic classid 1:1", "matchall action mirred egress redirect dev lo",
		"matchall action drop", "matchall action police rate 1mbit burst 10k", "matchall action skbedit mark 1"} {
		tries = append(tries, "tc qdisc replace dev lo clsact && tc filter add dev lo egress protocol ip "+filter)
	}
	for _, rule := range []string{"masquerade", "snat to 10.0.0.1", "ip daddr 10.0.0.1 dnat to 10.0.0.2", "ct state established accept", "counter", "limit rate 1/second",
		"reject", "log", "meta mark set 1", "queue num 1", "quota 5 mbytes"} {
		tries = append(tries, "nft flush ruleset; for c in 'nat hook postrouting priority 100' 'filter hook input priority 0' 'nat hook prerouting priority -100'; do "+
			"echo \"table ip t { chain c { type $c; "+rule+"; }; }\" | nft -f - && exit 0; done; exit 1")
	}
	var all strings.Builder // at once, since each command starts a container
	for i, script := range tries {
		fmt.Fprintf(&all, "out=$( (%s) 2>&1 ) || echo %d $out\n", script, i)
	}
	_, out, err := n.try(jobs[0].ID, "bash", "-fc", all.String()+"ip link add x type vcan 2>/dev/null && echo vcan")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		number, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		i, err := strconv.Atoi(number)
		if err != nil || i >= len(tries) {
			continue
		}
		if other, err := exec.Command("unshare", "-n", "bash", "-c", tries[i]).CombinedOutput(); err == nil {
			t.Errorf("an element cannot do what others can: %s: %s", tries[i], why)
		} else {
			t.Logf("this kernel has nothing of it: %s: %s", tries[i], other)
		}
	}
	guard := n.sockets.guard
	if guard == nil || guard.LackingModules != nil {
		return
	}
	if had == nil {
		return // the machine uses it
	}
	if strings.Contains(out, "vcan") {
		t.Errorf("an element had the kernel load vcan: %s", out)
	}
	if names, err := guard.RefusedModules(); err != nil || !slices.Contains(names, "rtnl-link-vcan") {
		t.Errorf("refused were %v (%v), want rtnl-link-vcan among them", names, err)
	} else {
		t.Logf("refused were %v", names)
	}
}
