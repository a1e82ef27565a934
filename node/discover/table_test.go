package discover

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// ear is a table that listens on one device, to n2 and n3.
type ear struct {
	*testing.T
	*table
	now     time.Time
	refused []string
}

func listening(t *testing.T) *ear {
	e := &ear{T: t, now: began}
	e.table = newTable("n1", func(r refusal) { e.refused = append(e.refused, r.node+": "+r.why) })
	e.tag, e.peers = ourTag, map[string]bool{"n2": true, "n3": true}
	e.listen([]string{"d", "e"})
	return e
}

// keys are those that the manager has.
var keys = map[string][]byte{"n2": public(2), "n3": public(3)}

// hear has a frame come, and keys be asked for if they are missing.
func (e *ear) hear(b []byte) (fresh bool) {
	e.Helper()
	fresh = e.take("d", b, e.now)
	if asked := e.unknown(); len(asked) > 0 {
		fresh = e.learn(asked, keys, e.now) || fresh
	}
	return fresh
}

// hears compares who counts, as "node/port …", and what was refused since the last time.
func (e *ear) hears(want string, refused ...string) {
	e.Helper()
	e.expire(e.now)
	nodes, switches := e.heard("d", e.now)
	var all []string
	for _, n := range nodes {
		all = append(all, n.Node+"/"+n.Port)
	}
	for _, s := range switches {
		all = append(all, s.Name+"/"+s.Port)
	}
	if got := strings.Join(all, " "); got != want {
		e.Errorf("it hears %q, and not %q", got, want)
	}
	if len(refused) != len(e.refused) {
		e.Errorf("refused was %q", e.refused)
	} else {
		for i := range refused {
			if !strings.Contains(e.refused[i], refused[i]) {
				e.Errorf("refused was %q, and not for %q", e.refused[i], refused[i])
			}
		}
	}
	e.refused = nil
}

func TestNodesAreHeardUntilTheyAreSilent(t *testing.T) {
	e := listening(t)
	if !e.hear(announcement("n2", "to-n1", 1, e.now, 2)) {
		t.Error("who is heard for the first time is not new")
	}
	e.hears("n2/to-n1")
	for i := range uint64(4) { // a machine that is so busy that three of four are lost
		e.now = e.now.Add(2 * time.Minute)
		if e.hear(announcement("n2", "to-n1", 2+i, e.now, 2)) {
			t.Error("who goes on is new")
		}
		e.hears("n2/to-n1")
	}
	e.now = e.now.Add(timeToLive)
	e.hears("")
}

// TestOnlyTheNodeItselfIsBelieved has everybody speak as n2 who is not.
func TestOnlyTheNodeItselfIsBelieved(t *testing.T) {
	e := listening(t)
	good := announcement("n2", "to-n1", 5, e.now, 2)
	unsigned := ofSwitch("n2")
	e.hear(unsigned)
	e.hears("", "n2: it is not signed")
	e.hear(announcement("n2", "to-n1", 5, e.now, 3)) // n3, which has a key of its own
	e.hears("", "n2: it is not signed with the node's key")
	other := announcement("n2", "to-n9", 5, e.now, 2)
	e.hear(bytes.Replace(other, []byte("to-n9"), []byte("to-n1"), 1))
	e.hears("", "n2: it is not signed with the node's key")
	e.hear(good)
	e.hears("n2/to-n1")
	e.hear(good) // played again
	e.hears("n2/to-n1", "n2: it comes a second time")
	e.hear(announcement("n2", "to-n1", 4, e.now, 2)) // an older one
	e.hears("n2/to-n1", "n2: it comes a second time")
	e.hear(announcement("n2", "to-n1", 6, e.now, 3))
	e.hears("n2/to-n1", "n2: it is not signed with the node's key")
	e.take("e", announcement("n2", "to-n1", 7, e.now.Add(-3*time.Minute), 2), e.now) // recorded, on another wire
	e.hears("n2/to-n1", "n2: it says that it is of 2026-11-27 02:57:00")
	f := frame{source: mac, chassis: "n2", port: "to-n1", ttl: 121, name: "n2"}
	e.hear(f.sign(seal{theirTag, 8, e.now}, key(2)))
	e.hear(announcement("n7", "to-n1", 1, e.now, 7)) // the substrate has no n7
	e.hear(announcement("n1", "to-n2", 1, e.now, 1)) // its own
	e.hears("n2/to-n1")
	e.hear(append(good[:len(good)-20], 0, 0))
	e.hears("n2/to-n1", "ends too early")
}

// TestNewLivesHaveNewKeys: what was recorded of an earlier life of an agent is worth nothing.
func TestNewLivesHaveNewKeys(t *testing.T) {
	e := listening(t)
	e.hear(announcement("n2", "to-n1", 900, e.now, 2))
	defer func() { keys["n2"] = public(2) }()
	keys["n2"] = public(22)
	if !e.hear(announcement("n2", "to-n1", 1, e.now, 22)) {
		t.Error("a new life is not new")
	}
	e.hears("n2/to-n1")
	e.hear(announcement("n2", "to-n1", 901, e.now, 2))
	e.hears("n2/to-n1", "not signed with the node's key")
}

// TestClocksMayBeSet: who is heard already may be of any time, since its frames are counted.
func TestClocksMayBeSet(t *testing.T) {
	e := listening(t)
	e.hear(announcement("n2", "to-n1", 1, e.now, 2))
	e.hear(announcement("n2", "to-n1", 2, e.now.Add(-time.Hour), 2))
	e.hears("n2/to-n1")
}

// TestFlappingIsDamped: who comes and goes counts ever later, and who stays quiet is forgiven.
func TestFlappingIsDamped(t *testing.T) {
	e := listening(t)
	sequence := uint64(0)
	hear := func() {
		sequence++
		e.hear(announcement("n2", "to-n1", sequence, e.now, 2))
	}
	hear()
	e.hears("n2/to-n1")
	for i := range 8 {
		e.cut("d", e.now)
		e.hears("")
		hear()
		hold := min(time.Second<<i, time.Minute)
		e.now = e.now.Add(hold - time.Millisecond)
		e.hears("")
		if next := e.expire(e.now); next.After(e.now.Add(time.Second)) {
			t.Errorf("after %d losses nobody looks before %v", i+1, next.Sub(e.now))
		}
		e.now = e.now.Add(time.Millisecond)
		e.hears("n2/to-n1")
	}
	for range 6 {
		e.now = e.now.Add(time.Minute)
		hear()
	}
	e.cut("d", e.now)
	hear()
	e.hears("") // the last loss was long ago: this one is the first
	e.now = e.now.Add(firstHold)
	e.hears("n2/to-n1")
}

// TestHostileWiresAreBounded has thousands speak on one device.
func TestHostileWiresAreBounded(t *testing.T) {
	e := listening(t)
	for i := range 500 {
		e.hear(ofSwitch(fmt.Sprintf("s%d", i)))
		e.take("d", announcement("n2", fmt.Sprintf("p%d", i), uint64(i+1), e.now, 2), e.now) // a joined node that lies
		e.take("d", announcement("n3", fmt.Sprintf("p%d", i), 1, e.now, 9), e.now)
		e.learn(e.unknown(), keys, e.now)
	}
	nodes, switches := e.heard("d", e.now)
	if len(nodes) > model.MaxHeardNodes || len(switches) > model.MaxHeardSwitches || len(e.claims) > maxClaims {
		t.Errorf("it remembers %d nodes, %d switches, %d claims", len(nodes), len(switches), len(e.claims))
	}
	// What was said falls silent, and makes room.
	e.now = e.now.Add(10 * time.Minute)
	e.expire(e.now)
	e.now = e.now.Add(10 * time.Minute)
	e.expire(e.now)
	if len(e.wires["d"].all()) != 0 {
		t.Errorf("%d are still remembered", len(e.wires["d"].all()))
	}
}

func TestSwitchesSayGoodbye(t *testing.T) {
	e := listening(t)
	b := ofSwitch("core1")
	e.hear(b)
	e.hears("core1/Gi1/0/7")
	e.hear(bytes.Replace(b, []byte{tlvTTL << 1, 2, 0, 120}, []byte{tlvTTL << 1, 2, 0, 0}, 1))
	e.hears("")
	e.listen([]string{"e"})
	e.hear(b) // by a device that is no longer the underlay's
	e.hears("")
}

// TestForgersTakeNoKeysAway: anybody can have a key be asked for, and the manager may have none at that time.
func TestForgersTakeNoKeysAway(t *testing.T) {
	e := listening(t)
	e.hear(announcement("n2", "to-n1", 1, e.now, 2))
	e.take("d", announcement("n2", "to-n1", 2, e.now, 9), e.now)
	e.learn(e.unknown(), nil, e.now)
	if e.take("d", announcement("n2", "to-n1", 3, e.now, 2), e.now); len(e.unknown()) > 0 {
		t.Errorf("the keys of %v are no longer known", e.unknown())
	}
	e.hears("n2/to-n1")
}

// TestForgedSwitchesGiveWay: whatever was said before, a switch that speaks now has its place.
func TestForgedSwitchesGiveWay(t *testing.T) {
	e := listening(t)
	for i := range 100 {
		e.now = e.now.Add(time.Second)
		b := ofSwitch(fmt.Sprintf("s%d", i))
		e.hear(bytes.Replace(b, []byte{tlvTTL << 1, 2, 0, 120}, []byte{tlvTTL << 1, 2, 255, 255}, 1))
	}
	e.hear(ofSwitch("core1"))
	e.now = e.now.Add(time.Second)
	e.hear(ofSwitch("forged")) // which takes the place of an older one
	_, switches := e.heard("d", e.now)
	if !slices.ContainsFunc(switches, func(s model.HeardSwitch) bool { return s.Name == "core1" }) {
		t.Errorf("it hears %v", switches)
	}
	e.now = e.now.Add(longestLife)
	e.hears("")
}

// TestOthersMakeNoReports: who sends bad frames, or makes and removes devices, has the manager told seldom.
func TestOthersMakeNoReports(t *testing.T) {
	d := &Discoverer{told: &model.Discovery{Node: "n1"}, toldAt: began}
	is := model.Discovery{Node: "n1", Refused: 7, Interfaces: []model.NodeInterface{{Name: "veth7"}}}
	if d.news(is, began.Add(time.Second)) {
		t.Error("it is told at once")
	}
	if !d.news(is, began.Add(announceEvery)) {
		t.Error("it is never told")
	}
	is.Wires = []model.Wire{{Device: "d"}}
	if !d.news(is, began.Add(time.Second)) {
		t.Error("a device of the underlay is not told at once")
	}
}
