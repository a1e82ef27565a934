package convert

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

// TestPublicLabs: of each of containerlab's own example labs, as it is, a network comes that can be made, with a node for
// each of its nodes, and what is not carried over is told.
func TestPublicLabs(t *testing.T) {
	const root = "../build/labs/containerlab"
	if _, err := os.Stat(root); err != nil {
		t.Skip("containerlab's examples are not in build/labs, where `scripts/setup test` puts them if they are to be had")
	}
	labs, nodes := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yml") && !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		result, err := Read(filepath.Base(path), data, allWords, beside(path))
		if err != nil || result.Format != Containerlab {
			if lab := strings.Contains(string(data), "\ntopology:"); lab {
				t.Errorf("%s is a lab and is taken for none: %+v, %v", path, result, err)
			}
			return nil
		}
		nets, err := spec.Parse(path, result.YAML, spec.Options{})
		if err != nil {
			t.Errorf("what comes of %s is refused: %v", path, err)
			return nil
		}
		if _, problems := resolve.Read(nets[0]); len(problems) > 0 || len(nets[0].Elements) == 0 {
			t.Errorf("what comes of %s cannot be made: %v\n%s", path, problems, result.YAML)
		}
		if len(result.Notes) == 0 {
			t.Errorf("nothing is told of %s, which has kinds of nodes and images that are not there", path)
		}
		labs, nodes = labs+1, nodes+len(nets[0].Elements)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if labs < 35 || nodes < 100 {
		t.Errorf("only %d labs with %d nodes were found", labs, nodes)
	}
}
