package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
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
	jobs chan watchJob

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
	mu     sync.Mutex
	looks  []watchLook
	looked int64
	recent map[model.ID]recent
	found  map[model.ID]map[string]uint64
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
		macs: map[string][6]byte{},
		host: e.Kind == model.Host}
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
	looks := time.NewTicker(diskEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-looks.C:
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
			values[i].Provoked = values[i].Provoked || watch.May(values[i].Signal, values[i].Value, e.received)
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
func judged(e watched, samples map[model.PortID]fabric.Sample,
	counted map[model.PortID]fabric.Counters) []watch.Value {
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

// watchUsage returns the signals that follow from the two latest measurements of what an element's processes use.
func (a *Agent) watchUsage(id model.ID) (values []watch.Value, isBusy bool) {
	is, was := a.usage.last[id], a.usage.before[id]
	span := a.usage.at.Sub(a.usage.beforeAt).Seconds()
	if span <= 0 || is.CPU < was.CPU || a.usage.last == nil {
		return nil, false
	}
	if _, known := a.usage.before[id]; !known {
		return nil, false
	}
	values = []watch.Value{
		{Signal: watch.Refused, Value: float64(max(0, is.Refused-was.Refused)) / span},
		{Signal: watch.Killed, Value: float64(max(0, is.Killed-was.Killed)) / span},
	}
	return values, (is.CPU - was.CPU).Seconds() >= watchBusy*span
}

// examine looks closer at an element that keeps a processor busy: what it has in the kernel's tables, and how many of
// its tasks want a processor.
func (a *Agent) examine(ctx context.Context, id model.ID, at time.Time) []watch.Value {
	d, err := driver[control.Examiner](a, id, "be examined")
	if err != nil {
		return nil
	}
	is, ok := d.Examine(ctx, id)
	if !ok {
		return nil
	}
	was := a.watcher.examined[id]
	for other, x := range a.watcher.examined {
		if at.Sub(x.at) > time.Minute {
			delete(a.watcher.examined, other)
		}
	}
	span := at.Sub(was.at)
	if was.at.IsZero() || span > 4*usageEvery {
		was, span = examined{}, usageEvery
	}
	grown := func(is, was int) float64 { return max(0, float64(is-was)) / max(span.Seconds(), 1) }
	began := grown(is.Connections, was.Connections)
	a.watcher.examined[id] = examined{is, at, began}
	// An attacker that has filled the whole table within one look adds nothing by the next. So half of what was there
	// counts for that one too.
	began = max(began, was.began/2)
	return []watch.Value{{Signal: watch.Demand, Value: float64(is.Runnable)},
		{Signal: watch.Neighbours, Value: grown(is.Neighbours, was.Neighbours),
			Detail: fmt.Sprintf("%d of them now", is.Neighbours)},
		{Signal: watch.Connections, Value: began, Detail: fmt.Sprintf("%d of them now", is.Connections)}}
}

// examined is what a closer look found, and when.
type examined struct {
	control.Examined
	at    time.Time
	began float64 // connections a second
}

// suspect tells of an attack, and does what the element's policy says. It returns whether the element was cut off.
func (a *Agent) suspect(e watched, found []watch.Verdict) (cut bool) {
	words := make([]string, len(found))
	provoked := true
	for i, v := range found {
		words[i] = verdictWords(v)
		provoked = provoked && v.Provoked
	}
	what := strings.Join(words, "; ")
	done := ""
	switch {
	case e.policy == model.AttackTell:
		done = fmt.Sprintf("nothing was done, as its policy says (`polyplane policy %s attack=quarantine` would cut "+
			"it off next time, `polyplane quarantine %s` does so now)",
			e.id.Network, e.id)
	case provoked:
		done = fmt.Sprintf("nothing was done, since what others sent it may have made it do so (`polyplane "+
			"quarantine %s` cuts it off)", e.id)
	default:
		at := a.now()
		// The clock may have gone back since the manager decided about the last incident. A new one must count all the
		// same.
		if last := time.Unix(0, a.decidedAbout(e.id)); !at.After(last) {
			at = last.Add(1)
		}
		if !a.cuts.add(e.id, model.Incident{At: at, Signal: string(found[0].Signal), What: what, Policy: e.policy}) {
			return true
		}
		cut = true
		if s := a.wanted.Load(); s != nil {
			a.cut(s, false)
		}
		switch e.policy {
		case model.AttackStop:
			done = fmt.Sprintf("its links were cut, and it is stopped (`polyplane start %s` undoes that)", e.id)
		case model.AttackDelete:
			done = "its links were cut, and it is taken out of its network (`polyplane trash list` has its disk, and " +
				"`polyplane apply` of the file makes it anew)"
		default:
			done = fmt.Sprintf("its links were cut; it, its state and a capture of its last packets are kept "+
				"(`polyplane release %s` undoes that, `polyplane quarantine capture %s -w FILE` fetches the capture)",
				e.id, e.id)
		}
	}
	a.event(model.Warning, e.id.String(), "AttackSuspected", what+": "+done)
	return cut
}

// decidedAbout is the number of the latest incident of an element that the manager has decided about.
func (a *Agent) decidedAbout(id model.ID) int64 {
	if s := a.wanted.Load(); s != nil {
		for _, n := range s.Networks {
			for i := range n.Elements {
				if n.Name == id.Network && n.Elements[i].Name == id.Element {
					return n.Elements[i].Decided
				}
			}
		}
	}
	return 0
}

// verdictWords says how much of what was seen, and how much is usual.
func verdictWords(v watch.Verdict) string {
	text := fmt.Sprintf("%s %s (usual: %s, suspicious from %s)", amount(v.Value), watch.RuleOf(v.Signal).Unit,
		amount(v.Usual), amount(v.Limit))
	if v.Detail != "" {
		text += ", " + v.Detail
	}
	return text
}

// amount prints a number with no more digits than people need.
func amount(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 1:
		return fmt.Sprintf("%.3g", f)
	case f == 0:
		return "0"
	}
	return fmt.Sprintf("%.2g", f)
}
