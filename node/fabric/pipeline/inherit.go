package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// inherit fills new tables with what shall outlive their layout: which slot is whose, since frames that wait in queues say
// slots, and what was counted. Where these look otherwise in the layout before, all begins anew. Slots come last: while there
// are none, a process that died on the way is followed by one that does it again.
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
	if _, err := p.Identities.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("take over %d ports of the layout before, %s: %w", len(keys), filepath.Base(before), err)
	}
	return nil
}

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
