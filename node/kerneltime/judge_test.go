package kerneltime

import (
	"slices"
	"testing"
	"time"
)

// TestJudge: who forwards what comes to him does no wrong, however much it is; who makes the kernel work by himself
// does.
func TestJudge(t *testing.T) {
	port := func(received, bytes uint64) Device {
		return Device{Name: "eth0", Index: 2, Up: true, Port: true, Packets: 2 * received,
			Received: received, Bytes: bytes}
	}
	bridge := func(packets uint64) Device { return Device{Name: "b1", Index: 3, Up: true, Packets: packets} }
	for _, c := range []struct {
		name       string
		element    Element
		cores      map[int]float64
		before     []Device
		after      []Device // a second later
		devices    []string
		guilty     bool
		once       bool    // the first look found nothing
		cpu, least float64 // that are told
		origins    float64 // packets a second that began in its network
		entered    uint64  // came into it from elsewhere
		unknown    bool
		round      bool
		pace       int // at least, and no more than half as many again
	}{
		{name: "forwards 100,000 packets a second that processes sent", origins: 60_000, cores: map[int]float64{2: 3},
			before: []Device{port(0, 0)}, after: []Device{port(100_000, 6_000_000)}},
		{name: "forwards 100,000 that came from elsewhere", entered: 60_000, cores: map[int]float64{2: 3},
			before: []Device{port(0, 0)},
			after:  []Device{port(100_000, 6_000_000)}},
		{name: "forwards 100,000, and too many elements have links elsewhere", unknown: true,
			cores:  map[int]float64{2: 3},
			before: []Device{port(0, 0)}, after: []Device{port(100_000, 6_000_000)}},
		{name: "hands 100,000 round that nobody sends", cores: map[int]float64{2: 3}, before: []Device{port(0, 0)},
			after: []Device{port(100_000, 6_000_000)}, guilty: true, round: true, least: 3, pace: 26_000},
		{name: "hands 100,000 round, and sends 1,000", origins: 1000, cores: map[int]float64{2: 3},
			before: []Device{port(0, 0)},
			after:  []Device{port(100_000, 6_000_000)}, guilty: true, round: true, least: 2.9, pace: 26_000},
		{name: "takes 100,000 that others hand round", cores: map[int]float64{2: 3}, before: []Device{port(0, 0)},
			after: []Device{{Name: "eth0", Index: 2, Up: true, Port: true, Packets: 100_000, Received: 100_000,
				Bytes: 6_000_000}}},
		{name: "forwards 10,000 large segments by a bridge", origins: 10_000, cores: map[int]float64{2: .4, 3: .9},
			before: []Device{port(0, 0), bridge(0)},
			after:  []Device{port(10_000, 655_360_000), bridge(20_000)}},
		{name: "a loop, and 1,000 packets a second", origins: 1000, cores: map[int]float64{2: .1, 3: 2},
			before: []Device{port(0, 0), bridge(0)},
			after:  []Device{port(1000, 64_000), bridge(4_000_000)}, guilty: true, devices: []string{"b1"}, least: 2},
		{name: "a loop that is fed to the port as well", cores: map[int]float64{2: 1, 3: 1.5},
			before: []Device{port(0, 0), bridge(0)},
			after: []Device{{Name: "eth0", Index: 2, Up: true, Port: true, Packets: 1_000_000},
				bridge(4_000_000)}, guilty: true,
			devices: []string{"b1"}, least: 2.4},
		{name: "1,000 packets a second of a millisecond each", cores: map[int]float64{2: 1},
			before: []Device{port(0, 0)}, after: []Device{port(1000, 64_000)},
			guilty: true, least: .9, origins: 1000, pace: 800},
		{name: "a little work", cores: map[int]float64{3: .4}, before: []Device{bridge(0)},
			after: []Device{bridge(400_000)}},
		{name: "a little work of one with less", element: Element{CPU: .2}, cores: map[int]float64{3: .4},
			before: []Device{bridge(0)},
			after:  []Device{bridge(400_000)}, guilty: true, devices: []string{"b1"}, least: .3},
		{name: "as much as one may that states more", element: Element{CPU: 2}, cores: map[int]float64{3: 1.9},
			before: []Device{bridge(0)},
			after:  []Device{bridge(400_000)}},
		{name: "one that is stopped", element: Element{Stopped: true}, cores: map[int]float64{3: .3},
			before: []Device{bridge(0)},
			after:  []Device{bridge(400_000)}, guilty: true, devices: []string{"b1"}, least: .3},
		{name: "only now", once: true, cores: map[int]float64{3: 3}, before: []Device{bridge(0)},
			after: []Device{bridge(4_000_000)}},
		{name: "devices made between the looks", cores: map[int]float64{3: 3}, after: []Device{bridge(4_000_000)},
			guilty: true, devices: []string{"b1"}, least: 2.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			was, is := look{at: now.Add(-time.Second), cores: c.cores, devices: c.before},
				look{at: now, cores: c.cores, devices: c.after}
			if c.once {
				was.cores = nil
			}
			was.origins, is.origins, is.entered, is.unknown = c.origins/2, c.origins, c.entered, c.unknown
			x, guilty := judge(&c.element, &was, &is)
			if guilty != c.guilty || !slices.Equal(x.Devices, c.devices) || guilty && x.Cores < c.least ||
				x.Round != c.round || x.Pace < c.pace || c.pace > 0 && x.Pace > c.pace*3/2 {
				t.Errorf("got %v, %+v", guilty, x)
			}
		})
	}
}
