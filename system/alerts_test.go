package system

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAlertsCutOff follows the alerts of an intrusion detection system in an element: who is seen to do what they say is cut
// off; who is only named, by a forged address or a lying element, is not.
func TestAlertsCutOff(t *testing.T) {
	p := up(t, 1)
	p.run("apply", "-f", file(t, strings.NewReplacer("node: n2", "node: n1").Replace(watched)))
	var said spoken
	c := p.command("watch", "alerts", "lab/h3", "--eve", "/var/log/eve.json", "--policy", "quarantine")
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	p.await("it to be followed", func() bool { return strings.Contains(said.String(), "following") }, said.String)
	alert := func(source, target string) {
		t.Helper()
		line := fmt.Sprintf(`{"event_type":"alert","src_ip":%q,"dest_ip":%q,"dest_port":80,"proto":"TCP","alert":{"signature":"a scan","severity":2}}`, source, target)
		p.run("exec", "lab/h3", "--", "sh", "-c", "echo '"+line+"' >> /var/log/eve.json; echo nonsense >> /var/log/eve.json")
	}
	says := func(what string) {
		t.Helper()
		p.await(what, func() bool { return strings.Contains(said.String(), what) }, said.String)
	}
	p.run("exec", "lab/h3", "--", "sh", "-c", "echo begin > /var/log/eve.json")
	end := p.begin("lab/h1", "ping", "-i", "0.2", "10.2.0.1")
	alert("192.0.2.1", "10.2.0.1") // nobody's address
	says("no element of network lab has that address")
	alert("10.3.0.1", "10.2.0.1") // its own
	says("that is the element which tells")
	alert("10.2.0.1", "10.3.0.1") // h2 sends no such packets
	says("its ports did not send such packets")
	alert("10.1.0.1", "10.2.0.1") // h1 does
	says("lab/h1  10.1.0.1 → 10.2.0.1  a scan: it was cut off")
	end()
	if out := p.run("quarantine", "list"); strings.Contains(out, "lab/h2") || !strings.Contains(out, "lab/h3 saw: a scan (10.1.0.1 → 10.2.0.1)") {
		t.Errorf("in quarantine are %s", out)
	}
}

// detector is a small intrusion detection system: it takes what comes in by mirror0, and writes an alert in Suricata's format
// once somebody has tried twenty services. It stands in for Suricata, which the tests' packages do not bring.
const detector = `use strict; $| = 1; alarm 200;
open my $f, "<", "/sys/class/net/mirror0/ifindex"; my $index = <$f>;
socket my $s, 17, 3, 0x0300 or die "socket: $!"; bind $s, pack "SnlSCCa8", 17, 3, $index, 0, 0, 0, "" or die "bind: $!";
my (%tried, %told); print "looking\n";
while (defined recv $s, my $b, 2000, 0) {
	next unless length $b >= 54 and substr($b, 12, 2) eq "\x08\x00" and substr($b, 23, 1) eq "\x06" and (ord(substr $b, 47, 1) & 0x12) == 2;
	my ($from, $to) = map join(".", unpack "C4", substr $b, $_, 4), 26, 30;
	$tried{$from}{unpack "n", substr $b, 36, 2} = 1;
	next if keys %{$tried{$from}} < 20 or $told{$from}++;
	open my $e, ">>", "/root/eve.json";
	print $e qq({"event_type":"alert","src_ip":"$from","dest_ip":"$to","proto":"TCP","alert":{"signature":"twenty services tried","severity":2}}\n);
}`

// TestDetectionInAnElementCutsOff has the host with a mirror of another's link in examples/watched.yaml find that that one scans,
// and the platform cut it off. Suricata's part is played by the detector above.
func TestDetectionInAnElementCutsOff(t *testing.T) {
	p := up(t, 1)
	p.run("apply", "-f", "examples/watched.yaml")
	rules, err := os.Open("../examples/watched.rules")
	if err != nil {
		t.Fatal(err)
	}
	defer rules.Close()
	bring := p.command("exec", "watched/ids", "--", "sh", "-c", "ip link set mirror0 up; : > /root/eve.json; cat > /root/watched.rules")
	bring.Stdin = rules
	if out, err := bring.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := p.run("exec", "watched/ids", "--", "cat", "/root/watched.rules"); !strings.Contains(got, "alert tcp any any") {
		t.Errorf("the rules are %q", got)
	}
	var said, sees spoken
	follow := p.command("watch", "alerts", "watched/ids", "--eve", "/root/eve.json", "--policy", "quarantine")
	follow.Stdout, follow.Stderr = &said, &said
	look := p.command("exec", "watched/ids", "--", "perl", "-e", detector)
	look.Stdout, look.Stderr = &sees, &sees
	for _, c := range []*exec.Cmd{follow, look} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Signal(syscall.SIGTERM); c.Wait() })
	}
	p.await("it to be followed", func() bool { return strings.Contains(said.String(), "following") }, said.String)
	p.await("the detector to look", func() bool { return strings.Contains(sees.String(), "looking") }, sees.String)
	time.Sleep(2 * time.Second) // tail has opened the file
	began := time.Now()
	p.begin("watched/h1", "perl", "-e", scanning)
	p.await("the scanner to be cut off", func() bool {
		return strings.Contains(said.String(), "watched/h1") && strings.Contains(said.String(), "it was cut off")
	},
		func() string { return said.String() + sees.String() })
	t.Logf("cut off after %.1f s", time.Since(began).Seconds())
	if out := p.run("quarantine", "list"); !strings.Contains(out, "watched/ids saw: twenty services tried (10.1.0.1 → 10.2.0.1)") || strings.Contains(out, "watched/h2") {
		t.Errorf("in quarantine are %s", out)
	}
}
