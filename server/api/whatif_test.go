package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// Whoever asks what would be learns of others' networks how many there are, and no more; whoever sees everything is
// told everything; and nothing is changed.
func TestWhatIfTellsOwnersOfTheirOwn(t *testing.T) {
	n := openNamesakes(t)
	before, err := n.root.Dump(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	const ask = `{"down":["base"],"add":[{"name":"big","like":"base"}]}`
	for _, c := range []struct {
		user     string
		networks []string
		others   int
	}{{"alice", []string{"duo"}, 3}, {"zoe", nil, 4}, {"vic", []string{"alice/duo", "bob/duo", "bob/secret", "root/duo"}, 0}} {
		status, text := n.ask(c.user, http.MethodPost, "/v1/what-if", ask)
		var r model.WhatIfResult
		if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s (%v)", c.user, status, text, err)
		}
		var networks []string
		for _, w := range r.Networks {
			networks = append(networks, w.Network)
			if len(w.Elements) == 0 || w.Elements[0].To != "big" {
				t.Errorf("%s is told of %+v", c.user, w)
			}
		}
		if c.others == 0 { // vic's are called by keys
			if len(networks) != 4 {
				t.Errorf("%s is told of %v", c.user, networks)
			}
		} else if strings.Join(networks, " ") != strings.Join(c.networks, " ") {
			t.Errorf("%s is told of %v, want %v", c.user, networks, c.networks)
		}
		if r.Others.Networks != c.others || len(r.Nodes) != 1 || r.Nodes[0].Name != "big" {
			t.Errorf("%s is told of others %+v, and of nodes %+v", c.user, r.Others, r.Nodes)
		}
		if c.others > 0 {
			for _, word := range []string{"bob", "secret", n.keys["bob/duo"], n.keys["alice/duo"]} {
				if strings.Contains(text, word) {
					t.Errorf("%s is told of %s: %s", c.user, word, text)
				}
			}
		}
	}
	for _, wrong := range []string{`{}`, `{"down":["nowhere"]}`, `{"add":[{"name":"x"}]}`} {
		if status, text := n.ask("alice", http.MethodPost, "/v1/what-if", wrong); status != http.StatusUnprocessableEntity &&
			status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, status, text)
		}
	}
	after, err := n.root.Dump(t.Context(), "")
	if err != nil || len(after.Networks) != len(before.Networks) || after.Networks[0].Revision != before.Networks[0].Revision {
		t.Errorf("something was changed: %+v, %v", after.Networks, err)
	}
}
