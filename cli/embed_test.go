package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEmbedReplaysADataSet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := run(t, &fake{}, "embed", "--generate", dir, "--requests", "4", "--seed", "3", "--topology", "geant")
	if r.code != ExitOK || !strings.Contains(r.out, "4 requests for 40 nodes and 61 links") {
		t.Fatalf("%d: %s%s", r.code, r.out, r.err)
	}
	r = run(t, &fake{}, "embed", "--virne", dir, "-o", "json")
	var got replayResult
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Requests != 4 || got.Nodes != 40 ||
		got.Accepted == 0 || got.RevenueToCost == 0 {
		t.Errorf("%d: %s%s (%v)", r.code, r.out, r.err, err)
	}
	if r = run(t, &fake{}, "embed", "--virne", dir); !strings.Contains(r.out, "Substrate           40 nodes, 61 links\n") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	if err := os.WriteFile(filepath.Join(dir, "v_nets", "v_net-00002.gml"), []byte("graph [ node [ id 1 ] ]"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--virne DIR is needed"},
		{[]string{"--virne", dir, "--generate", dir}, "two commands"},
		{[]string{"--generate", dir}, "file exists"},
		{[]string{"--virne", dir}, "v_net-00002.gml: line 1: the node has no cpu"},
		{[]string{"--generate", dir + "2", "--requests", "0"}, "0 requests cannot be made"},
		{[]string{"--generate", dir + "2", "--topology", "ring"}, "waxman, geant, brain"},
	} {
		r := run(t, &fake{}, append([]string{"embed"}, c.args...)...)
		if _, err := os.Stat(dir + "2"); r.code != ExitUsage || !strings.Contains(r.err, c.want) || err == nil {
			t.Errorf("%v: %d, %q; wanted %q", c.args, r.code, r.err, c.want)
		}
	}
}
