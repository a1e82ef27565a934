package lifecycle

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
)

// Restores without end do not fill the disk with stores that were set aside.
func TestStoresThatWereSetAsideAreBounded(t *testing.T) {
	var out bytes.Buffer
	r := &Restore{Dirs: instance.Dirs{Name: "test", Data: t.TempDir()}, Out: &out}
	for i := range 9 {
		name := fmt.Sprintf("%s202611%02dT120000.000Z", aside, i+1)
		if err := os.MkdirAll(filepath.Join(r.Dirs.Data, name, "etcd", "member"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.bound(); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(r.Dirs.Data, aside+"*"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(paths)
		if len(paths) != min(i+1, mostAside) || !strings.Contains(paths[0], "20261101T") || filepath.Base(paths[len(paths)-1]) != name {
			t.Fatalf("after %d there are %v", i+1, paths)
		}
	}
	if said := out.String(); !strings.Contains(said, "20261105T") || strings.Contains(said, "20261101T") {
		t.Errorf("it says\n%s", said)
	}
}
