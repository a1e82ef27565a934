package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// inherit fills new tables with what shall outlive their layout: which slot is whose, since frames that wait in queues
// say slots, and what was counted. Where these look otherwise in the layout before, all begins anew. Slots come last:
// while there are none, a process that died on the way is followed by one that does it again.
func (p *Pipeline) inherit(spec *ebpf.CollectionSpec) error {
	before := p.before()
	if before == "" {
		return nil
	}
	if own, err := All[IdentityKey, Identity](p.Identities); err != nil || len(own) > 0 {
		return err
	}
	identities, err := found(filepath.Join(before, tcMapIdentities), spec.Maps[tcMapIdentities])
	if err != nil {
		return nil // there are none, or others
	}
	defer identities.Close()
	all, err := All[IdentityKey, Identity](identities)
	if err != nil {
		return err
	}
	var keys []IdentityKey
	var values []Identity
	n := 0
	for k, v := range all {
		if v.Slot > 0 && v.Slot <= MaxPorts {
			keys, values, n = append(keys, k), append(values, v), max(n, int(v.Slot)+1)
		}
	}
	if n == 0 {
		return nil
	}
	if err := goOn[TrafficCount](before, spec.Maps[tcMapTraffic], p.Traffic, n); err != nil {
		return err
	}
	if err := goOn[DropCount](before, spec.Maps[tcMapDrops], p.Drops, n); err != nil {
		return err
	}
	if err := p.generationsOf(before, spec.Maps[tcMapGenerations], values); err != nil {
		return err
	}
	if _, err := p.Identities.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("take over %d ports of the layout before, %s: %w", len(keys), filepath.Base(before), err)
	}
	return nil
}

// generationsOf has the ports' slots go on with the generations of the layout before: what waits in queues says these.
// In a layout without them it says none.
func (p *Pipeline) generationsOf(before string, spec *ebpf.MapSpec, ports []Identity) error {
	p.begin()
	from, err := found(filepath.Join(before, spec.Name), spec)
	if err == nil {
		defer from.Close()
	}
	for _, port := range ports {
		was := firstGeneration
		if err == nil {
			if err := from.Lookup(port.Slot, &was); err != nil {
				return fmt.Errorf("read the generation of slot %d of the layout before: %w", port.Slot, err)
			}
		}
		atomic.StoreUint64(&p.Generations[port.Slot], was)
	}
	return nil
}

// firstGeneration is that of ports of layouts that had none: all of its bits that a mark has are zero.
const firstGeneration uint64 = 1 << generationBits

// generationBits are those of a generation that a mark has beside the slot.
const generationBits = 32 - slotBits

// begin fills a table of generations that is new. If it takes the place of one whose pin is lost, the programs that run
// have that still. Else slots get a generation each that nothing is likely to say which waits in a queue.
func (p *Pipeline) begin() {
	if p.Generations[0] != 0 {
		return
	}
	if was := p.running(); len(was) == len(p.Generations) {
		for slot, generation := range was {
			atomic.StoreUint64(&p.Generations[slot], generation)
		}
		return
	}
	for slot := range p.Generations {
		atomic.StoreUint64(&p.Generations[slot], firstGeneration+1+rand.Uint64N(1<<generationBits-1))
	}
}

// running reads the generations from the table that a program of this layout works on, nil if there is none.
func (p *Pipeline) running() []uint64 {
	pins, _ := filepath.Glob(filepath.Join(p.directory(), "*-"+tcProgFromShaper))
	for _, pin := range pins {
		program, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			continue
		}
		defer program.Close()
		info, err := program.Info()
		if err != nil {
			continue
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			m, err := ebpf.NewMapFromID(id)
			if err != nil {
				continue
			}
			defer m.Close()
			if about, err := m.Info(); err != nil || about.Name != tcMapGenerations {
				continue
			}
			keys, values := make([]uint32, len(p.Generations)), make([]uint64, len(p.Generations))
			var cursor ebpf.MapBatchCursor
			if n, err := m.BatchLookup(&cursor, keys, values, nil); n == len(values) &&
				(err == nil || errors.Is(err, ebpf.ErrKeyNotExist)) && values[0] != 0 {
				return values
			}
		}
	}
	return nil
}

// NextGeneration makes a slot another port's: what waits in queues for or from the one before is nobody's from now on.
func (p *Pipeline) NextGeneration(slot uint32) { atomic.AddUint64(&p.Generations[slot], 1) }

// before is the directory of the layout that was made last, beside this one's; "" if there is none.
func (p *Pipeline) before() (path string) {
	list, err := os.ReadDir(p.root)
	if err != nil {
		return ""
	}
	var latest time.Time
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !e.IsDir() || e.Name() == Layout || info.ModTime().Before(latest) {
			continue
		}
		latest, path = info.ModTime(), filepath.Join(p.root, e.Name())
	}
	return path
}

// goOn has the first n counters begin with what the layout before counted.
func goOn[V any](before string, spec *ebpf.MapSpec, to *ebpf.Map, n int) error {
	from, err := found(filepath.Join(before, spec.Name), spec)
	if err != nil {
		return nil // there are none, or others
	}
	defer from.Close()
	values, _, err := PerCPU[V](from, n)
	if err != nil {
		return err
	}
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := to.BatchUpdate(keys, slices.Clip(values), nil); err != nil {
		return fmt.Errorf("go on with the counters of the layout before in the table %v: %w", to, err)
	}
	return nil
}
