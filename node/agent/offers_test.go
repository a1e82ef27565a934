package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// offerer is a driver that counts how often it is asked what it offers.
type offerer struct {
	Fabric
	driver model.Feature
	lacks  error
	asked  int
}

func (o *offerer) Offers(context.Context) model.Offers {
	o.asked++
	return model.OfferOf(o.driver, o.lacks)
}

// offerControl is an offerer as a control driver.
type offerControl struct {
	control.Driver
	forward.Routed
	control.Enterer
	*offerer
}

func (o offerControl) Offers(ctx context.Context) model.Offers { return o.offerer.Offers(ctx) }

// bareControl is one that has no method but a driver's own.
type bareControl struct {
	control.Driver
	offerer *offerer
}

func (b bareControl) Offers(ctx context.Context) model.Offers { return b.offerer.Offers(ctx) }

// TestWhatForwardingNeedsIsOffered: whether routes can be followed, and namespaces be entered, follows from a control
// driver's methods. What it says of itself stays.
func TestWhatForwardingNeedsIsOffered(t *testing.T) {
	all := append(able(bareControl{offerer: &offerer{driver: "control: vm"}}, t.Context()), able(offerControl{offerer: &offerer{driver: "control: netns",
		lacks: errors.New("no nsenter")}}, t.Context())...)
	for _, f := range []model.Feature{model.FeatureRoutes, model.FeatureEnter} {
		if why := all.Lack(model.Want{Feature: f, Driver: "control: vm"}); why == "" {
			t.Errorf("a driver without the methods offers %s", f)
		}
		if !slices.Contains(all[1].Makes, f) || all.Lacks()["control: netns"] != "no nsenter" {
			t.Errorf("a driver with the methods offers %v, lacks %v, not %s", all[1].Makes, all[1].Lacks, f)
		}
	}
}

// registrar is a manager that notes registrations.
type registrar struct {
	Manager
	told []model.Registration
	away error
}

func (r *registrar) Register(_ context.Context, _ string, is model.Registration) error {
	if r.away == nil {
		r.told = append(r.told, is)
	}
	return r.away
}

// TestOffersAreToldWhenTheyChange: the manager learns what each driver makes and lacks when the agent comes, and again
// when that has changed. Those that lacked something are asked again; the others when something has failed.
func TestOffersAreToldWhenTheyChange(t *testing.T) {
	vm := &offerer{driver: "control: vm", lacks: errors.New("no /dev/kvm")}
	netns := &offerer{driver: "control: netns"}
	links := &offerer{driver: "delay"}
	manager := &registrar{}
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"), Log: slog.New(slog.DiscardHandler),
		Manager: manager, Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: offerControl{offerer: netns},
				model.ControlVM: offerControl{offerer: vm}},
			Fabric: links}}}
	ctx := t.Context()
	step := func(what string, always bool, told, asked int, lacks string) {
		t.Helper()
		if err := a.register(ctx, always); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(manager.told) != told || netns.asked != asked {
			t.Fatalf("%s: told %d times, want %d; a driver that lacks nothing was asked %d times, want %d", what,
				len(manager.told), told, netns.asked, asked)
		}
		last := manager.told[told-1].Offers
		if got := last.Lacks()["control: vm"]; len(last) != 3 || got != lacks {
			t.Errorf("%s: told %+v, want three offers of which control: vm lacks %q", what, last, lacks)
		}
	}
	step("the agent comes", true, 1, 1, "no /dev/kvm")
	step("nothing is new", false, 1, 1, "no /dev/kvm")
	step("the manager is another", true, 2, 1, "no /dev/kvm")
	vm.lacks = nil
	step("kvm was loaded", false, 3, 1, "")
	vm.lacks = errors.New("no /dev/kvm any more")
	step("it is gone, and nothing has failed", false, 3, 1, "")
	a.offered.doubt.Store(true)
	step("something has failed", false, 4, 2, "no /dev/kvm any more")
	vm.lacks = nil
	manager.away = errors.New("away")
	if err := a.register(ctx, false); err == nil {
		t.Error("nobody hears that the manager does not")
	}
	manager.away = nil
	step("it is back", false, 5, 2, "")
}
