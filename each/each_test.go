package each_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/polyplane/polyplane/each"
)

func TestListsAndSets(t *testing.T) {
	numbers := []int{3, 1, 3}
	if got := each.Of(numbers, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "3"}) {
		t.Errorf("of each: %q", got)
	}
	if got := each.Of(numbers[:0], strconv.Itoa); got != nil {
		t.Errorf("of nothing there is %q, which JSON shows as a list", got)
	}
	some := each.That(numbers, func(n int) bool { return n > 2 })
	if !slices.Equal(some, []int{3, 3}) || !slices.Equal(numbers, []int{3, 1, 3}) {
		t.Errorf("those above 2: %v of %v", some, numbers)
	}
	set := each.Set(numbers)
	if !maps.Equal(set, map[int]bool{1: true, 3: true}) {
		t.Errorf("as a set: %v", set)
	}
	empty := each.Set[int](nil)
	empty[1] = true // a set may be added to, also if nothing was in the list
	if got := each.SetOf(numbers, strconv.Itoa); !maps.Equal(got, map[string]bool{"1": true, "3": true}) {
		t.Errorf("as a set of words: %v", got)
	}
	type named struct{ name, value string }
	by := each.By([]named{{"a", "1"}, {"b", "2"}, {"a", "3"}}, func(n named) string { return n.name })
	if want := map[string]named{"a": {"a", "3"}, "b": {"b", "2"}}; !maps.Equal(by, want) {
		t.Errorf("by name: %v, and the later of two should be there: %v", by, want)
	}
}
