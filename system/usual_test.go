package system

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// look is what the watch saw of one element at a time.
type look struct {
	Seq    int64
	At     time.Time
	ID     json.RawMessage
	Values []struct {
		Signal   string
		Value    float64
		Provoked bool
	}
}

// recorder asks a node's agent what its watch sees, every second, until it is stopped.
type recorder struct {
	socket string
	stop   chan struct{}
	done   chan struct{}
	looks  []look
}

func (p *platform) record(node string) *recorder {
	r := &recorder{socket: p.dirs.Node(node).AgentSocket(), stop: make(chan struct{}), done: make(chan struct{})}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
		}}}
	go func() {
		defer close(r.done)
		last := int64(0)
		for again := true; again; {
			select {
			case <-r.stop:
				again = false // once more
			case <-time.After(time.Second):
			}
			resp, err := client.Get(fmt.Sprintf("http://agent/v1/watch?after=%d", last))
			if err != nil {
				continue
			}
			var some []look
			if json.NewDecoder(resp.Body).Decode(&some) == nil && len(some) > 0 {
				last = some[len(some)-1].Seq
				r.looks = append(r.looks, some...)
			}
			resp.Body.Close()
		}
	}()
	p.t.Cleanup(func() { r.end() })
	return r
}

func (r *recorder) end() []look {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	<-r.done
	return r.looks
}

// write keeps what was seen, for node/watch, which makes a day of it: of each look the values that are not nothing.
func (r *recorder) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	w := bufio.NewWriter(z)
	began := r.looks[0].At
	for _, l := range r.looks {
		values := map[string]float64{}
		for _, v := range l.Values {
			values[v.Signal] = v.Value
		}
		json.NewEncoder(w).Encode(map[string]any{"ms": l.At.Sub(began).Milliseconds(), "id": l.ID, "values": values}) //nolint:errcheck // Flush tells
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

// webServer answers at port 80; webClient fetches three hundred times there, asks a name server that is not there, and
// tries ten ports, of which most are closed.
const (
	webServer = `alarm 300; my $l = IO::Socket::IP->new(LocalHost => "::", V6Only => 0, LocalPort => 80, Listen => 50, ReuseAddr => 1) or die;
while (my $c = $l->accept) { print $c "x" x 20000; close $c }`
	webClient = `alarm 60; my $to = shift; for (1 .. 300) { my $c = IO::Socket::IP->new(PeerHost => $to, PeerPort => 80, Timeout => 5) or next; 1 while <$c> }
for (1 .. 20) { my $c = IO::Socket::IP->new(PeerHost => $to, PeerPort => 53, Proto => "udp") or next; send $c, "x" x 40, 0; select undef, undef, undef, 0.1 }
for (75 .. 84) { IO::Socket::IP->new(PeerHost => $to, PeerPort => $_, Timeout => 2) }`
)

// TestOrdinaryUseIsNoAttack does with examples what people do with them, while the watch looks: nobody may be
// suspected. The short form has two of them; RECORD=FILE has all, for longer, and keeps what the watch saw.
// ORDINARY=1h has all, again and again for that long, with two minutes of rest after each time.
func TestOrdinaryUseIsNoAttack(t *testing.T) {
	record := os.Getenv("RECORD")
	var long time.Duration
	if text := os.Getenv("ORDINARY"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ORDINARY: %v", err)
		}
	}
	all := record != "" || long > 0
	examples := []string{"duo", "l2-switch"}
	if all {
		examples = nil
		found, err := filepath.Glob("../examples/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if lacksForExample(file) == nil {
				examples = append(examples, strings.TrimSuffix(filepath.Base(file), ".yaml"))
			}
		}
		world(t) // the one with an internet edge wants an uplink
	}
	p := up(t, 1)
	var r *recorder
	if long == 0 {
		r = p.record("n1")
	}
	var files []string
	for _, e := range examples {
		files = append(files, "-f", "examples/"+e+".yaml")
		p.run("apply", "-f", "examples/"+e+".yaml") // all start, and converge
	}
	networks := map[string]bool{}
	for line := range strings.Lines(p.run("get", "networks", "--no-headers")) {
		networks[strings.Fields(line)[0]] = true
	}
	for n := range networks {
		p.run("check", n, "--mesh", "--wait", "120s")
	}
	// Traffic in all of them at once: floods of pings that are answered, TCP as fast as it goes, UDP, connections that
	// come and go.
	traffic := func() {
		var wg sync.WaitGroup
		for n := range networks {
			elements := p.elements(n)
			var hosts []string
			for name, e := range elements {
				if e.Element.Kind == "host" && len(e.Element.Interfaces) > 0 &&
					len(e.Element.Interfaces[0].Addresses) > 0 {
					hosts = append(hosts, name)
				}
			}
			slices.Sort(hosts)
			if len(hosts) < 2 {
				continue
			}
			from, to := hosts[0], hosts[len(hosts)-1]
			address := elements[to].Element.Interfaces[0].Addresses[0].Addr().String()
			inFrom := func(args ...string) *exec.Cmd {
				return p.command(append([]string{"exec", n + "/" + from, "--"}, args...)...)
			}
			end := p.begin(n+"/"+to, "iperf3", "-s")
			serve := p.begin(n+"/"+to, "perl", "-MIO::Socket::IP", "-e", webServer)
			wg.Go(func() {
				defer end()
				defer serve()
				inFrom("ping", "-q", "-f", "-c", "3000", address).Run()
				inFrom("sh", "-c", "dd if=/dev/zero of=/root/x bs=1M count=150; sleep 3; rm /root/x").Run()
				inFrom("iperf3", "-c", address, "-t", "4").Run()
				inFrom("iperf3", "-c", address, "-t", "3", "-u", "-b", "50M").Run()
				inFrom("iperf3", "-c", address, "-t", "3", "-R", "-P", "4").Run()
				inFrom("traceroute", "-n", "-q", "1", "-w", "1", address).Run()
				// Short connections, refused ones among them; a name server that is not there; a person who looks what
				// is open; hosts that are not there.
				inFrom("sh", "-c", "for i in $(seq 30); do iperf3 -c "+address+" -p 5999 -t 1; done").Run()
				inFrom("perl", "-MIO::Socket::IP", "-e", webClient, address).Run()
				if i := strings.LastIndexByte(address, '.'); i > 0 {
					inFrom("sh", "-c", "for i in $(seq 200 219); do ping -c1 -W1 "+address[:i]+".$i & done; wait").Run()
				}
			})
		}
		wg.Wait()
	}
	// People change what runs, stop and start, and come back.
	change := func(n string) {
		var routers []string
		for name, e := range p.elements(n) {
			if e.Element.Kind == "router" {
				routers = append(routers, name)
			}
		}
		if len(routers) == 0 {
			return
		}
		slices.Sort(routers)
		for _, forwarding := range []string{"xdp", "router", "guest"} {
			p.run("set", n+"/"+routers[0], "forwarding="+forwarding)
		}
		p.run("stop", n+"/"+routers[0])
		p.try("check", n, "--mesh", "--wait", "3s") // some are not reached
		p.run("start", n+"/"+routers[0])
		p.run("restart", n+"/"+routers[len(routers)-1])
	}
	round := func() {
		traffic()
		for n := range networks {
			change(n)
			if !all {
				return
			}
		}
		traffic()
		for n := range networks {
			p.run("check", n, "--mesh", "--wait", "120s")
		}
		p.run(append([]string{"apply"}, files...)...)
		p.run("delete", "duo")
		p.run("apply", "-f", "examples/duo.yaml")
		p.run("check", "duo", "--mesh", "--wait", "120s")
	}
	suspected := func() {
		if found := p.suspicions(""); len(found) > 0 {
			t.Errorf("ordinary use was suspected:\n%s", strings.Join(found, "\n"))
		}
	}
	round()
	for began, n := time.Now(), 1; long > 0; n++ {
		time.Sleep(2 * time.Minute) // rest
		suspected()
		t.Logf("%d times in %v", n, time.Since(began).Round(time.Second))
		if t.Failed() || time.Since(began) > long {
			return
		}
		round()
	}
	if record != "" {
		time.Sleep(20 * time.Second) // rest
	}
	looks := r.end()
	if len(looks) < 20 {
		t.Errorf("the watch looked %d times: nothing was tried", len(looks))
	}
	highest := map[string]float64{}
	for _, l := range looks {
		for _, v := range l.Values {
			highest[v.Signal] = max(highest[v.Signal], v.Value)
		}
	}
	t.Logf("%d looks, highest values %v", len(looks), highest)
	suspected()
	if record != "" {
		if err := r.write(record); err != nil {
			t.Error(err)
		}
	}
}
