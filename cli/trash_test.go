package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// The trash is listed with whose it was, also as JSON, and restore says whether it may be anybody's.
func TestTrashTellsTheOwner(t *testing.T) {
	f := &fake{trash: model.TrashList{Items: []model.TrashItem{
		{ID: "lab/r1@20260301T110000.000000Z", Element: model.ID{Network: "lab", Element: "r1"}, Owner: "alice",
			Node: "n1", Time: now.Add(-time.Hour), Size: 5 << 20},
		{ID: "old/r1@20260228T110000.000000Z", Element: model.ID{Network: "old", Element: "r1"}, Node: "n2", Time: now},
	}}}
	r := run(t, f, "trash", "list")
	lines := strings.Split(r.out, "\n")
	for i, want := range []string{"ITEM OWNER NODE SIZE SINCE", "lab/r1@20260301T110000.000000Z alice n1 5",
		"old/r1@20260228T110000.000000Z - n2 0"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); r.code != 0 || !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	if r := run(t, f, "trash", "list", "-o", "wide", "--no-headers"); !strings.Contains(r.out, " 5242880") ||
		!strings.HasPrefix(r.out, "lab/r1@") {
		t.Errorf("wide says\n%s", r.out)
	}
	if r := run(t, f, "trash", "list", "-o", "json"); !strings.Contains(r.out, `"owner": "alice"`) {
		t.Errorf("as JSON it is\n%s", r.out)
	}
	for _, flag := range [][]string{nil, {"--any-owner"}} {
		f.restored = nil
		r := run(t, f, append([]string{"trash", "restore", "lab/r1@20260301T110000.000000Z"}, flag...)...)
		if r.code != 0 || len(f.restored) != 1 || f.restored[0].AnyOwner != (flag != nil) {
			t.Errorf("restore %v ends with %d, and asked %+v", flag, r.code, f.restored)
		}
	}
}
