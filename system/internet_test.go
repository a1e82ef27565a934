package system

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// world gives this machine – the namespace that the tests run in – an uplink, and a world behind it: a namespace with
// the address 203.0.113.7. It is gone at the test's end.
func world(t *testing.T) (namespace string) {
	t.Helper()
	shell(t, `ip netns add world
ip link add uplink0 type veth peer name eth0 netns world
ip -n world link set lo up; ip -n world link set eth0 up; ip link set uplink0 up
ip -n world addr add 192.0.2.1/24 dev eth0; ip -n world addr add 203.0.113.7/32 dev lo
ip addr add 192.0.2.2/24 dev uplink0; ip route add default via 192.0.2.1`)
	t.Cleanup(func() { shell(t, "ip link del uplink0; ip netns del world") })
	return "/run/netns/world"
}

func shell(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// greet answers every connection to a port of a namespace with a word.
func greet(t *testing.T, namespace, address, word string) {
	t.Helper()
	within(t, namespace, func() error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, word)
				c.Close()
			}
		}()
		return nil
	})
}

// greeting is what a port answers; empty when it does not within the time.
func greeting(t *testing.T, namespace, address string, patience time.Duration) (word string) {
	t.Helper()
	within(t, namespace, func() error {
		c, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			return nil
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		b, _ := io.ReadAll(c)
		word = string(b)
		return nil
	})
	return word
}

// TestInternet runs the example with a way out, and a network with the same addresses beside it, on two simulated
// nodes.
func TestInternet(t *testing.T) {
	outside, here := world(t), "/proc/self/ns/net"
	uplink := func() string {
		return shell(t, "tc qdisc show dev uplink0; tc filter show dev uplink0 ingress; ip -4 addr show uplink0; ip "+
			"route; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward")
	}
	before := uplink()
	p := up(t, 2)
	p.run("apply", "-f", "examples/internet.yaml")
	text := p.run("example", "internet")
	twin := strings.NewReplacer("network: internet", "network: twin", "2222:h2:22", "2223:h2:22").Replace(text)
	if out, stderr, err := p.try("apply", "-f",
		file(t, strings.Replace(text, "network: internet", "network: twin", 1))); err == nil ||
		!strings.Contains(stderr, "port 2222 is already forwarded by edge uplink of network internet") {
		t.Errorf("two networks may have the same port: %s%s", out, stderr)
	}
	p.run("apply", "-f", file(t, twin))
	greet(t, outside, "203.0.113.7:80", "the world")
	greet(t, here, "192.0.2.2:7777", "the machine")
	for _, network := range []string{"internet", "twin"} {
		for _, host := range []string{"h1", "h2"} {
			ns := p.namespace(network, host)
			p.await(network+"/"+host+" to reach the world", func() bool {
				return greeting(t, ns, "203.0.113.7:80", time.Second) == "the world"
			}, func() string { return p.run("describe", network) })
			if said := greeting(t, ns, "192.0.2.2:7777", 300*time.Millisecond); said != "" {
				t.Errorf("%s/%s reaches the machine's own port: %q", network, host, said)
			}
		}
	}
	greet(t, p.namespace("internet", "h2"), ":22", "one")
	greet(t, p.namespace("twin", "h2"), ":22", "two")
	for _, from := range []struct{ namespace, machine string }{{outside, "192.0.2.2"}, {here, "192.0.2.2"},
		{here, "127.0.0.1"}, {here, "[::1]"}} {
		for port, want := range map[string]string{":2222": "one", ":2223": "two"} {
			if said := greeting(t, from.namespace, from.machine+port, 10*time.Second); said != want {
				t.Errorf("%s%s answers %q, want %q", from.machine, port, said, want)
			}
		}
	}
	if said := p.run("describe", "internet"); !strings.Contains(said, "2222:h2:22") {
		t.Errorf("describe does not tell of the forwarded port:\n%s", said)
	}

	// Its packets need nobody.
	f := p.flowBetween(p.namespace("internet", "h1"), outside, "203.0.113.7", 0, 1)
	p.kill("agent n1", "agent n2", "manager")
	f.reached(f.sent.Load() + 200)
	p.ready()
	f.reached(f.sent.Load() + 200)
	if sent, lost, duplicated := f.stop(); lost != 0 || duplicated != 0 {
		t.Errorf("while the agents were killed, of %d packets %d were lost and %d came twice", sent, lost, duplicated)
	}

	// Somebody clears the machine's filters.
	shell(t, "tc qdisc del dev uplink0 clsact")
	p.await("the way out to be restored", func() bool {
		return greeting(t, p.namespace("internet", "h1"), "203.0.113.7:80", time.Second) == "the world"
	}, func() string { return p.run("get", "events") })

	// A router keeps its default route to itself where the file says so.
	told := func() string { return in(t, p.namespace("twin", "r2"), "ip", "route", "show", "default") }
	if told() == "" {
		t.Error("twin/r2 knows no default route")
	}
	p.run("apply", "-f", file(t, strings.Replace(twin, "    internet:\n", "    internet:\n      announce: false\n", 1)))
	p.await("twin/r2 to have no default route", func() bool { return told() == "" }, told)
	p.run("delete", "twin")
	if said := greeting(t, outside, "192.0.2.2:2222", 10*time.Second); said != "one" {
		t.Errorf("after the other network went, port 2222 answers %q", said)
	}
	p.run("down")
	if after := uplink(); after != before {
		t.Errorf("after down the uplink is\n%s\nbefore up it was\n%s", after, before)
	}
}
