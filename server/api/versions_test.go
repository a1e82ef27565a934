package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
)

// While a node is upgraded, its agent and the manager are of different versions. An agent that knows nothing of changes
// is told everything each time.
func TestAnEarlierAgentIsToldEverything(t *testing.T) {
	c, dirs, _ := run(t, 1)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", dirs.ManagerSocket())
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://x/v1/nodes/n1/desired")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	told := json.NewDecoder(resp.Body)
	hear := func(networks ...string) {
		t.Helper()
		for {
			var line struct { // what an earlier agent knows of a line
				State *model.NodeState `json:"state,omitempty"`
			}
			if err := told.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if line.State == nil {
				continue
			}
			var names []string
			for _, n := range line.State.Networks {
				names = append(names, n.Name)
			}
			if is, want := strings.Join(names, " "), strings.Join(networks, " "); is != want {
				t.Fatalf("was told of %q, want %q", is, want)
			}
			return
		}
	}
	hear()
	for i, all := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
		if _, err := c.Apply(t.Context(), duo(all[i]), model.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		hear(all...)
	}
}

// A manager that knows nothing of changes tells everything each time, whatever it is asked for; and a longer line
// follows shorter ones, and shorter ones it.
func TestAnEarlierManagerIsUnderstood(t *testing.T) {
	dirs := instance.Dirs{Name: "test", Run: t.TempDir(), Data: t.TempDir()}
	l, err := api.Listen(t.Context(), dirs.ManagerSocket())
	if err != nil {
		t.Fatal(err)
	}
	network := func(name string, size int) model.NodeNetwork {
		return model.NodeNetwork{Name: name,
			Elements: []model.NodeElement{{PlacedElement: model.PlacedElement{Name: "r1",
				Config: map[string]string{"bird.conf": strings.Repeat("x", size)}}}}}
	}
	sizes := []int{1, 3 << 20, 5, 2 << 20, 2 << 20, 1}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/nodes/n1/desired", func(w http.ResponseWriter, _ *http.Request) {
		for i, size := range sizes {
			json.NewEncoder(w).Encode(map[string]model.NodeState{"state": {Node: "n1", Revision: int64(i), //nolint:errcheck // the reader tells
				Networks: []model.NodeNetwork{network("a", size), network("b", i)}}})
			fmt.Fprintln(w, "{}")
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, mux, l) }()
	defer func() { cancel(); <-served }()
	c := client.New(dirs)
	defer c.Close()
	i := 0
	err = c.WatchDesired(t.Context(), "n1", func(s model.NodeState) error {
		if s.Revision != int64(i) || len(s.Networks) != 2 ||
			len(s.Networks[0].Elements[0].Config["bird.conf"]) != sizes[i] ||
			len(s.Networks[1].Elements[0].Config["bird.conf"]) != i {
			return fmt.Errorf("line %d is of revision %d", i, s.Revision)
		}
		i++
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) || i != len(sizes) {
		t.Errorf("%d of %d states: %v", i, len(sizes), err)
	}
}
