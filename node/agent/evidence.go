package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
)

// A capture is kept of each element in quarantine: the last seconds before its links were cut, and what it tried to
// send right after. The agent begins to listen at the first suspicion. It records a quarter of a second at a time, and
// keeps only the latest recordings. If an element is cut off by hand, without a suspicion, the capture holds what the
// watch's looks saw.
const (
	// evidenceAfter is how long the agent listens after the cut, evidenceFull how many bytes of each frame it keeps
	// then.
	evidenceAfter = 2 * time.Second
	evidenceFull  = 1518
	// recentSamples is how many samples are kept of an element, enough for five seconds; recentElements is for how many
	// elements.
	recentSamples  = 20
	recentElements = 64
	// listeningMost is how many elements the agent listens to at a time, listeningFull how many bytes of each frame it
	// keeps. With one port each, all samples together take at most 21 MiB.
	listeningMost = 8
	listeningFull = 256
)

// recent are the latest samples of an element, the oldest first.
type recent struct {
	at  []time.Time // when each began
	all []map[model.PortID]fabric.Sample
}

// before returns a copy without what came later. The last sample that began before the cut may have ended after it.
func (r recent) before(end time.Time) (cut recent) {
	for i, samples := range r.all {
		mine := make(map[model.PortID]fabric.Sample, len(samples))
		for p, s := range samples {
			s.Frames = slices.DeleteFunc(slices.Clone(s.Frames),
				func(f fabric.SampledFrame) bool { return !r.at[i].Add(f.At).Before(end) })
			mine[p] = s
		}
		cut.at, cut.all = append(cut.at, r.at[i]), append(cut.all, mine)
	}
	return cut
}

// remember keeps what a look saw of an element.
func (w *watcher) remember(e watched, at time.Time, samples map[model.PortID]fabric.Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(e, at, samples)
}

// keep is remember, with the lock held.
func (w *watcher) keep(e watched, at time.Time, samples map[model.PortID]fabric.Sample) {
	mine := map[model.PortID]fabric.Sample{}
	for _, p := range e.ports {
		if s, ok := samples[p]; ok && len(s.Frames) > 0 {
			mine[p] = s
		}
	}
	if len(mine) == 0 {
		return
	}
	r := w.recent[e.id]
	if len(r.all) == recentSamples {
		r.at, r.all = r.at[1:], r.all[1:]
	}
	r.at, r.all = append(slices.Clone(r.at), at), append(slices.Clone(r.all), mine)
	w.recent[e.id] = r
	if len(w.recent) <= recentElements {
		return
	}
	var oldest model.ID
	for id, r := range w.recent {
		if o := w.recent[oldest]; len(o.at) == 0 || r.at[len(r.at)-1].Before(o.at[len(o.at)-1]) {
			oldest = id
		}
	}
	delete(w.recent, oldest)
}

// listener is who listens to an element.
type listener struct {
	stopped   bool // it ends with its present sample
	forgotten bool // which is not kept
}

// listen records what passes the ports of an element, until nobody suspects it any more or it is cut off.
func (a *Agent) listen(ctx context.Context, e watched) {
	sampler, ok := a.Drivers.Fabric.(Sampler)
	w := a.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.listening[e.id]; l != nil {
		l.stopped = l.forgotten
		return
	}
	if !ok || len(w.listening) >= listeningMost {
		return
	}
	l := &listener{}
	w.listening[e.id] = l
	w.listeners.Go(func() {
		for {
			at := time.Now()
			samples, err := sampler.Sample(ctx, e.ports, watchSpan, listeningFull)
			w.mu.Lock()
			if err == nil && !l.forgotten {
				w.keep(e, at, samples)
			}
			if err != nil || l.stopped {
				delete(w.listening, e.id)
				w.mu.Unlock()
				return
			}
			w.mu.Unlock()
			select { // a sample that is full has ended early
			case <-time.After(time.Until(at.Add(watchSpan))):
			case <-ctx.Done():
			}
		}
	})
}

// hush ends the listening to an element.
func (w *watcher) hush(id model.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.listening[id]; l != nil {
		l.stopped = true
	}
}

// listensTo tells whether an element is listened to.
func (w *watcher) listensTo(id model.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.listening[id]
	return l != nil && !l.stopped
}

// keepEvidence writes the capture of an element that has just been cut off.
func (a *Agent) keepEvidence(e watched) {
	at := time.Now()
	var after map[model.PortID]fabric.Sample
	if sampler, ok := a.Drivers.Fabric.(Sampler); ok {
		if s, err := sampler.Sample(context.Background(), e.ports, evidenceAfter, evidenceFull); err == nil {
			after = s
		}
	}
	a.watcher.mu.Lock() // whoever listened to it has ended by now, so its last sample is among them
	r := a.watcher.recent[e.id].before(at)
	a.watcher.mu.Unlock()
	if after != nil {
		r.at, r.all = append(r.at, at), append(r.all, after)
	}
	if err := writeEvidence(a.Dirs.Evidence(e.id), e, r); err != nil {
		a.Log.Error("keep a capture of an element in quarantine", "element", e.id, "error", err)
		a.event(model.Warning, e.id.String(), "CaptureLost", fmt.Sprintf("its last packets are not kept: %s", err))
	}
	if s := a.wanted.Load(); s != nil && !elementsOf(s)[e.id] { // it has gone meanwhile
		os.Remove(a.Dirs.Evidence(e.id)) //nolint:errcheck // it may be gone already
	}
}

// forgetWatched forgets what the watch kept of elements that are gone: another element of the same name may belong to
// somebody else.
func (a *Agent) forgetWatched(stays func(model.ID) bool) {
	if a.watcher == nil {
		return
	}
	gone := func(id model.ID) bool { return !stays(id) }
	a.watcher.mu.Lock()
	for id, l := range a.watcher.listening {
		if gone(id) {
			l.stopped, l.forgotten = true, true
		}
	}
	for id := range a.watcher.found {
		if gone(id) {
			a.watcher.gone[id] = true
		}
	}
	maps.DeleteFunc(a.watcher.recent, func(id model.ID, _ recent) bool { return gone(id) })
	maps.DeleteFunc(a.watcher.found, func(id model.ID, _ map[string]uint64) bool { return gone(id) })
	a.watcher.mu.Unlock()
	paths, _ := filepath.Glob(a.Dirs.Evidence(model.ID{Network: "*", Element: "*"})) // the pattern is right
	for _, path := range paths {
		id := model.ID{Network: filepath.Base(filepath.Dir(path)),
			Element: strings.TrimSuffix(filepath.Base(path), ".pcapng")}
		if !gone(id) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.Log.Warn("remove the capture of an element that is gone", "element", id, "error", err)
		}
		os.Remove(filepath.Dir(path)) //nolint:errcheck // when it is empty
	}
}

// writeEvidence writes what was sampled at an element's ports as one capture, in time's order. The file takes the place
// of an earlier one at once, so that nobody reads half of it.
func writeEvidence(path string, e watched, r recent) (err error) {
	type frame struct {
		at   time.Time
		port int
		fabric.SampledFrame
	}
	var frames []frame
	for i, samples := range r.all {
		for k, p := range e.ports {
			for _, f := range samples[p].Frames {
				frames = append(frames, frame{r.at[i].Add(f.At), k, f})
			}
		}
	}
	slices.SortStableFunc(frames, func(a, b frame) int { return a.at.Compare(b.at) })
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(path+".new", path)
		}
	}()
	var w *pcapgo.NgWriter
	for i, p := range e.ports {
		ifc := pcapgo.NgInterface{Name: p.String(), LinkType: layers.LinkTypeEthernet, SnapLength: evidenceFull,
			TimestampResolution: 9}
		if i == 0 {
			w, err = pcapgo.NewNgWriterInterface(f, ifc, pcapgo.NgWriterOptions{
				SectionInfo: pcapgo.NgSectionInfo{OS: "linux", Application: "polyplane"}})
		} else {
			_, err = w.AddInterface(ifc)
		}
		if err != nil {
			return err
		}
	}
	if w == nil {
		return nil // it has no ports
	}
	for _, x := range frames {
		flags := pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}
		if x.ToElement {
			flags.Direction = pcapgo.NgEpbFlagDirectionInbound
		}
		err := w.WritePacketWithOptions(gopacket.CaptureInfo{Timestamp: x.at, CaptureLength: len(x.Data),
			Length:         max(x.Length, len(x.Data)),
			InterfaceIndex: x.port}, x.Data, pcapgo.NgPacketOptions{Flags: &flags})
		if err != nil {
			return err
		}
	}
	return w.Flush()
}

// evidence answers with the capture that is kept of an element in quarantine.
func (a *Agent) evidence(w http.ResponseWriter, r *http.Request) error {
	f, err := os.Open(a.Dirs.Evidence(idOf(r)))
	if errors.Is(err, fs.ErrNotExist) {
		return &httpError{http.StatusNotFound,
			fmt.Sprintf("no capture is kept of %s: one is when it gets into quarantine, some two seconds later",
				idOf(r))}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// newlyCut starts captures of the elements that have been cut off since the last call.
func (a *Agent) newlyCut(s *model.NodeState, cut map[model.ID]bool) {
	if a.watcher == nil {
		return
	}
	a.watcher.mu.Lock()
	was := a.watcher.cut
	a.watcher.cut = cut
	a.watcher.mu.Unlock()
	for _, n := range s.Networks {
		for i := range n.Elements {
			id := model.ID{Network: n.Name, Element: n.Elements[i].Name}
			if !cut[id] || was == nil || was[id] {
				continue
			}
			go a.keepEvidence(watchedOf(id, &n.Elements[i]))
		}
	}
}

// lookedAt answers with the looks that the watch took after a given one. Tools use it to record what is usual.
func (a *Agent) lookedAt(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.ParseInt(cmp.Or(r.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil {
		return &httpError{http.StatusBadRequest, "after: a look's number was expected"}
	}
	return answer(w, a.watcher.after(after))
}
