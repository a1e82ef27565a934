package netns

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// A log that its element's root makes longer than any disk is told from its end on, and costs no more than that.
func TestALogWithHolesHasAnEnd(t *testing.T) {
	attack.Tell(t, "a log of 4 TiB that is a hole",
		"the end of it is shown at once")
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const hole = int64(4) << 40
	if err := f.Truncate(hole); err != nil {
		t.Skipf("no sparse files of 4 TiB here: %v", err)
	}
	if _, err := f.WriteAt([]byte("\nthe end\n"), hole-9); err != nil {
		t.Fatal(err)
	}
	log := &tail{open: func() (*os.File, error) { return os.Open(path) }}
	var out bytes.Buffer
	begin := time.Now()
	if err := log.copy(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "… 3.9TiB before this are left out") ||
		!strings.HasSuffix(out.String(), "\nthe end\n") || out.Len() > logShown+200 {
		t.Errorf("%d bytes in %v: %.100q", out.Len(), time.Since(begin), out.String())
	}
	// What is written while somebody follows comes whole, and what nobody could read is left out again.
	out.Reset()
	if _, err := f.WriteAt([]byte("more\n"), hole); err != nil {
		t.Fatal(err)
	}
	if err := log.copy(&out); err != nil || out.String() != "more\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	if err := f.Truncate(2 * hole); err != nil {
		t.Skip("no sparse files of 8 TiB here")
	}
	if err := log.copy(&out); err != nil || out.Len() > logShown+200 ||
		!strings.HasPrefix(out.String(), "… 3.9TiB before") {
		t.Errorf("%d bytes, %v: %.80q", out.Len(), err, out.String())
	}
	// Lines are not cut where that can be helped.
	lines := filepath.Join(t.TempDir(), "lines")
	var text strings.Builder
	for i := 0; text.Len() < 2*logShown; i++ {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	if err := os.WriteFile(lines, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := (&tail{open: func() (*os.File, error) { return os.Open(lines) }}).copy(&out); err != nil {
		t.Fatal(err)
	}
	if second := strings.SplitN(out.String(), "\n", 3)[1]; !strings.HasPrefix(second, "line ") {
		t.Errorf("it goes on with %q", second)
	}
}
