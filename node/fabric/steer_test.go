package fabric

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/forward"
)

// TestSteering steers an element to tables of its own and back, and finds it so after a restart.
func TestSteering(t *testing.T) {
	t.Parallel()
	n, a, _ := twoElements(t)
	ctx := context.Background()
	b := portID("net/b:eth0")
	numbers, err := n.fabric.Place(b.ID).Ports([]string{b.Interface, "later"})
	if err != nil || numbers[b.Interface] != n.fabric.slots[b] || numbers["later"] == 0 {
		t.Fatalf("ports are %v: %v", numbers, err)
	}
	flags := func() uint32 { return atomic.LoadUint32(&n.fabric.pipe.Ports[numbers[b.Interface]].Flags) }
	n.state.Steering = map[model.ID]forward.Steering{b.ID: {Tables: 1}}
	if r := n.fabric.Apply(ctx, n.state); r.Failed[model.PortID{ID: b.ID}] == nil {
		t.Errorf("an element was steered to tables that are not its own: %+v", r)
	}
	n.state.Steering = nil
	router, err := n.fabric.Place(b.ID).Tables()
	if err != nil || router < 1 {
		t.Fatalf("tables %d: %v", router, err)
	}
	if again, err := n.fabric.Place(b.ID).Tables(); err != nil || again != router {
		t.Errorf("tables %d, and then %d: %v", router, again, err)
	}
	n.apply()
	if flags() != 0 {
		t.Errorf("flags %#x before anything was steered", flags())
	}
	if err := n.fabric.Place(b.ID).Restrict(map[string]forward.Off{"eth0": {IPv6: true}}); err != nil || flags() != 0 {
		t.Errorf("flags %#x although nothing is steered there: %v", flags(), err)
	}
	want := forward.Steering{Owner: "here", Tables: router}
	n.state.Steering = map[model.ID]forward.Steering{b.ID: want}
	if changes := n.apply(); len(changes) > 0 {
		t.Errorf("steering is told as an alteration: %v", changes)
	}
	a.ping(t, "10.0.0.2") // no table: the guest gets it
	check := func() {
		t.Helper()
		if f := flags(); pipeline.RouterOf(f) != router || f&(pipeline.OffIPv4|pipeline.OffIPv6) != pipeline.OffIPv6 {
			t.Errorf("flags %#x", f)
		}
		if got := n.fabric.Steered()[b.ID]; !got.Equal(want) {
			t.Errorf("steered %+v, not %+v", got, want)
		}
		all, err := n.fabric.Forwarded(ctx)
		if err != nil || all[b.ID].Punted["no route"] == 0 || all[b.ID].Packets != 0 {
			t.Errorf("forwarded %+v: %v", all, err)
		}
	}
	check()
	n.state.Packets = map[string]int{"net": 100_000}
	n.apply()
	check()
	if err := n.fabric.Place(b.ID).Restrict(nil); err != nil || flags()&pipeline.Metered == 0 ||
		flags()&pipeline.OffIPv6 != 0 {
		t.Errorf("flags %#x: %v", flags(), err)
	}
	if err := n.fabric.Place(b.ID).Restrict(map[string]forward.Off{"eth0": {IPv6: true}}); err != nil ||
		flags()&pipeline.Metered == 0 {
		t.Errorf("restricted, its packets are no longer limited: flags %#x, %v", flags(), err)
	}
	check()
	n.state.Packets, n.state.Steering = nil, nil // who is not named stays as it is
	n.apply()
	check()
	want.Owner = "" // which nothing tells of
	n.restart()
	check()
	atomic.StoreUint32(&n.fabric.pipe.Routers[router].On, 0)
	atomic.StoreUint32(&n.fabric.pipe.Ports[numbers[b.Interface]].Flags, 0)
	if changes := n.apply(); !slices.ContainsFunc(changes,
		func(c change.Change) bool { return c == change.SteeringRestored.Of(b.ID) }) {
		t.Errorf("what was altered is not told: %v", changes)
	}
	check()
	if again, err := n.fabric.Place(b.ID).Tables(); err != nil || again != router {
		t.Errorf("after a restart tables %d: %v", again, err)
	}
	n.state.Steering = map[model.ID]forward.Steering{b.ID: {}}
	n.apply()
	if s, kept := n.fabric.Steered()[b.ID]; flags() != 0 || n.fabric.pipe.Routers[router].On != 0 ||
		!kept || s.Tables != 0 {
		t.Errorf("flags %#x, steered %+v, kept %v", flags(), s, kept)
	}
	n.state.Steering[b.ID] = want
	n.apply()
	check()
	n.state.Steering = nil
	if err := n.fabric.Place(b.ID).Leave(); err != nil {
		t.Fatal(err)
	}
	if flags() != 0 || n.fabric.pipe.Routers[router].On != 0 || len(n.fabric.Steered()) != 0 {
		t.Errorf("flags %#x, router %+v, steered %v", flags(), n.fabric.pipe.Routers[router], n.fabric.Steered())
	}
	a.ping(t, "10.0.0.2")
	if again, err := n.fabric.Place(portID("net/c:eth0").ID).Tables(); err != nil || again == router {
		t.Errorf("another router has tables %d at once, which a run may still look at: %v", again, err)
	}
	n.fabric.freed[router] = time.Now().Add(-numberRest)
	if again, err := n.fabric.Place(portID("net/d:eth0").ID).Tables(); err != nil || again != router {
		t.Errorf("another router has tables %d, and %d are free: %v", again, router, err)
	}
	n.restart() // without a port that tells of it the number is free
	if len(n.fabric.Steered()) != 0 || n.fabric.pipe.Routers[router].Name != [16]uint8{} {
		t.Errorf("steered %v", n.fabric.Steered())
	}
}

// TestCompanions hands packets for an element to a companion, finds it so after a restart, and puts right what is
// altered.
func TestCompanions(t *testing.T) {
	t.Parallel()
	n, a, b := twoElements(t)
	port := portID("net/b:eth0")
	router, err := n.fabric.Place(port.ID).Tables()
	if err != nil {
		t.Fatal(err)
	}
	n.apply()
	slot := n.fabric.slots[port]
	word := func() (now, former uint32) { return companionsOf(atomic.LoadUint64(&n.fabric.pipe.Companions[slot])) }
	steer := func(devices map[string]int) {
		t.Helper()
		if err := n.fabric.Place(port.ID).Join(devices); err != nil {
			t.Fatal(err)
		}
		n.state.Steering = map[model.ID]forward.Steering{port.ID: {Tables: router, Devices: devices}}
		if changes := n.apply(); len(changes) > 0 {
			t.Errorf("steering is told as an alteration: %v", changes)
		}
	}
	if err := n.fabric.Place(port.ID).Join(map[string]int{"eth9": 1}); err == nil {
		t.Error("an interface that is not there got a companion")
	}
	var devices []int
	for i := range 2 {
		index, _ := n.pair(b, fmt.Sprintf("pair%d", i))
		devices = append(devices, index)
	}
	last := n.dirs.PortDevice(portID("net/b:pair1"))
	steer(map[string]int{"eth0": devices[0]})
	check := func(when string, now, former int, on uint32) {
		t.Helper()
		if n1, f1 := word(); int(n1) != now || int(f1) != former || n.fabric.pipe.Routers[router].On != on {
			t.Errorf("%s: companions %d and %d, not %d and %d; steering %d", when, n1, f1, now, former,
				n.fabric.pipe.Routers[router].On)
		}
	}
	check("steered", devices[0], 0, pipeline.ToCompanion)
	second := map[string]int{"eth0": devices[1]}
	steer(second)
	check("steered to another", devices[1], devices[0], pipeline.ToCompanion)
	n.restart()
	if got := n.fabric.Steered()[port.ID]; !reflect.DeepEqual(got.Devices, second) {
		t.Errorf("after a restart steered %+v", got)
	}
	a.ping(t, "10.0.0.2") // no table: the guest gets it

	// What is altered, and what is gone.
	n.must("tc", "qdisc", "del", "dev", last, "clsact")
	atomic.StoreUint64(&n.fabric.pipe.Companions[slot], 0)
	if err := n.fabric.pipe.CompanionDevices.Delete(uint32(devices[1])); err != nil {
		t.Fatal(err)
	}
	told := n.apply()
	for _, want := range []change.Kind{change.CompanionRestored, change.CompanionsJoined} {
		if !slices.ContainsFunc(told, func(c change.Change) bool { return c.Kind == want }) {
			t.Errorf("of %v nothing is told: %v", want, told)
		}
	}
	check("restored", devices[1], 0, pipeline.ToCompanion)
	var found uint32
	if err := n.fabric.pipe.CompanionDevices.Lookup(uint32(devices[1]), &found); err != nil || found != slot {
		t.Errorf("the device stands for slot %d: %v", found, err)
	}
	if out := n.must("tc", "filter", "show", "dev", last, "ingress"); !strings.Contains(out, companionName) {
		t.Errorf("the filters are\n%s", out)
	}
	if changes := n.apply(); len(changes) != 0 {
		t.Errorf("an apply that has nothing to do tells %v", changes)
	}
	n.state.Steering[port.ID] = forward.Steering{Tables: router}
	n.apply()
	check("forwarded by the programs", 0, devices[1], pipeline.ToPipeline)
	n.must("ip", "link", "del", last)
	n.apply()
	check("the device gone", 0, 0, pipeline.ToPipeline)
	if err := n.fabric.pipe.CompanionDevices.Lookup(uint32(devices[1]), &found); err == nil {
		t.Error("a device that is gone stands for a port")
	}
}
