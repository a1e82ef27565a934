package software

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestTimersAreDocumented: whoever writes a configuration by hand finds the timers of generated ones, which neighbours
// must agree on, in docs/file-format.md.
func TestTimersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/file-format.md")
	if err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprintf("hello %d s; dead after %d s on links between two routers, %d s on segments with a switch",
		model.UsualHello, model.UsualLinkDead, model.UsualSegmentDead)
	for _, row := range []string{"| OSPF | " + dead, "| IS-IS | " + dead,
		fmt.Sprintf("| BGP | keepalive %d s, hold time %d s |", model.UsualKeepalive, model.UsualHold),
		fmt.Sprintf("| RIP | update %d s, timeout %d s, garbage collection %d s |", model.UsualRIPUpdate, model.UsualRIPTimeout,
			model.UsualRIPGarbage),
		fmt.Sprintf("1 to 65535; %d when left out", defaultCost)} {
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/file-format.md does not say %q", row)
		}
	}
}
