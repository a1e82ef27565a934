package cli

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestWhatWasFoundStandsBesideWhatIsStated(t *testing.T) {
	link := func(stated, speed model.Bandwidth, state model.FoundState, devices ...string) model.SubstrateLinkStatus {
		l := model.SubstrateLinkStatus{SubstrateLink: model.SubstrateLink{A: "n1", B: "n2", Bandwidth: stated},
			Found: &model.FoundLink{State: state, Speed: speed}}
		copy(l.Found.Devices[:], devices)
		return l
	}
	of := link(0, 10e9, model.FoundSwitch, "eth0", "Gi1/0/7")
	of.Found.Switch = &model.HeardSwitch{Chassis: "00:1b:21:01:02:03", Port: "Gi1/0/7", Name: "core\x1b[2J"}
	for name, c := range map[string]struct {
		link             model.SubstrateLinkStatus
		found, speed, by string
	}{
		"not known":          {model.SubstrateLinkStatus{}, "", "", ""},
		"both":               {link(1e9, 1e9, model.FoundBoth, "to-n2", "to-n1"), "yes", "1Gbit", "to-n2 to-n1"},
		"faster than stated": {link(1e9, 10e9, model.FoundBoth, "a", "b"), "yes", "10Gbit", "a b"},
		"slower":             {link(10e9, 1e9, model.FoundBoth, "a", "b"), "slower: 1Gbit", "1Gbit", "a b"},
		"no speed":           {link(10e9, 0, model.FoundBoth, "a", "b"), "yes", "", "a b"},
		"the first only":     {link(0, 0, model.FoundOne, "a"), "by n1 only", "", "a"},
		"the second only":    {link(0, 0, model.FoundOne, "", "b"), "by n2 only", "", "b"},
		"lost":               {link(0, 0, model.FoundLost, "a", "b"), "lost", "", "a b"},
		"none":               {link(0, 0, model.FoundNone), "no", "", ""},
		"a switch":           {of, "switch", "10Gbit", "eth0 Gi1/0/7 of 00:1b:21:01:02:03"},
	} {
		if got := found(c.link).text; got != c.found {
			t.Errorf("%s: found is %q, and not %q", name, got, c.found)
		}
		if speed, by := foundSpeed(c.link), foundBy(c.link); speed != c.speed || by != c.by {
			t.Errorf("%s: the speed is %q, by %q", name, speed, by)
		}
	}
}
