package system

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAlertsCutOff follows the alerts of an intrusion detection system in an element: who is seen to do what they say
// is cut off; who is only named, by a forged address or a lying element, is not.
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
		p.run("exec", "lab/h3", "--", "sh", "-c", "echo '"+line+
			"' >> /var/log/eve.json; echo nonsense >> /var/log/eve.json")
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
	if out := p.run("quarantine", "list"); strings.Contains(out, "lab/h2") ||
		!strings.Contains(out, "lab/h3 saw: a scan (10.1.0.1 → 10.2.0.1)") {
		t.Errorf("in quarantine are %s", out)
	}
}

// detector is a small intrusion detection system: it takes what comes in by mirror0, and writes an alert in Suricata's
// format once somebody has tried twenty services. It stands in for Suricata where that is not to be had.
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

// TestDetectionInAnElementCutsOff has the host with a mirror of another's link in examples/watched.yaml find that that
// one scans, and the platform cut it off. Suricata's part is played by the detector above.
func TestDetectionInAnElementCutsOff(t *testing.T) {
	p := up(t, 1)
	p.detects("twenty services tried", "looking",
		func(ids string) { p.run("exec", ids, "--", "touch", "/root/eve.json") },
		"perl", "-e", detector)
}

// suricata is a directory with Debian's Suricata in it, as scripts/setup unpacks it, and the libraries that it has
// there.
func suricata(t *testing.T) (dir, libraries string) {
	dir = "../build/suricata"
	if _, err := os.Stat(dir + "/usr/bin/suricata"); err != nil {
		t.Skip("Suricata is not in build/suricata, where `scripts/setup suricata` unpacks it if the package archive " +
			"has it")
	}
	found, err := filepath.Glob(dir + "/usr/lib/*-linux-gnu")
	if err != nil || len(found) != 1 {
		t.Fatalf("Suricata's libraries are in %v: %v", found, err)
	}
	return dir, strings.TrimPrefix(found[0], dir)
}

// TestSuricataCutsOff is the same with Debian's Suricata, with the rule and the configuration that stand beside the
// example. On a node where Suricata is installed, elements see it; here it is brought into the element.
func TestSuricataCutsOff(t *testing.T) {
	dir, libraries := suricata(t)
	p := up(t, 1)
	bring := func(ids string) {
		pack := exec.Command("tar", "-C", dir, "-c", "usr")
		archive, err := pack.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := pack.Start(); err != nil {
			t.Fatal(err)
		}
		unpack := p.command("exec", ids, "--", "tar", "-C", "/root", "-x", "--no-same-owner")
		unpack.Stdin = archive
		out, err := unpack.CombinedOutput()
		archive.Close()
		if err := errors.Join(err, pack.Wait()); err != nil {
			t.Fatalf("bring Suricata into %s: %v: %s", ids, err, out)
		}
	}
	p.detects("twenty connections begun in ten seconds", "Engine started", bring,
		"env", "LD_LIBRARY_PATH=/root"+libraries, "/root/usr/bin/suricata", "-c", "/root/watched.suricata",
		"-i", "mirror0", "-k", "none", "-S", "/root/watched.rules", "-l", "/root")
}

// detects has a detection system in examples/watched.yaml find a scan with these words, once it has said that it
// begins.
func (p *platform) detects(words, begins string, bring func(ids string), detector ...string) {
	t := p.t
	t.Helper()
	const ids = "watched/ids"
	p.run("apply", "-f", "examples/watched.yaml")
	p.run("exec", ids, "--", "ip", "link", "set", "mirror0", "up")
	for _, name := range []string{"watched.rules", "watched.suricata"} {
		f, err := os.Open("../examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		c := p.command("exec", ids, "--", "sh", "-c", "cat > /root/"+name)
		c.Stdin = f
		out, err := c.CombinedOutput()
		f.Close()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if got := p.run("exec", ids, "--", "cat", "/root/watched.rules"); !strings.Contains(got, "alert tcp any any") {
		t.Errorf("the rules are %q", got)
	}
	bring(ids)
	var said, sees spoken
	look := p.command(append([]string{"exec", ids, "--"}, detector...)...)
	look.Stdout, look.Stderr = &sees, &sees
	follow := p.command("watch", "alerts", ids, "--eve", "/root/eve.json", "--policy", "quarantine")
	follow.Stdout, follow.Stderr = &said, &said
	for _, c := range []*exec.Cmd{look, follow} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Signal(syscall.SIGTERM); c.Wait() })
	}
	p.await("it to be followed", func() bool { return strings.Contains(said.String(), "following") }, said.String)
	p.await("the detector to look", func() bool { return strings.Contains(sees.String(), begins) }, sees.String)
	time.Sleep(2 * time.Second) // tail has opened the file
	// What is no attack has no alert.
	if !p.reaches("watched", "h1", "10.2.0.1") {
		t.Fatal("h1 does not reach h2 before")
	}
	began := time.Now()
	p.begin("watched/h1", "perl", "-e", scanning)
	p.await("the scanner to be cut off", func() bool {
		return strings.Contains(said.String(), "watched/h1") && strings.Contains(said.String(), "it was cut off")
	}, func() string { return said.String() + sees.String() })
	t.Logf("cut off after %.1f s:\n%s", time.Since(began).Seconds(), said.String())
	if out := p.run("quarantine", "list"); !strings.Contains(out, ids+" saw: "+words+" (10.1.0.1 → 10.2.0.1)") ||
		strings.Contains(out, "watched/h2") {
		t.Errorf("in quarantine are %s", out)
	}
	if p.reaches("watched", "h1", "10.2.0.1") {
		t.Error("h1 still reaches h2")
	}
}
