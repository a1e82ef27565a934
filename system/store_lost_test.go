package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// disks are the images of the elements' disks, with what tells one from another.
func (p *platform) disks() string {
	p.t.Helper()
	var all []string
	err := filepath.Walk(filepath.Join(p.dirs.Data, "nodes"), func(path string, info os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".ext4") && !strings.Contains(path, "/trash/") {
			all = append(all, fmt.Sprintf("%s %d", strings.TrimPrefix(path, p.dirs.Data),
				info.Sys().(*syscall.Stat_t).Ino))
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// networkStatus is one network as it is listed; false where it is not.
func (p *platform) networkStatus(name string) (model.NetworkStatus, bool) {
	p.t.Helper()
	var all []model.NetworkStatus
	if err := json.Unmarshal([]byte(p.run("get", "networks", "-o", "json")), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, n := range all {
		if n.Name == name || n.Title == name {
			return n, true
		}
	}
	return model.NetworkStatus{}, false
}

// stop ends the platform's processes, as ^C does; networks stay.
func (p *platform) stop() {
	p.t.Helper()
	pid := p.processes()["up"]
	if out, err := exec.Command("kill", fmt.Sprint(pid)).CombinedOutput(); err != nil {
		p.t.Fatalf("end up: %v\n%s", err, out)
	}
	p.await("the platform's processes to end", func() bool { return len(p.processes()) == 0 },
		func() string { return fmt.Sprint(p.processes()) })
}

// moved renames a directory of the instance's data.
func (p *platform) moved(from, to string) {
	p.t.Helper()
	if to != "etcd" { // a purge leaves what has a name of somebody else's
		p.t.Cleanup(func() { os.RemoveAll(filepath.Join(p.dirs.Data, to)) }) //nolint:errcheck // it may be back in its place
	}
	if err := os.Rename(filepath.Join(p.dirs.Data, from), filepath.Join(p.dirs.Data, to)); err != nil {
		p.t.Fatal(err)
	}
}

// TestALostStoreLosesNothing moves the store away under running networks: with an empty one in its place every element
// and disk stays, no packet is lost, over restarts of everything; with the store back all is as if nothing had been.
func TestALostStoreLosesNothing(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	p.allWell("lab")
	p.run("exec", "lab/r2", "--", "sh", "-c", "echo precious > /root/work; sync")
	before, disks := p.objects(), p.disks()
	if disks == "" {
		t.Fatal("nothing has a disk: the test would see nothing")
	}
	flows := []*flow{p.flow("lab", "h1", "h2", "10.2.0.2", 0), p.flow("lab", "h3", "h1", "2001:db8:1::2", 0)}
	p.stop()
	p.moved("etcd", "etcd.away")
	out := p.run("up", "-d")
	if !strings.Contains(out, "held") || !strings.Contains(out, "recover --from-nodes") {
		t.Errorf("`up` says nothing of what is held:\n%s", out)
	}
	check := func(when string) {
		t.Helper()
		p.await("both nodes to hold what they have", func() bool {
			s, _ := p.networkStatus("lab")
			return s.Phase == model.PhaseHeld && len(s.Nodes) == 2 && s.Elements == 5
		}, func() string { return p.run("get", "networks", "-o", "wide") })
		if now := p.disks(); now != disks {
			t.Errorf("%s: the disks are\n%s\nbefore\n%s", when, now, disks)
		}
	}
	check("with an empty store")
	if events := p.run("get", "events"); !strings.Contains(events, "NetworkHeld") {
		t.Errorf("no event tells of it:\n%s", events)
	}
	p.kill("agent n1", "agent n2", "manager")
	check("after everything was killed")
	p.run("delete", "--all")
	check("after everything that the store knows was deleted")
	if _, stderr, err := p.try("apply", "-f", file(t, acrossNodes)); err == nil ||
		!strings.Contains(stderr, "unknown to this store") {
		t.Errorf("applied over what is held: %v %s", err, stderr)
	}
	for _, f := range flows {
		f.reached(f.sent.Load() + 200)
	}
	p.stop()
	p.moved("etcd", "etcd.empty")
	p.moved("etcd.away", "etcd")
	p.run("up", "-d")
	p.ready()
	p.allWell("lab")
	p.untouched(before)
	for i, f := range flows {
		if sent, lost, twice := f.stop(); lost > 0 || twice > 0 {
			t.Errorf("flow %d: %d of %d lost, %d twice", i, lost, sent, twice)
		}
	}
	if got := p.run("exec", "lab/r2", "--", "cat", "/root/work"); got != "precious\n" {
		t.Errorf("the element's file is %q", got)
	}
	// Deletions are as immediate as ever.
	p.run("delete", "lab")
	if now := p.disks(); now != "" {
		t.Errorf("after the deletion there are\n%s", now)
	}
}

// TestHeldIsLetGo lets nodes go of what a new store does not know, by name; and an older copy of the store holds what
// was made since.
func TestHeldIsLetGo(t *testing.T) {
	p := up(t, 1)
	p.run("apply", "-f", file(t, "network: one\nhosts: {a: {}, b: {}}\nlinks: [a -- b]\n"))
	p.stop()
	if out, err := exec.Command("cp", "-a", p.dirs.Data+"/etcd", p.dirs.Data+"/etcd.old").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.run("up", "-d")
	p.run("apply", "-f", file(t, "network: two\nhosts: {a: {}, b: {}}\nlinks: [a -- b]\n"))
	p.stop()
	p.moved("etcd", "etcd.new")
	p.moved("etcd.old", "etcd")
	p.run("up", "-d")
	p.await("what the old copy does not know to be held", func() bool {
		s, _ := p.networkStatus("two")
		return s.Phase == model.PhaseHeld && strings.Contains(s.Message, "older")
	}, func() string { return p.run("get", "networks", "-o", "wide") })
	p.run("delete", "two")
	p.ready()
	p.allWell("one")
	if _, found := p.networkStatus("two"); found {
		t.Error("two is still there")
	}
	p.run("apply", "-f", file(t, "network: three\nhosts: {a: {}, b: {}}\nlinks: [a -- b]\n"))
	p.allWell("one", "three")
}

// TestRecoverFromNodes takes networks into an empty store again, from what their nodes were told: nothing that runs is
// touched, no packet is lost, and afterwards everything can be done with them.
func TestRecoverFromNodes(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	const l2 = "second"
	p.run("apply", "-f", file(t,
		"network: second\nowner: alice\nswitches: {s: {}}\nhosts: {a: {}, b: {}, c: {}}\nlinks: [a -- s, b -- s, c "+
			"-- s]\n"))
	p.run("set", "lab/r2", "memory=96MiB")
	p.allWell("lab")
	before, disks := p.objects(), p.disks()
	flows := []*flow{p.flow("lab", "h1", "h2", "10.2.0.2", 0), p.flow("lab", "h3", "h1", "2001:db8:1::2", 0)}
	p.stop()
	p.moved("etcd", "etcd.away")
	p.run("up", "-d")
	p.await("all to be held", func() bool {
		s, _ := p.networkStatus("lab")
		x, _ := p.networkStatus(l2)
		return s.Elements == 5 && x.Phase == model.PhaseHeld
	}, func() string { return p.run("get", "networks", "-o", "wide") })
	if out := p.run("recover", "--from-nodes", "--dry-run"); !strings.Contains(out,
		"lab can be recovered: 5 elements") {
		t.Error(out)
	}
	if s, _ := p.networkStatus("lab"); s.Phase != model.PhaseHeld {
		t.Fatal("a dry run has changed something")
	}
	out := p.run("recover", "--from-nodes")
	if !strings.Contains(out, "lab recovered: 5 elements, 4 links, on n1, n2") || !strings.Contains(out, "expect") {
		t.Error(out)
	}
	p.ready()
	p.allWell("lab", l2)
	p.untouched(before)
	if now := p.disks(); now != disks {
		t.Errorf("the disks are\n%s\nbefore\n%s", now, disks)
	}
	if s, _ := p.networkStatus(l2); s.Owner != "alice" {
		t.Errorf("%s is %q's", l2, s.Owner)
	}
	p.kill("manager", "agent n1")
	p.ready()
	p.allWell("lab", l2)
	p.untouched(before)
	for i, f := range flows {
		if sent, lost, twice := f.stop(); lost > 0 || twice > 0 {
			t.Errorf("flow %d: %d of %d lost, %d twice", i, lost, sent, twice)
		}
	}
	p.run("apply", "-f", file(t, p.run("save", "lab")))
	p.allWell("lab")
	p.run("delete", "lab", l2)
	if now := p.disks(); now != "" {
		t.Errorf("after the deletion there are\n%s", now)
	}
}

// TestWrongClusterRemovesNothing gives a wrong --etcd, which is refused while networks stand on the right one; and has
// another cluster answer at the right address: what it does not know is held. With the right one back all is as before.
func TestWrongClusterRemovesNothing(t *testing.T) {
	right, wrong := t.TempDir(), t.TempDir()
	url, end := startEtcd(t, 23790, right)
	elsewhere, endElsewhere := startEtcd(t, 23792, wrong)
	p := newPlatform(t)
	p.run("up", "--nodes", "1", "--etcd", url, "-d")
	p.run("apply", "-f", file(t,
		"network: lab\nrouters: {r: {software: bird}}\nhosts: [h]\nlinks: [r -- h]\nexpect: [h reaches r]\n"))
	p.ready()
	p.allWell("lab")
	before, disks := p.objects(), p.disks()
	if disks == "" {
		t.Fatal("nothing has a disk: the test would see nothing")
	}
	p.stop()
	if _, stderr, err := p.try("up", "-d", "--etcd", elsewhere); err == nil ||
		!strings.Contains(stderr, "another store would be used") {
		t.Errorf("`up` with another cluster: %v\n%s", err, stderr)
	}
	end()
	endElsewhere()
	_, end = startEtcd(t, 23790, wrong)
	if out := p.run("up", "-d"); !strings.Contains(out, "held") {
		t.Errorf("`up` with another cluster at the same address says nothing of what is held:\n%s", out)
	}
	for range 2 {
		p.await("what the other cluster does not know to be held", func() bool {
			s, _ := p.networkStatus("lab")
			return s.Phase == model.PhaseHeld
		}, func() string { return p.run("get", "networks", "-o", "wide") })
		if now := p.disks(); now != disks {
			t.Errorf("the disks are\n%s\nbefore\n%s", now, disks)
		}
		p.await("the agent to run", func() bool { return p.processes()["agent n1"] != 0 },
			func() string { return fmt.Sprint(p.processes()) })
		p.kill("agent n1")
	}
	p.stop()
	end()
	_, end = startEtcd(t, 23790, right)
	p.run("up", "-d")
	p.ready()
	p.allWell("lab")
	p.untouched(before)
	if now := p.disks(); now != disks {
		t.Errorf("in the end the disks are\n%s\nbefore\n%s", now, disks)
	}
	p.run("down", "--purge")
	end()
}

// startEtcd starts an etcd of one member on the sandbox's loopback, at this port and the next.
func startEtcd(t *testing.T, port int, dir string) (url string, end func()) {
	t.Helper()
	url, peer := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", port+1)
	c := exec.Command("etcd", "--data-dir", dir, "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	c.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // it wants to be told there, and is not elsewhere
	if err := c.Start(); err != nil {
		t.Fatalf("start etcd (Debian's package etcd-server): %v", err)
	}
	end = sync.OnceFunc(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		c.Wait()         //nolint:errcheck // as it was killed
	})
	t.Cleanup(end)
	return url, end
}
