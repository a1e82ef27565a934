package plan

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestLossIsAPercentage: all packets are 100 %, and not 1, which people take for one percent.
func TestLossIsAPercentage(t *testing.T) {
	for loss, want := range map[float64]string{1: "100%", 0.01: "1%", 0.0007: "0.07%", 0.335: "33.5%"} {
		net := func(loss float64) model.Network {
			return model.Network{Links: []model.Link{{Name: "a--b", Loss: loss}}}
		}
		if told := Diff(net(0), net(loss)).Format(false); !strings.Contains(told, "loss: unset → "+want+"  ") &&
			!strings.Contains(told, "loss: unset → "+want+"\n") {
			t.Errorf("a loss of %v is told as %q", loss, told)
		}
	}
}
