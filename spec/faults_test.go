package spec

import (
	"fmt"
	"strings"
	"testing"
)

func TestFaults(t *testing.T) {
	const lab = "network: n\nrouters: [r1, r2, r3]\nlinks:\n  - r1 -- r2\n  - r2 -- r3\n  - r2:eth9 -- r3\nfaults:\n  - "
	for text, want := range map[string]string{
		"{at: 30s, stop: r1 -- r2}":                     "at 30s stop r1--r2",
		"{at: 1m, start: r2 -- r1}":                     "at 1m0s start r1--r2",
		"{at: 0s, restart: r3}":                         "at 0s restart r3",
		"{at: 70s, set: r1--r2, loss: 5%, delay: 10ms}": "at 1m10s set r1--r2 delay=10ms loss=0.05",
		"{at: 1s, stop: r3 -- r2:eth9}":                 "at 1s stop r2--r3.2",
		"{at: 1s, set: r1 -- r2, loss: 0}":              "at 1s set r1--r2 loss=0",
	} {
		nets, err := Parse("f.yaml", []byte(lab+text+"\n"), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(nets[0].Faults); got != "["+want+"]" {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
		checkRoundTrip(t, nets[0])
	}
	for text, want := range map[string]string{
		"{at: 30s}":                         "f.yaml:8:5: faults: it says none of these; a fault has a time and one of",
		"{at: 30s, stop: r1, start: r2}":    "it says two of these",
		"{at: 30, stop: r1}":                "at of faults:",
		"{at: 25h, stop: r1}":               "the time is not between 0s and 24h0m0s",
		"{at: 1s, stop: r1 -- r3}":          "faults: there is no link r1 -- r3",
		"{at: 1s, stop: r2 -- r3}":          "there are 2 links r2 -- r3; name one of r2--r3, r2--r3.2",
		"{at: 1s, stop: r9}":                "there is no element or link r9",
		"{at: 1s, restart: r1 -- r2}":       "r1--r2 is a link; only elements are restarted",
		"{at: 1s, set: r1, loss: 5%}":       "set takes a link",
		"{at: 1s, set: r1 -- r2}":           "set takes a link, and what it is to have",
		"{at: 1s, stop: r1, loss: 5%}":      "loss goes with set",
		"{at: 1s, set: r1 -- r2, loss: 2}":  "loss",
		"{at: 1s, set: r1 -- r2, mtu: 0}":   "mtu: 0 is no limit at all",
		"{at: 1s, set: r1 -- r2, speed: 2}": `has no key "speed"`,
	} {
		if _, err := Parse("f.yaml", []byte(lab+text+"\n"), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
