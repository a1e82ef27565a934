package resolve

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestHook(t *testing.T) {
	for _, c := range []struct {
		kind    model.Kind
		hook    model.Hook
		problem string
	}{
		{model.Router, "", ""}, {model.Router, model.HookAuto, ""}, {model.Router, model.HookTC, ""},
		{model.Router, model.HookXDP, ""},
		{model.Router, "native", `the hook "native" is unknown; there are auto, tc or xdp`},
		{model.Host, model.HookXDP, "a host has no hook"}, {model.Switch, model.HookTC, "a switch has no hook"},
	} {
		net := model.Network{Name: "lab", Elements: []model.Element{{Name: "e", Kind: c.kind, Hook: c.hook}}}
		var hook []string
		for _, p := range problemsOf(net) {
			if strings.Contains(p.Error(), "hook") {
				hook = append(hook, p.Error())
			}
		}
		if text := strings.Join(hook, "; "); c.problem == "" && text != "" || !strings.Contains(text, c.problem) {
			t.Errorf("hook %q of a %s: %q, not %q", c.hook, c.kind, text, c.problem)
		}
	}
	// A node's own hook counts before the substrate's.
	states := model.NodeStates(nil,
		model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1"}, {Name: "n2", Hook: model.HookTC}},
			Hook: model.HookXDP})
	if states["n1"].Hook != model.HookXDP || states["n2"].Hook != model.HookTC {
		t.Errorf("the nodes' hooks are %q and %q", states["n1"].Hook, states["n2"].Hook)
	}
}
