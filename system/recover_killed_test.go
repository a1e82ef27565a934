package system

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestRecoverKilled kills the manager while it takes networks in from the nodes: afterwards it has all of them or none,
// those that it has not are held as before, and a further `recover` takes them. Nothing that runs is touched.
func TestRecoverKilled(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	p.run("apply", "-f", file(t,
		"network: second\nowner: alice\nswitches: {s: {}}\nhosts: {a: {}, b: {}}\nlinks: [a -- s, b -- s]\n"))
	p.allWell("lab", "second")
	before := p.objects()
	random := rand.New(rand.NewPCG(3, 4))
	whole := 300 * time.Millisecond
	var outcomes []string
	for round := range 4 {
		p.stop()
		if err := os.RemoveAll(filepath.Join(p.dirs.Data, "etcd")); err != nil {
			t.Fatal(err)
		}
		p.run("up", "-d")
		held := func(name string) bool { s, _ := p.networkStatus(name); return s.Phase == model.PhaseHeld }
		p.await("all to be held", func() bool {
			s, _ := p.networkStatus("lab")
			return held("lab") && held("second") && s.Elements == 5
		}, func() string { return p.run("get", "networks", "-o", "wide") })
		c := p.command("recover", "--from-nodes")
		began := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if round > 0 { // the first is not disturbed, and tells how long it takes
			time.Sleep(time.Duration(random.Int64N(int64(whole))))
			p.kill("manager")
		}
		err := c.Wait()
		if round == 0 {
			if whole = time.Since(began); err != nil {
				t.Fatal(err)
			}
		}
		known := func() (lab, second bool) {
			// A network that the store knows can be shown whole; one that is held cannot.
			_, _, one := p.try("save", "lab")
			_, _, two := p.try("save", "second")
			return one == nil, two == nil
		}
		p.await("the manager to be back, and to have heard the nodes", func() bool {
			lab, second := known()
			return (lab || held("lab")) && (second || held("second"))
		}, func() string { return p.run("get", "networks", "-o", "wide") })
		lab, second := known()
		if lab != second {
			t.Errorf("round %d: one of two networks was taken in: lab %v, second %v", round, lab, second)
		}
		outcomes = append(outcomes, map[bool]string{true: "all", false: "none"}[lab])
		if !lab {
			p.await("the rest to be taken in", func() bool {
				out, _, err := p.try("recover", "--from-nodes")
				return err == nil && strings.Contains(out, "lab recovered: 5 elements")
			}, func() string { return p.run("get", "networks", "-o", "wide") })
		}
		p.ready()
		p.allWell("lab", "second")
		p.untouched(before)
	}
	t.Logf("killed within %v of the command: %s", whole, strings.Join(outcomes[1:], ", "))
}
