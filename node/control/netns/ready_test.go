package netns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestReadyAtOnce looks at new elements in the instant that Apply returns: no address is tentative, settings are the
// wanted ones, and the ports are silent. That the carrier is there is told by the kernel's linkwatch a little later.
func TestReadyAtOnce(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 1, 30)
	n.apply(t, jobs)
	for _, j := range jobs {
		if out := n.in(t, j.ID, "ip -o -6 addr show tentative"); out != "" {
			t.Errorf("%s is not ready:\n%s", j.ID, out)
		}
		for n.in(t, j.ID, "ip -o link | grep NO-CARRIER || true") != "" && t.Context().Err() == nil {
		}
		out := n.in(t, j.ID, "ip -o addr show scope global")
		for _, f := range j.Element.Interfaces {
			for _, a := range f.Addresses {
				if !strings.Contains(out, fmt.Sprintf("%s    inet", f.Name)) || !strings.Contains(out, a.String()) {
					t.Errorf("%s has not address %s on %s:\n%s", j.ID, a, f.Name, out)
				}
			}
		}
	}
	for _, s := range sysctls(model.Router) {
		path := "/proc/sys/net/" + s.name
		got := n.in(t, jobs[3].ID, "cat "+path+" 2>/dev/null || echo "+s.value)
		if got != s.value {
			t.Errorf("%s is %q: want %q", path, got, s.value)
		}
	}
	if out := sh(t, "ip -o -6 addr show; ip -6 route show table all | grep -v ' dev lo' || true"); strings.Contains(out,
		"dev pp") || strings.Contains(out, " pp") {
		t.Errorf("the node's own stack uses IPv6 on ports:\n%s", out)
	}
	if out := sh(t, "ip -o link | grep ': pp' | grep -v NOARP || true"); out != "" {
		t.Errorf("the node's own stack answers ARP on ports:\n%s", out)
	}
}
