package agent

import (
	"context"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// offerEvery is how often drivers that lack something are asked again, in case somebody has installed it.
const offerEvery = 10 * time.Second

// offered is what this node has told the manager that it offers.
type offered struct {
	mu    sync.Mutex     // held while the manager is told
	told  model.Offers   // what the manager has taken
	each  []model.Offers // what each driver told last, in the order of Drivers.offerers
	doubt atomic.Bool    // something has failed, so each driver is to be asked again
}

// all are the offers of all drivers.
func (o *offered) all() model.Offers { return slices.Concat(o.each...) }

// offerers are the parts that say what they offer.
func (d *Drivers) offerers() (all []func(context.Context) model.Offers) {
	for _, name := range slices.Sorted(maps.Keys(d.Controls)) {
		all = append(all, func(ctx context.Context) model.Offers { return able(d.Controls[name], ctx) })
	}
	for _, of := range slices.SortedFunc(maps.Keys(d.Planes), func(a, b PlaneOf) int {
		return strings.Compare(a.String(), b.String())
	}) {
		all = append(all, d.Planes[of].Offers)
	}
	all = append(all, d.Fabric.Offers)
	if d.Edges != nil {
		all = append(all, d.Edges.Offers)
	}
	return all
}

// able are a control driver's offers, with what forwarding needs of it. That follows from the driver's methods, so no
// driver says it.
func able(driver control.Driver, ctx context.Context) model.Offers {
	all := slices.Clone(driver.Offers(ctx))
	for i := range all {
		o := &all[i]
		o.Lacks = maps.Clone(o.Lacks)
		note := func(f model.Feature, can bool, why string) {
			if can {
				o.Makes = append(slices.Clip(o.Makes), f)
			} else if o.Lacks == nil {
				o.Lacks = map[model.Feature]string{f: why}
			} else {
				o.Lacks[f] = why
			}
		}
		_, routed := driver.(forward.Routed)
		note(model.FeatureRoutes, routed, "it does not tell its elements' routes, which forwarding needs")
		_, enterer := driver.(control.Enterer)
		note(model.FeatureEnter, enterer, "its elements have no network namespace here, where a bridge could be")
	}
	return all
}

// ask asks drivers what they offer: all of them, or only those that lacked something last time.
func (a *Agent) ask(ctx context.Context, each bool) {
	lacked, offerers := a.offered.all().Lacks(), a.Drivers.offerers()
	if a.offered.each == nil {
		a.offered.each, each = make([]model.Offers, len(offerers)), true
	}
	for i, offers := range offerers {
		if each || len(a.offered.each[i].Lacks()) > 0 {
			a.offered.each[i] = offers(ctx)
		}
	}
	lacks := a.offered.all().Lacks()
	for _, f := range slices.Sorted(maps.Keys(lacks)) {
		if lacked[f] != lacks[f] {
			a.Log.Warn("this machine lacks something", "for", f, "problem", lacks[f])
		}
	}
}

// register tells the manager who this node is and what it offers: whenever it is called with always, and else only if
// the manager does not know these offers.
func (a *Agent) register(ctx context.Context, always bool) error {
	a.offered.mu.Lock()
	defer a.offered.mu.Unlock()
	a.ask(ctx, a.offered.doubt.Swap(false))
	offers := a.offered.all()
	if ctx.Err() != nil || !always && reflect.DeepEqual(offers, a.offered.told) {
		return ctx.Err()
	}
	is := model.Registration{Socket: a.Dirs.AgentSocket(), PID: os.Getpid(), Offers: offers}
	if a.Outpost != nil { // its socket is on another machine than the manager
		is.Socket, is.Machine = "", &a.Outpost.Machine
	}
	err := a.Manager.Register(ctx, a.Dirs.Node, is)
	if err == nil {
		a.offered.told = offers
	}
	return err
}

// offer keeps what the manager knows of the node's offers up to date.
func (a *Agent) offer(ctx context.Context) error {
	for sleep(ctx, offerEvery) {
		if err := a.register(ctx, false); err != nil && ctx.Err() == nil {
			a.Log.Debug("tell what the node offers", "error", err)
		}
	}
	return nil
}
