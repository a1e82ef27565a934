// Package fast is the forwarding plane of `forwarding: xdp`. The fabric's eBPF programs forward a router's transit
// packets, by tables that follow those of the router's own namespace: mostly at the tc hook, at the driver's (XDP)
// where a port allows it. The router's own stack, the guest, gets what they leave to it.
//
// The planes of `forwarding: router` and `forwarding: bridge` for routers (package kernel) share the tables. These say
// which packets are forwarded for certain, and the node's kernel forwards them in the router's companion, which follows
// the same routes. So who forwards is one word in the fabric's tables, and in every case the guest gets what cannot be
// forwarded for certain.
package fast

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
)

var (
	_ forward.Plane     = (*Plane)(nil)
	_ forward.Confirmer = (*Plane)(nil)
)

// Memory is where the tables live. It may hold what an earlier process left.
type Memory interface {
	fib.Memory
	Chunks() (int, error)
	// Used tells whether packets are steered to any of the tables.
	Used() bool
	// Free gives the chunks back. Nobody may look at them any more.
	Free() error
}

// shares are how the node's networks share its tables.
var shares = fib.Shares{Bytes: int(model.PoolTables), NextHops: model.PoolNextHops,
	SpareBytes:    int(model.PoolTables - model.ReservableTables),
	SpareNextHops: model.PoolNextHops - model.ReservableNextHops,
	LittleBytes:   int(model.LittleTables), LittleNextHops: model.LittleNextHops}

func quotaOf(q model.TableQuota) fib.Quota {
	return fib.Quota{Bytes: int(q.Tables), NextHops: q.NextHops, Routes: q.Routes, Owned: q.Strict}
}

// The plane's clock.
const (
	// syncTime is how long routers may take to be in sync. After it the element counts as failed, and is forwarded for
	// as before until it is in sync.
	syncTime = 3 * time.Second
	// releaseEvery is how often memory that no reader uses any more is freed, and what did not fit is tried again.
	releaseEvery = 500 * time.Millisecond
)

// freeAfter is how long there must have been no router before the tables' memory is given back. It is far longer than
// anybody takes who began to look at them before.
var freeAfter = 10 * time.Second

// Plane feeds the fabric's tables. mu guards what stands below it, and the fields of routers that say so. A router has
// a lock of its own, which may be taken while mu is held, never the other way round.
type Plane struct {
	*Way   // the plane's own, without companions
	memory Memory
	log    *slog.Logger

	ctx  context.Context // of everything that runs between calls
	stop context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex // held over Prepare and Retire, which wait for nobody
	pool    *fib.Pool  // nil while there is no router, nor was just now
	shut    func()     // ends what runs for the pool
	emptied bool       // what an earlier process left and nobody uses was given back
	routers map[model.ID]*router
	slices  map[string]*slice
	sent    map[model.ID]uint64 // how many packets were forwarded for routers when neighbours were confirmed last
	// unsynced has true for each plane that has not yet said that all its routers are in sync. When none is left, what
	// an earlier process left in the tables, and nothing replaced, is freed.
	unsynced  map[model.Forwarding]bool
	forgotten bool
}

// slice is a network's share of the tables.
type slice struct {
	*fib.Slice
	quota   model.TableQuota
	routers int
}

// New returns the plane of a node. What an earlier process left in the tables goes on being used until it is replaced.
func New(memory Memory, log *slog.Logger) *Plane {
	log = cmp.Or(log, slog.Default())
	p := &Plane{memory: memory, log: log, routers: map[model.ID]*router{}, slices: map[string]*slice{},
		unsynced: map[model.Forwarding]bool{}}
	p.Way = p.By(model.ForwardXDP, nil)
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// open takes over the tables of an earlier process, or makes them anew. Nodes without routers never touch their memory.
func (p *Plane) open() error {
	if p.pool != nil {
		return nil
	}
	chunks, err := p.memory.Chunks()
	if err == nil && chunks > 0 {
		p.pool, err = fib.Adopt(p.memory, chunks, func(table int) fib.Family { return fib.Family(table % 2) })
		if err != nil {
			p.log.Warn("the forwarding tables of an earlier process cannot be used: the guests forward until there "+
				"are new ones", "error", err)
		}
	}
	if p.pool == nil {
		if p.pool, err = fib.New(p.memory); err != nil {
			return fmt.Errorf("make forwarding tables: %w", err)
		}
	}
	p.pool.SetShares(shares)
	p.emptied, p.forgotten = true, false
	ctx, shut := context.WithCancel(p.ctx)
	p.shut = shut
	p.wait.Go(func() { p.release(ctx, p.pool) })
	return nil
}

// empty gives back the memory that an earlier process left, if nobody forwards by it.
func (p *Plane) empty() {
	if p.pool != nil || p.emptied || p.used() {
		return
	}
	p.emptied = true
	if err := p.memory.Free(); err != nil {
		p.log.Warn("give the memory of forwarding tables back", "error", err)
	}
}

// used tells whether the tables forward for anybody.
func (p *Plane) used() bool { return len(p.routers) > 0 || p.memory.Used() }

// Close ends what runs in the background. The tables stay as they are.
func (p *Plane) Close() {
	p.stop()
	p.wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.routers {
		r.halt()
		for way := range r.companions {
			r.leave(way)
		}
	}
}

// Offers returns routers, on both hooks.
func (p *Plane) Offers(context.Context) model.Offers {
	return model.Offers{{Driver: model.ForwardXDP.Feature(), Kinds: []model.Kind{model.Router},
		Makes: []model.Feature{model.HookTC.Feature(), model.HookXDP.Feature()}}}
}

// start makes sure that the router's tables, and its companion's, are being fed. It returns a steering if the one that
// was returned before no longer holds.
func (p *Plane) start(job *forward.Job, w *Way) (*forward.Steering, error) {
	way := w.name
	if job.Element.Kind != model.Router {
		return nil, fmt.Errorf("element %s is a %s: forwarding by %s is there for routers", job.ID,
			job.Element.Kind, way)
	}
	names := make([]string, len(job.Element.Interfaces))
	for i := range names {
		names[i] = job.Element.Interfaces[i].Name
	}
	numbers, err := job.Place.Ports(names)
	if err != nil {
		return nil, fmt.Errorf("router %s: %w", job.ID, err)
	}
	if job.Routes == nil {
		return nil, fmt.Errorf("router %s: its control plane tells no routes, and forwarding by %s needs them", job.ID,
			way)
	}
	identity, err := job.Routes.Identity()
	if err != nil {
		return nil, fmt.Errorf("router %s: %w", job.ID, err)
	}
	p.setQuota(job.ID.Network, job.Quota)
	r := p.routers[job.ID]
	if r != nil && (r.identity != identity || r.failed() != nil) {
		p.end(r) // its routes are told from elsewhere, or the mirror came to an end
		r = nil
	}
	fresh := r == nil
	if fresh {
		if r, err = p.begin(job, identity); err != nil {
			return nil, err
		}
	}
	r.ways[way] = true
	ports := make(map[string]port, len(names))
	for i := range job.Element.Interfaces {
		ifc := &job.Element.Interfaces[i]
		ports[ifc.LinuxName()] = port{number: numbers[ifc.Name], name: ifc.Name}
	}
	var s *forward.Steering
	if err = r.setPorts(ports); err == nil {
		s, err = r.accompany(job, w, fresh)
	}
	if fresh {
		r.follow()
	}
	if err != nil {
		err = fmt.Errorf("router %s: %w", job.ID, err)
	}
	return s, err
}

// begin starts to feed a router's tables.
func (p *Plane) begin(job *forward.Job, identity uint64) (*router, error) {
	id, quota := job.ID, job.Quota
	s := p.slices[id.Network]
	if s == nil {
		s = &slice{Slice: p.pool.NewSlice(id.Network, quotaOf(quota)), quota: quota}
		p.slices[id.Network] = s
	}
	r, err := newRouter(p, job, s.Slice)
	if err != nil {
		return nil, fmt.Errorf("router %s: %w", id, err)
	}
	if r.number, err = r.place.Tables(); err != nil {
		r.halt()
		r.close()
		return nil, err
	}
	r.identity = identity
	s.routers++
	p.routers[id] = r
	return r, nil
}

// end takes a router's tables away. Packets that are still steered to them are punted.
func (p *Plane) end(r *router) {
	r.halt()
	r.close()
	delete(p.routers, r.id)
	if s := p.slices[r.id.Network]; s != nil {
		if s.routers--; s.routers == 0 {
			s.SetQuota(fib.Quota{}) // it owns nothing any more
			delete(p.slices, r.id.Network)
		}
	}
	p.roomier()
}

// setQuota changes what a network's tables may take.
func (p *Plane) setQuota(network string, quota model.TableQuota) {
	s := p.slices[network]
	if s == nil || s.quota == quota {
		return
	}
	s.quota = quota
	s.SetQuota(quotaOf(quota))
	p.roomier()
}

// roomier makes what did not fit be tried again soon.
func (p *Plane) roomier() {
	for _, r := range p.routers {
		r.again = again{}
	}
}

// look finds whether the router's tables, and the way's companion, are in sync: then packets may be steered there.
func (p *Plane) look(r *router, w *Way, result *forward.Prepared) {
	s := &forward.Steering{Tables: r.number}
	f := r.companions[w.name]
	if f != nil && f.waits {
		result.Waits, result.Err = w.unready(r, " (a device of its companion has no carrier)",
			func(ctx context.Context) { r.awaitCarriers(ctx, w.name, f) })
		return
	}
	waiting := []<-chan struct{}{r.synced}
	if f != nil {
		s.Devices = f.Ends()
		waiting = append(waiting, f.Synced())
	}
	for _, synced := range waiting {
		select {
		case <-synced:
		case <-r.done:
		default:
			result.Waits, result.Err = w.unready(r, "", func(ctx context.Context) { r.awaitSync(ctx, waiting) })
			return
		}
		if r.failed() != nil {
			result.Err = fmt.Errorf("router %s: follow its routes: %w; its own stack forwards until that works", r.id,
				r.failed())
			return
		}
	}
	if f != nil {
		f.used = true
	}
	r.since, result.Steering = time.Time{}, s
}

// leave lets go of what a router has for one way, and of its tables if that was the last.
func (p *Plane) leave(id model.ID, way model.Forwarding) error {
	r := p.routers[id]
	if r == nil {
		return nil
	}
	r.leave(way)
	delete(r.ways, way)
	if len(r.ways) > 0 {
		return nil
	}
	r.halt()
	if err := r.place.Leave(); err != nil {
		return fmt.Errorf("router %s: %w", id, err)
	}
	p.end(r)
	return nil
}

// release frees what no reader uses any more, and tries again what did not fit.
func (p *Plane) release(ctx context.Context, pool *fib.Pool) {
	t := time.Tick(releaseEvery)
	var unused time.Time // since when
	for {
		select {
		case <-ctx.Done():
			return
		case <-t:
		}
		if pool.Usage().Resting > 0 {
			mark := pool.Mark()
			if !linux.Grace(ctx) {
				return
			}
			pool.Release(mark)
		}
		p.mu.Lock()
		for _, r := range p.routers {
			r.retry()
			for _, f := range r.companions {
				f.Settle()
			}
		}
		switch {
		case p.used():
			unused = time.Time{}
		case unused.IsZero():
			unused = time.Now()
		case time.Since(unused) >= freeAfter:
			p.pool, p.emptied = nil, false
			p.shut()
			p.empty()
		}
		p.mu.Unlock()
	}
}

// Confirm is forward.Confirmer's.
func (p *Plane) Confirm(ctx context.Context, forwarded map[model.ID]uint64) {
	p.mu.Lock()
	var busy []*router
	for id, r := range p.routers {
		if forwarded[id] != p.sent[id] {
			busy = append(busy, r)
		}
	}
	p.sent = forwarded
	p.mu.Unlock()
	for _, r := range busy {
		if err := r.stream.Confirm(); err != nil && ctx.Err() == nil {
			p.log.Debug("neighbours", "router", r.id, "error", err)
		}
	}
}
