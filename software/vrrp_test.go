package software

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

// virtualOn is the element with a part in two virtual routers of its switch's segment.
func virtualOn(el model.ResolvedElement) model.ResolvedElement {
	el.Interfaces[1].VRRP = []model.VirtualRouter{
		{ID: 1, Address: addr("10.0.2.254"), Priority: 200, Interval: model.UsualVRRPInterval, Preempt: true,
			Device: "vrrp1-sw"},
		{ID: 7, Address: addr("10.0.2.253"), Priority: 50, Interval: model.UsualVRRPInterval / 10, Device: "vrrp7-sw"}}
	return el
}

// TestVirtualRoutersAreJudged: what FRR 8.4 says of virtual routers, and what that means for who asks.
func TestVirtualRoutersAreJudged(t *testing.T) {
	const both = `[{"vrid":1,"v4":{"status":"Master","addresses":["10.0.2.254"]},"v6":{"status":"Initialize","addresses":[]}},
{"vrid":7,"v4":{"status":"Backup","addresses":["10.0.2.253"]},"v6":{"status":"Initialize","addresses":[]}}]`
	look := func(state, of string, not bool) *model.Look {
		l := model.Look{Not: not, Known: model.Known{What: model.KnownVirtual, State: state}}
		if of != "" {
			l.Via = addr(of)
		}
		return &l
	}
	for name, c := range map[string]struct {
		look *model.Look
		said Output
		want model.LookAnswer
	}{
		"it is":           {look("master", "10.0.2.254", false), Output{both, 0}, model.LookAnswer{So: true}},
		"it is the other": {look("backup", "10.0.2.254", false), Output{both, 0}, model.LookAnswer{Seen: "master of 10.0.2.254"}},
		"one of both is":  {look("master", "", false), Output{both, 0}, model.LookAnswer{Seen: "backup of 10.0.2.253"}},
		"it must not be":  {look("master", "10.0.2.254", true), Output{both, 0}, model.LookAnswer{Seen: "master of 10.0.2.254"}},
		"it is not":       {look("backup", "10.0.2.254", true), Output{both, 0}, model.LookAnswer{So: true}},
		"no part":         {look("master", "10.0.2.1", false), Output{both, 0}, model.LookAnswer{Seen: "no part in it"}},
		"no part in any":  {look("master", "", false), Output{"[]", 0}, model.LookAnswer{Seen: "no part in it"}},
		"no JSON":         {look("master", "", false), Output{"gotcha", 0}, model.LookAnswer{Error: "what vtysh answers is not understood: gotcha"}},
		"nobody to be asked": {look("master", "", true), Output{"vrrpd is not running\n", 1},
			model.LookAnswer{Error: "vtysh ended with status 1: vrrpd is not running"}},
	} {
		if got := Answer(model.SoftwareFRR, c.look, []Output{c.said}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if _, err := Asking(model.SoftwareBIRD, look("master", "", false)); err == nil {
		t.Error("BIRD would be asked for VRRP")
	}
}
