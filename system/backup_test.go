package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

const pairOf = "network: %s\nhosts: {a: {}, b: {}}\nlinks: [a -- b]\n"

// TestDamagedStoreAndTheWayBack spoils the store: the start says what is wrong, which backup is good, and how to put it
// back; that done, everything is as it was when the backup was made, what came later is held, and no packet was lost.
func TestDamagedStoreAndTheWayBack(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	p.run("quota", "owner/alice", "memory=2GiB")
	p.allWell("lab")
	before, disks := p.objects(), p.disks()
	flows := []*flow{p.flow("lab", "h1", "h2", "10.2.0.2", 0), p.flow("lab", "h3", "h1", "2001:db8:1::2", 0)}
	backups := filepath.Join(p.dirs.Data, "backups")
	if err := os.MkdirAll(backups, 0o700); err != nil {
		t.Fatal(err)
	}
	good, bad := filepath.Join(backups, "auto-20261101T120000Z.backup"),
		filepath.Join(backups, "auto-20261102T120000Z.backup")
	if out := p.run("backup", good); !strings.Contains(out, "1 networks") || !strings.Contains(out, "verified") {
		t.Error(out)
	}
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 8
	if err := os.WriteFile(bad, b, 0o600); err != nil { // newer, and of no use
		t.Fatal(err)
	}
	for _, old := range mustGlob(t, filepath.Join(backups, "auto-*")) {
		if old != good && old != bad {
			os.Remove(old) // made by itself
		}
	}
	p.run("apply", "-f", file(t, fmt.Sprintf(pairOf, "later")))
	random := rand.New(rand.NewPCG(5, 6))
	for _, spoil := range []string{"wal", "db cut", "db zeroed", "no wal"} {
		p.stop()
		store := filepath.Join(p.dirs.Data, "etcd", "member")
		path := filepath.Join(store, "snap", "db")
		if spoil == "wal" {
			path = mustGlob(t, filepath.Join(store, "wal", "*.wal"))[0]
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch spoil {
		case "wal":
			b[100+random.IntN(400)] ^= 1 << random.IntN(8)
		case "db cut":
			b = b[:4096*2]
		case "db zeroed":
			clear(b)
		case "no wal":
			os.RemoveAll(filepath.Join(store, "wal"))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, err := p.try("up", "-d")
		for _, words := range []string{"its store is damaged", "What runs goes on running", "restore " + good,
			"recover --from-nodes"} {
			if err == nil || !strings.Contains(stderr, words) {
				t.Fatalf("%s: up: %v, which does not say %q:\n%s", spoil, err, words, stderr)
			}
		}
		t.Logf("%s: %s", spoil, strings.SplitN(stderr, "\n", 2)[0])
		if _, stderr, err := p.try("restore", bad); err == nil || !strings.Contains(stderr, "cannot be used") {
			t.Errorf("a damaged backup: %v %s", err, stderr)
		}
		if out := p.run("restore", good); !strings.Contains(out, "The store before cannot be read") {
			t.Errorf("restore does not tell that it cannot compare the stores:\n%s", out)
		}
		p.run("up", "-d")
		p.await("what the backup does not know to be held", func() bool {
			s, _ := p.networkStatus("later")
			return s.Phase == model.PhaseHeld && strings.Contains(s.Message, "backup")
		}, func() string { return p.run("get", "networks", "-o", "wide") })
		if spoil != "no wal" {
			p.run("recover", "--from-nodes", "later")
			p.ready()
			p.allWell("lab", "later")
		}
	}
	p.run("delete", "later", "--now")
	p.ready()
	p.allWell("lab")
	p.untouched(before)
	if now := p.disks(); now != disks {
		t.Errorf("the disks are\n%s\nbefore\n%s", now, disks)
	}
	if out := p.run("quota"); !strings.Contains(out, "alice") {
		t.Errorf("the quota is gone:\n%s", out)
	}
	if kept := mustGlob(t, filepath.Join(p.dirs.Data, "etcd.aside-*")); len(kept) != 4 {
		t.Errorf("of four stores that were replaced %d are kept: %v", len(kept), kept)
	}
	if sent, lost, twice := flows[0].stop(); lost > 0 || twice > 0 {
		t.Errorf("flow 0: %d of %d lost, %d twice", lost, sent, twice)
	}
	p.run("quota", "owner/alice", "memory=1GiB") // what a sound store has is told
	p.run("quarantine", "lab/h2")
	out := p.run("restore", good)
	for _, words := range []string{"Quotas that are as they were: owner alice (now memory:", "no longer are: lab/h2."} {
		if !strings.Contains(out, words) {
			t.Errorf("restore does not say %q:\n%s", words, out)
		}
	}
	for i, f := range flows[1:] { // the first one ended before h2 was cut off
		if sent, lost, twice := f.stop(); lost > 0 || twice > 0 {
			t.Errorf("flow %d: %d of %d lost, %d twice", i, lost, sent, twice)
		}
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRestoreKilled kills `restore` at many moments: either store is in its place then, whole, and the one before is
// never lost.
func TestRestoreKilled(t *testing.T) {
	p := up(t, 1)
	p.run("apply", "-f", file(t, fmt.Sprintf(pairOf, "one")))
	path := filepath.Join(t.TempDir(), "b")
	p.run("backup", path)
	p.run("apply", "-f", file(t, fmt.Sprintf(pairOf, "two")))
	p.stop()
	began := time.Now()
	p.run("restore", path)
	whole := time.Since(began)
	random := rand.New(rand.NewPCG(7, 8))
	killed := 0
	for range 8 {
		c := p.command("restore", path)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(whole))))
		if c.Process.Signal(syscall.SIGKILL) == nil {
			killed++
		}
		c.Wait() //nolint:errcheck // it was killed
		if _, err := os.Stat(filepath.Join(p.dirs.Data, "etcd", "member")); err != nil {
			t.Fatal("there is no store after a restore that was killed")
		}
	}
	if killed < 4 {
		t.Errorf("only %d of 8 were killed before they had ended", killed)
	}
	p.run("up", "-d")
	p.await("both networks to be there", func() bool {
		_, one := p.networkStatus("one")
		two, found := p.networkStatus("two")
		return one && found && two.Phase == model.PhaseHeld
	}, func() string { return p.run("get", "networks", "-o", "wide") })
	p.run("delete", "two")
	p.ready()
	p.allWell("one")
}

// TestTrashOfADeletedNetwork gets a deleted network's files back: its file is applied again, the element stopped, its
// disk taken out of the trash. What is deleted with --now leaves nothing.
// TestTrashOfAMovedElement: an element moves without its files, but only where that is allowed, and even then they can
// be had again.
func TestTrashOfAMovedElement(t *testing.T) {
	p := up(t, 2)
	on := func(node string) string {
		return file(t, "network: lab\nhosts:\n  h: {node: "+node+"}\n  k: {node: n1}\nlinks: [h -- k]\n")
	}
	p.run("apply", "-f", on("n1"))
	p.run("exec", "lab/h", "--", "sh", "-c", "echo precious > /root/work")
	if out := p.run("plan", "-f", on("n2")); !strings.Contains(out, "note: h (to n2) would move from node n1 without") {
		t.Errorf("plan says\n%s", out)
	}
	if _, stderr, err := p.try("apply", "-f", on("n2")); err == nil || !strings.Contains(stderr, "only --lose-files allows") {
		t.Errorf("moved: %v %s", err, stderr)
	}
	if got := p.run("exec", "lab/h", "--", "cat", "/root/work"); got != "precious\n" {
		t.Errorf("after a refusal the file says %q", got)
	}
	p.run("apply", "-f", on("n2"), "--lose-files")
	if out, _, err := p.try("exec", "lab/h", "--", "cat", "/root/work"); err == nil {
		t.Errorf("the element has moved, and has a file: %q", out)
	}
	item := ""
	for _, word := range strings.Fields(p.run("trash", "list")) {
		if strings.HasPrefix(word, "lab/h@") {
			item = word
		}
	}
	p.run("apply", "-f", on("n1"), "--lose-files")
	p.run("stop", "lab/h")
	p.run("trash", "restore", item)
	p.run("start", "lab/h")
	if got := p.run("exec", "lab/h", "--", "cat", "/root/work"); got != "precious\n" {
		t.Errorf("back from the trash the file says %q", got)
	}
}

func TestTrashOfADeletedNetwork(t *testing.T) {
	p := up(t, 1)
	net := file(t, "network: lab\nrouters:\n  r: {software: bird, ospf: {}}\nhosts: {h: {}}\nlinks: [r -- h]\n")
	p.run("apply", "-f", net)
	p.run("exec", "lab/r", "--", "sh", "-c", "echo precious > /root/work")
	p.run("delete", "lab")
	list := strings.Fields(p.run("trash", "list", "--no-headers"))
	if len(list) == 0 || !strings.HasPrefix(list[0], "lab/r@") {
		t.Fatalf("the trash has %v", list)
	}
	p.kill("agent n1")
	p.await("the node to tell of its trash again",
		func() bool { out, _, _ := p.try("trash", "list"); return strings.Contains(out, list[0]) },
		func() string { return p.run("trash", "list") })
	if _, stderr, err := p.try("trash", "restore", list[0]); err == nil ||
		!strings.Contains(stderr, "apply its network again") {
		t.Errorf("restored to nobody: %v %s", err, stderr)
	}
	p.run("apply", "-f", net)
	p.run("stop", "lab/r")
	p.run("trash", "restore", list[0])
	p.run("start", "lab/r")
	if got := p.run("exec", "lab/r", "--", "cat", "/root/work"); got != "precious\n" {
		t.Errorf("the file says %q", got)
	}
	p.run("trash", "empty", "--all")
	p.run("delete", "lab", "--now")
	if out := p.run("trash", "list"); !strings.Contains(out, "the trash is empty") {
		t.Errorf("delete --now has left\n%s", out)
	}
	if now := p.disks(); now != "" {
		t.Errorf("there is left\n%s", now)
	}
}
