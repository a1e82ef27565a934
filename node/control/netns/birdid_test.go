package netns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// TestBIRDWithoutIPv4: BIRD takes its router ID from an IPv4 address. A router that has none is given one with the
// configuration that is made for it; where the configuration is its owner's, he is told what it lacks.
func TestBIRDWithoutIPv4(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 43, 2)
	for i := range jobs {
		jobs[i].Element.Loopback = nil
		for k := range jobs[i].Element.Interfaces {
			f := &jobs[i].Element.Interfaces[k]
			f.Addresses = slices.DeleteFunc(slices.Clone(f.Addresses),
				func(p netip.Prefix) bool { return p.Addr().Is4() })
		}
	}
	jobs[1].Element.Config = map[string]string{"bird.conf": "log \"/var/log/bird/bird.log\" all;\nprotocol device { " +
		"}\n"}
	n.Apply(t.Context(), jobs)
	until(t, "one to run and the other to say what it lacks", func() bool {
		n.lookAtAll(true)
		results := n.Apply(t.Context(), jobs)
		return results[0].Phase == model.PhaseRunning && results[1].Err != nil &&
			strings.Contains(results[1].Err.Error(), "router id")
	}, func() any { return results(n.Apply(t.Context(), jobs)) })
	jobs[1].Element.Config = map[string]string{"bird.conf": "router id 10.255.0.1;\nprotocol device { }\n"}
	until(t, "both to run", func() bool {
		n.lookAtAll(true)
		r := n.Apply(t.Context(), jobs)
		return r[0].Phase == model.PhaseRunning && r[1].Phase == model.PhaseRunning
	}, func() any { return results(n.Apply(t.Context(), jobs)) })
}

func until(t *testing.T, what string, is func() bool, instead func() any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain: %v", what, instead())
		}
	}
}

func results(list []control.Result) (said []string) {
	for _, r := range list {
		word := string(r.Phase) + " " + r.Message
		if r.Err != nil {
			word += ": " + r.Err.Error()
		}
		said = append(said, r.ID.String()+" "+word)
	}
	return said
}
