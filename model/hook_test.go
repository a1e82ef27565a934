package model

import (
	"strings"
	"testing"
)

func TestHook(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		hook    Hook
		problem string
	}{
		{Router, "", ""}, {Router, HookAuto, ""}, {Router, HookTC, ""}, {Router, HookXDP, ""},
		{Router, "native", `the hook "native" is unknown; there are auto, tc or xdp`},
		{Host, HookXDP, "a host has no hook"}, {Switch, HookTC, "a switch has no hook"},
	} {
		net := Complete(Network{Name: "lab", Elements: []Element{{Name: "e", Kind: c.kind, Hook: c.hook}}})
		var hook []string
		for _, p := range net.Validate() {
			if strings.Contains(p.Error(), "hook") {
				hook = append(hook, p.Error())
			}
		}
		if text := strings.Join(hook, "; "); c.problem == "" && text != "" || !strings.Contains(text, c.problem) {
			t.Errorf("hook %q of a %s: %q, not %q", c.hook, c.kind, text, c.problem)
		}
	}
	// A node's own hook counts before the substrate's.
	states := NodeStates(nil, Substrate{Nodes: []SubstrateNode{{Name: "n1"}, {Name: "n2", Hook: HookTC}}, Hook: HookXDP})
	if states["n1"].Hook != HookXDP || states["n2"].Hook != HookTC {
		t.Errorf("the nodes' hooks are %q and %q", states["n1"].Hook, states["n2"].Hook)
	}
}
