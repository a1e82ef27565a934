package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// The intrusion watch of a node works in two steps. Counters, which are read anyway, show which elements send enough to
// be worth a look. A short sample of all their ports then shows what it is. So an idle network costs nothing, and a
// busy one a bounded number of frames a second. Package watch judges the samples; the element's policy says what
// follows.
const (
	// watchFrom is how many packets a second one port of an element must send for it to be sampled. Routing protocols
	// at rest send fewer.
	watchFrom = 20
	// watchMost is how many elements are sampled at a time. The others have their turn after the next counts.
	watchMost = 4
	// watchSpan is how long a sample is.
	watchSpan = 250 * time.Millisecond
	// watchAgain is when a suspicious element is looked at again, unless a count comes before.
	watchAgain = time.Second
	// watchBusy is how many cores an element's processes must use to have it examined more closely.
	watchBusy = 0.2
	// diskSpan is the time over which the watch counts how often an element fills and empties its disk. A small disk is
	// filled and emptied within a second. So an element is looked at every diskEvery if it uses a processor, or if its
	// disk's use changes by diskStep between two counts.
	diskSpan  = time.Minute
	diskEvery = 200 * time.Millisecond
	diskStep  = 0.1
	// receivedFor: what an element received this long ago may still be the reason for what it does now.
	receivedFor = 5 * time.Second
	// rememberEvery is how often what is usual is written to the disk.
	rememberEvery = 10 * time.Minute
)

// Sampler is what the watch needs of the fabric, beside its counters.
type Sampler interface {
	Sample(ctx context.Context, ports []model.PortID, span time.Duration,
		snaplen int) (map[model.PortID]fabric.Sample, error)
}

// watcher is the loop's side of the watch, and the queue between the loop and whoever looks.
type watcher struct {
	jobs chan watchJob // the loop never waits here: while somebody looks, a job is left out

	// The loop's own.
	at       time.Time
	last     map[model.PortID]fabric.Counters
	received map[model.ID]received
	sampled  map[model.ID]time.Time
	spoke    map[model.ID]time.Time // when it sent anything last

	// That of who looks.
	examined map[model.ID]examined
	disks    disks

	// shared by the loop, the slow watch, and whoever looks
	slow slowly

	// Everybody's.
	tally  tally
	mu     sync.Mutex // guards what stands below it up to cut; no other lock is taken under it
	looks  []watchLook
	looked int64
	recent map[model.ID]recent
	found  map[model.ID]map[string]uint64
	gone   map[model.ID]bool // elements that were suspected and are gone, for who judges to forget
	cut    map[model.ID]bool // in quarantine; nil until that is known

	listening map[model.ID]*listener // of what is suspected
	listeners sync.WaitGroup
}

// received is the most packets that an element received in one of the last seconds.
type received struct {
	rate float64
	at   time.Time
}

// watched is an element to be looked at.
type watched struct {
	id          model.ID
	policy      model.AttackPolicy
	quarantined bool
	ports       []model.PortID
	macs        map[string][6]byte // by interface
	received    float64
	sent        float64
	sample      bool
	waiting     bool          // its turn has come, and nothing is known yet of what it sends
	values      []watch.Value // that the loop measured
	dropped     []watch.Value // of its packets, by the latest count
	host        bool
	busy        bool    // it keeps a processor busy, which is worth a closer look
	share       float64 // share of its disk that is used, if that was measured
}

// watchJob is what one count found.
type watchJob struct {
	at       time.Time
	elements []watched
}

// watchLook is one look, kept for tools that record what is usual.
type watchLook struct {
	Seq    int64           `json:"seq"`
	At     time.Time       `json:"at"`
	ID     model.ID        `json:"id"`
	Values []watch.Value   `json:"values"`
	Found  []watch.Verdict `json:"found,omitempty"`
}

// keptLooks is how many looks are kept for them.
const keptLooks = 4096

func newWatcher() *watcher {
	return &watcher{jobs: make(chan watchJob, 4), received: map[model.ID]received{}, sampled: map[model.ID]time.Time{},
		spoke: map[model.ID]time.Time{}, slow: newSlowly(), recent: map[model.ID]recent{}, disks: disks{},
		tally: newTally(), examined: map[model.ID]examined{}, found: map[model.ID]map[string]uint64{},
		gone:      map[model.ID]bool{},
		listening: map[model.ID]*listener{}}
}

// counts finds out from counters which elements need a look, and queues them. It never waits.
func (w *watcher) counts(now time.Time, counters map[model.PortID]fabric.Counters, elements []watched) {
	span := now.Sub(w.at)
	last := w.last
	w.at, w.last = now, counters
	if len(w.received)+len(w.sampled)+len(w.spoke) > 6*len(elements)+64 { // most of it is of elements that are gone
		clear(w.received)
		clear(w.sampled)
		clear(w.spoke)
	}
	if last == nil || span <= 0 || span > time.Minute {
		return
	}
	var due []int
	var quiet []watched
	slowly := w.slow.wanted.Load()
	for i := range elements {
		e := &elements[i]
		var in float64
		var drops dropRates
		busiest := 0.0
		for _, p := range e.ports {
			is, was := counters[p], last[p]
			drops.add(is.Drops, was.Drops, span)
			if is.RxPackets >= was.RxPackets {
				rate := float64(is.RxPackets-was.RxPackets) / span.Seconds()
				e.sent += rate
				busiest = max(busiest, rate)
			}
			if is.TxPackets >= was.TxPackets {
				in += float64(is.TxPackets-was.TxPackets) / span.Seconds()
			}
		}
		if r := w.received[e.id]; in >= r.rate || now.Sub(r.at) > receivedFor {
			if in > 0 || r.rate > 0 {
				w.received[e.id] = received{in, now}
			}
		}
		e.received = w.received[e.id].rate
		e.dropped = drops.values(e)
		if busiest >= watchFrom {
			due = append(due, i)
		}
		if e.sent > 0 {
			w.spoke[e.id] = now
		}
		if spoke, ok := w.spoke[e.id]; slowly && ok && busiest < slowBelow && now.Sub(spoke) < slowSpoke {
			quiet = append(quiet, *e)
		}
	}
	if len(quiet) > 0 {
		w.slow.offer(quiet)
	}
	// Whoever waited longest comes first; but before them come those that send far more than they get.
	alone := func(e *watched) bool { return e.sent > 1000 && e.sent > 10*e.received }
	slices.SortStableFunc(due, func(a, b int) int {
		x, y := &elements[a], &elements[b]
		if alone(x) != alone(y) {
			if alone(x) {
				return -1
			}
			return 1
		}
		return w.sampled[x.id].Compare(w.sampled[y.id])
	})
	for _, i := range due[:min(len(due), watchMost)] {
		elements[i].sample = true
		w.sampled[elements[i].id] = now
	}
	for _, i := range due[min(len(due), watchMost):] {
		elements[i].waiting = true
	}
	job := watchJob{at: now, elements: elements}
	select {
	case w.jobs <- job:
	default: // if whoever looks is behind, the next count tells more
	}
}

// watching looks at what the loop's latest counts named, until the context ends.
func (a *Agent) watching(now time.Time, counters map[model.PortID]fabric.Counters, measured bool) {
	if a.watcher == nil {
		return
	}
	elements := make([]watched, 0, len(a.plan.watched))
	for _, e := range a.plan.watched {
		if a.cuts.is(e.id) || e.quarantined {
			continue // what is cut sends nothing to anybody
		}
		if measured {
			e.values, e.busy = a.watchUsage(e.id)
			e.share = a.usage.last[e.id].DiskShare
		}
		elements = append(elements, e)
	}
	a.watcher.counts(now, counters, elements)
}

// watchedOf says of an element what the watch must know.
func watchedOf(id model.ID, e *model.NodeElement) watched {
	w := watched{id: id, policy: cmp.Or(e.Attack, model.AttackTell), quarantined: e.Quarantined,
		macs: map[string][6]byte{}, host: e.Kind == model.Host}
	for k := range e.Interfaces {
		ifc := &e.Interfaces[k]
		w.ports = append(w.ports, model.PortID{ID: w.id, Interface: ifc.Name})
		if mac, err := net.ParseMAC(ifc.MAC); err == nil && len(mac) == 6 {
			w.macs[ifc.Name] = [6]byte(mac)
		}
	}
	return w
}

// watch looks until the context ends.
func (a *Agent) watch(ctx context.Context) error {
	w, slow := watch.New(), watch.NewSlow()
	a.rememberUsual(w)
	defer a.keepUsual(w)
	defer a.watcher.listeners.Wait()
	suspicious := map[model.ID]watched{}
	again := newTimer()
	defer again.Stop()
	keep := time.NewTicker(rememberEvery)
	defer keep.Stop()
	looks := time.Tick(diskEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-looks:
			a.watcher.disks.look(now, a.diskShare)
			continue
		case seen := <-a.watcher.slow.seen:
			a.lookSlowly(w, slow, seen)
			continue
		case now := <-keep.C:
			if s := a.wanted.Load(); s != nil {
				there := elementsOf(s)
				w.Keep(func(id model.ID) bool { return there[id] })
				slow.Keep(now, func(id model.ID) bool { return there[id] })
				a.watcher.tally.keep(func(id model.ID) bool { return there[id] })
			}
			a.keepUsual(w)
			continue
		case job := <-a.watcher.jobs:
			a.watcher.forget(w, slow)
			for i := range job.elements {
				if _, there := suspicious[job.elements[i].id]; there {
					job.elements[i].sample, job.elements[i].waiting = true, false
				}
			}
			a.look(ctx, w, job, suspicious)
		case now := <-again.C:
			job := watchJob{at: now}
			for _, e := range suspicious {
				e.values, e.dropped, e.busy = nil, nil, false
				job.elements = append(job.elements, e)
			}
			a.look(ctx, w, job, suspicious)
		}
		again.Stop()
		if len(suspicious) > 0 {
			again.Reset(watchAgain)
		}
	}
}

// look samples the elements that need it, judges all of them, and acts on the judgement.
func (a *Agent) look(ctx context.Context, w *watch.Watch, job watchJob, suspicious map[model.ID]watched) {
	var ports []model.PortID
	for _, e := range job.elements {
		if e.sample {
			ports = append(ports, e.ports...)
		}
	}
	var samples map[model.PortID]fabric.Sample
	sampler, ok := a.Drivers.Fabric.(Sampler)
	if len(ports) > 0 && ok {
		var err error
		if samples, err = sampler.Sample(ctx, ports, watchSpan, watch.SnapLen); err != nil {
			if !errors.Is(err, context.Canceled) {
				a.Log.Warn("look at what elements send", "error", err)
			}
			return
		}
	}
	counted := a.countBrief(ctx, job.elements, samples)
	for _, e := range job.elements {
		values := append(slices.Concat(e.values, e.dropped), judged(e, samples, counted)...)
		if len(e.values) > 0 {
			values = append(values, watch.Value{Signal: watch.Writing,
				Value: a.watcher.disks.turns(e.id, job.at, e.share, e.busy)})
			values = append(values, a.watcher.tally.values(e.id, job.at)...)
		}
		if e.busy {
			values = append(values, a.examine(ctx, e.id, job.at)...)
		} else if len(e.values) > 0 {
			values = append(values, watch.Value{Signal: watch.Demand}, watch.Value{Signal: watch.Neighbours},
				watch.Value{Signal: watch.Connections})
		}
		for i := range values {
			values[i].Provoked = values[i].Provoked || values[i].May(e.received)
		}
		if e.sample && !a.watcher.listensTo(e.id) {
			a.watcher.remember(e, job.at, samples)
		}
		found := w.Look(e.id, job.at, values)
		if delete(suspicious, e.id); w.Suspicious(e.id) {
			e.sample = true
			suspicious[e.id] = e
			a.listen(ctx, e)
		} else {
			a.watcher.hush(e.id)
		}
		if e.sample || len(e.values) > 0 || len(found) > 0 {
			a.watcher.record(watchLook{At: job.at, ID: e.id, Values: values, Found: found})
		}
		if len(found) > 0 {
			if a.suspect(e, found) {
				w.Forgive(e.id)
				delete(suspicious, e.id)
				a.watcher.hush(e.id)
			}
		}
	}
}

// countBrief counts packets for a while at the ports of some elements: those that may be passing on what they get, and
// whose samples were too brief to judge them otherwise. On most looks there are none.
func (a *Agent) countBrief(ctx context.Context, elements []watched,
	samples map[model.PortID]fabric.Sample) map[model.PortID]fabric.Counters {
	if !slices.ContainsFunc(elements, func(e watched) bool {
		return e.sample && len(e.ports) > 1 && slices.ContainsFunc(e.ports, func(p model.PortID) bool {
			s, ok := samples[p]
			return ok && s.Span < watch.Brief
		})
	}) {
		return nil
	}
	before, err := a.Drivers.Fabric.Counters(ctx)
	if err != nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(watchSpan):
	}
	after, err := a.Drivers.Fabric.Counters(ctx)
	if err != nil {
		return nil
	}
	for id, c := range after {
		was := before[id]
		after[id] = fabric.Counters{RxPackets: c.RxPackets - min(was.RxPackets, c.RxPackets),
			TxPackets: c.TxPackets - min(was.TxPackets, c.TxPackets)}
	}
	return after
}

// judged returns what an element's samples show. An element that was not sampled, because it hardly sends anything,
// shows nothing.
func judged(e watched, samples map[model.PortID]fabric.Sample, counted map[model.PortID]fabric.Counters) []watch.Value {
	switch {
	case e.sample:
	case e.waiting:
		return nil
	default:
		return watch.Judge(nil)
	}
	ports := sampledOf(e, samples)
	for i := range ports {
		c := counted[model.PortID{ID: e.id, Interface: ports[i].Interface}]
		ports[i].Sent, ports[i].Received = c.RxPackets, c.TxPackets
	}
	return watch.Judge(ports)
}

// sampledOf translates an element's samples into the words of package watch.
func sampledOf(e watched, samples map[model.PortID]fabric.Sample) (ports []watch.Sampled) {
	for _, p := range e.ports {
		s, ok := samples[p]
		if !ok {
			continue
		}
		of := watch.Sampled{Interface: p.Interface, MAC: e.macs[p.Interface], Span: s.Span,
			Frames: make([]watch.Frame, len(s.Frames))}
		for i, f := range s.Frames {
			of.Frames[i] = watch.Frame{At: f.At, ToElement: f.ToElement, Length: f.Length, Data: f.Data}
		}
		ports = append(ports, of)
	}
	return ports
}

// record keeps a look for whoever asks for it.
func (w *watcher) record(l watchLook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked++
	l.Seq = w.looked
	if len(l.Found) > 0 {
		all := maps.Clone(w.found[l.ID])
		if all == nil {
			all = map[string]uint64{}
		}
		for _, v := range l.Found {
			all[string(v.Signal)]++
		}
		w.found[l.ID] = all
	}
	if len(w.looks) == keptLooks {
		w.looks = w.looks[keptLooks/4:]
	}
	w.looks = append(w.looks, l)
}

// attacks says how many attacks an element was suspected of, by signal; nil for none.
func (w *watcher) attacks(id model.ID) map[string]uint64 {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found[id] // never changed in place
}

// forget has those who judge forget the elements that are gone. What is told of one, it is told once in a while only;
// of the next one of that name nothing was told.
func (w *watcher) forget(judge *watch.Watch, slow *watch.Slow) {
	w.mu.Lock()
	gone := w.gone
	w.gone = map[model.ID]bool{}
	w.mu.Unlock()
	for id := range gone {
		judge.Forget(id)
		slow.Forget(id)
	}
}

// after returns the kept looks that came after one.
func (w *watcher) after(seq int64) []watchLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.looks)
	for i > 0 && w.looks[i-1].Seq > seq {
		i--
	}
	return slices.Clone(w.looks[i:])
}
