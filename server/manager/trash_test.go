package manager

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

// What a node says is in its trash is shown to people, so only what nodes can have there is taken.
func TestOnlyRealTrashIsListed(t *testing.T) {
	id := model.ID{Network: "lab", Element: "r1"}
	for item, want := range map[string]bool{
		"lab/r1@20261123T034654.454543Z": true,
		"lab/r2@20261123T034654.454543Z": false, // another's name
		"lab/r1@2026\x1b[2J":             false,
		"lab/r1@":                        false,
		"lab/r1":                         false,
	} {
		if got := listable(model.TrashItem{ID: item, Element: id}); got != want {
			t.Errorf("%q: taken is %v, want %v", item, got, want)
		}
	}
	if listable(model.TrashItem{ID: "a\x1bb/r1@1Z", Element: model.ID{Network: "a\x1bb", Element: "r1"}}) {
		t.Error("a network whose name no network has is taken")
	}
}
