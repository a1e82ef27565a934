package software

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestUnannouncedInternetEdge: a router at an internet edge keeps its default route to itself where the file says so.
func TestUnannouncedInternetEdge(t *testing.T) {
	for file, el := range goldens() {
		if !strings.HasSuffix(file, "-internet.conf") {
			continue
		}
		for _, unannounced := range []bool{false, true} {
			el.Interfaces[3].Unannounced = unannounced
			plan, err := Render("lab", el)
			if err != nil {
				t.Fatal(err)
			}
			conf := content(t, plan, plan.ConfigFiles[0])
			for _, word := range map[model.Software][]string{
				model.SoftwareFRR:  {"default-information originate", "default-originate"},
				model.SoftwareBIRD: {"net = 0.0.0.0/0", "net = ::/0"},
			}[el.Software] {
				if strings.Contains(conf, word) == unannounced {
					t.Errorf("%s, unannounced %v: %q is wrong in\n%s", file, unannounced, word, conf)
				}
			}
			checkSyntax(t, el.Software, conf)
		}
	}
}
