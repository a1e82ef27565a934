package fast

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/companion"
	"github.com/polyplane/polyplane/node/mirror"
	"github.com/polyplane/polyplane/node/mirror/feed"
)

// port is an interface of a router.
type port struct {
	number uint32 // the fabric's
	name   string // the user's
}

// router is one router whose packets are forwarded here.
type router struct {
	plane    *Plane
	id       model.ID
	place    forward.Place // in the data path
	number   int           // of its tables there
	identity uint64        // of the source of its routes
	stream   mirror.Stream
	feed     *feed.Feed
	tables   [2]*fib.Table
	synced   chan struct{}             // closed when the tables are what the namespace has
	done     chan struct{}             // closed when nothing feeds the tables any more
	again    again                     // when to try again what did not fit
	lack     error                     // what did not fit when everything had been told the last time
	busy     atomic.Int64              // nanoseconds that writing changes took
	halt     func()                    // ends what feeds the tables; they stay as they are
	since    time.Time                 // since when somebody waits for it; the plane's lock guards this
	waiter   bool                      // a goroutine tells when that wait ends; the plane's lock guards this
	ways     map[model.Forwarding]bool // the planes that forward by its tables; the plane's lock guards this

	// mu guards what stands below it. Who feeds the tables takes it for each batch, and never the plane's. companions
	// changes only with both held.
	mu         sync.Mutex
	err        error           // why it is done
	ports      map[string]port // by the device's name in the namespace
	interfaces map[int]mirror.Interface
	published  bool
	companions map[model.Forwarding]*follower // they follow the same routes
}

// follower is a companion of the router that is told the same routes.
type follower struct {
	*companion.Companion
	follows bool // it was told a snapshot's beginning and everything since
	waits   bool // for carriers, and must not be told anything; who writes it has the plane's lock as well
	used    bool // packets may be steered to it; the plane's lock is for this
}

// newRouter opens the source of a router's routes, and tables for them. Nobody sees these before they are published,
// which they are once they say what the source has.
func newRouter(p *Plane, job *forward.Job, s *fib.Slice) (*router, error) {
	r := &router{plane: p, id: job.ID, place: job.Place, ways: map[model.Forwarding]bool{}, synced: make(chan struct{}),
		done:       make(chan struct{}),
		interfaces: map[int]mirror.Interface{}, companions: map[model.Forwarding]*follower{}}
	var err error
	if r.stream, err = job.Routes.Open(); err != nil {
		return nil, err
	}
	for f := range r.tables {
		r.tables[f] = s.NewTable(fib.Family(f))
	}
	r.feed, err = feed.New(feed.Config{Slice: s, IPv4: r.tables[fib.IPv4], IPv6: r.tables[fib.IPv6], Port: r.port})
	if err != nil {
		return nil, errors.Join(err, r.stream.Close())
	}
	r.halt = func() { r.stream.Close() } //nolint:errcheck // it was only read from
	return r, nil
}

// follow feeds the router's tables, and its companions', until the stream of its routes ends.
func (r *router) follow() {
	ctx, cancel := context.WithCancel(r.plane.ctx)
	r.halt = sync.OnceFunc(func() {
		cancel()
		<-r.done
		r.stream.Close() //nolint:errcheck // it was only read from
	})
	go func() {
		defer close(r.done)
		err := r.stream.Run(ctx, r.apply)
		if err == nil {
			err = errors.New("the mirror ended")
		}
		r.fail(err, ctx.Err() != nil)
	}()
}

// port returns the fabric's number of an interface of the namespace.
func (r *router) port(index int) (number uint32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.ports[r.interfaces[index].Name]
	return p.number, ok
}

// setPorts says which devices of the namespace are which ports.
func (r *router) setPorts(ports map[string]port) error {
	r.mu.Lock()
	same := maps.Equal(r.ports, ports)
	r.ports = ports
	r.mu.Unlock()
	if same {
		return nil
	}
	for _, c := range r.followers(false) {
		if err := c.PortsChanged(); err != nil {
			return err
		}
	}
	if err := r.feed.PortsChanged(); err != nil {
		return err
	}
	return r.restrict()
}

// apply makes a batch's changes, and shows the tables to the data path when they are whole for the first time.
func (r *router) apply(b *mirror.Batch) error {
	began := time.Now()
	defer func() { r.busy.Add(int64(time.Since(began))) }()
	r.mu.Lock()
	if b.Reset {
		clear(r.interfaces)
	}
	for _, i := range b.Interfaces {
		if i.Name == "" {
			delete(r.interfaces, i.Index)
		} else {
			r.interfaces[i.Index] = i
		}
	}
	r.mu.Unlock()
	// An interface that no longer forwards must stop at once, not only when its routes are gone.
	if len(b.Interfaces) > 0 {
		if err := r.restrict(); err != nil {
			return err
		}
	}
	// Order: companions get what is new before the tables hand over packets for it, and keep what is old for some time.
	followers := r.followers(b.Reset)
	for _, c := range followers {
		if err := c.Before(b); err != nil {
			return err
		}
	}
	if err := r.feed.Apply(b); err != nil {
		return err
	}
	for _, c := range followers {
		if err := c.After(b); err != nil {
			return err
		}
	}
	if r.published || !r.feed.Status().Synced {
		return nil
	}
	r.mu.Lock()
	r.published = true
	r.mu.Unlock()
	if err := r.restrict(); err != nil {
		return err
	}
	for f, t := range r.tables {
		if err := t.Publish(pipeline.Table(r.number, fib.Family(f) == fib.IPv6)); err != nil {
			return err
		}
	}
	close(r.synced)
	return nil
}

// followers returns the companions that a batch is for. A batch that begins a snapshot is for all, and so are those
// after it; a companion that has not seen such a batch cannot follow yet.
func (r *router) followers(reset bool) (list []*companion.Companion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.companions {
		f.follows = f.follows || reset && !f.waits
		if f.follows {
			list = append(list, f.Companion)
		}
	}
	return list
}

// off returns the interfaces at which packets come in only for the guest. The caller holds the lock.
func (r *router) off() map[string]forward.Off {
	off := make(map[string]forward.Off, len(r.ports))
	for _, p := range r.ports {
		off[p.name] = forward.Off{IPv4: true, IPv6: true}
	}
	for _, i := range r.interfaces {
		if p, ok := r.ports[i.Name]; ok {
			off[p.name] = forward.Off{IPv4: !i.Up || !i.Forward[mirror.IPv4], IPv6: !i.Up || !i.Forward[mirror.IPv6]}
		}
	}
	maps.DeleteFunc(off, func(_ string, o forward.Off) bool { return o == forward.Off{} })
	return off
}

// restrict tells the fabric which interfaces forward. Until the tables are shown, what an earlier process said counts.
func (r *router) restrict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.published {
		return nil
	}
	return r.place.Restrict(r.off())
}

// retry tries again what did not fit. Only one goroutine may call it.
func (r *router) retry() {
	s := r.feed.Status()
	if !r.again.due(time.Now(), s.Synced && s.Full == nil, s.Full != nil) {
		return
	}
	if r.feed.Retry() {
		r.stream.Restart()
	}
}

// fail notes why nothing feeds the tables any more. Unless that was meant, the guest gets everything until something
// does.
func (r *router) fail(why error, meant bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = why
	if meant || !r.published {
		return
	}
	clear(r.interfaces)
	if err := r.place.Restrict(r.off()); err != nil {
		r.plane.log.Warn("give a router's packets to its own stack", "router", r.id, "error", err)
	}
}

// failed tells why nothing feeds the tables any more, nil while something does.
func (r *router) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// close frees the tables. Companions stay as they are.
func (r *router) close() {
	for way := range r.companions {
		r.leave(way)
	}
	r.feed.Close()
	for _, t := range r.tables {
		t.Close()
	}
}
