package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// filler sets every field of a value, each to something of its own, so that a field which the model gains is in the
// tests without a word here. mutate, when it is not negative, is the number of the field that gets another value.
type filler struct {
	mutate int
	count  int
	path   string // of the mutated field
	draw   func(n int) int
}

func (f *filler) fill(v reflect.Value, path string) {
	switch v.Type() {
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(f.leaf(path))})))
		return
	case reflect.TypeFor[netip.Prefix]():
		v.Set(reflect.ValueOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(f.leaf(path)), 0}), 24)))
		return
	}
	if v.Type() == reflect.TypeFor[model.File]() { // which has text or bytes
		v.Set(reflect.ValueOf(model.File{Text: fmt.Sprint("line ", f.leaf(path+"[text]")),
			Mode: fmt.Sprint("060", f.leaf(path))}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous {
				f.fill(v.Field(i), path)
				continue
			}
			f.fill(v.Field(i), path+"."+jsonName(v.Type().Field(i)))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		if value.Kind() == reflect.String {
			value.SetString(fmt.Sprint("line ", f.leaf(path)))
		} else {
			f.fill(value, path)
		}
		v.SetMapIndex(reflect.ValueOf("file"), value)
	case reflect.String:
		v.SetString(fmt.Sprint("s", f.leaf(path)))
	case reflect.Bool:
		v.SetBool(f.leaf(path) == 1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.leaf(path)))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.leaf(path)))
	case reflect.Float64:
		v.SetFloat(float64(f.leaf(path)) / 100)
	default:
		panic("no filling for " + v.Type().String())
	}
}

func (f *filler) leaf(path string) int {
	number := f.count
	f.count++
	if f.draw != nil {
		return f.draw(4)
	}
	if number == f.mutate {
		f.path = path
		return 2
	}
	return 1
}

func filled(mutate int) (model.Network, *filler) {
	f := &filler{mutate: mutate}
	var net model.Network
	f.fill(reflect.ValueOf(&net).Elem(), "")
	return net, f
}

// TestEveryFieldIsTold changes one field of the model after the other.
func TestEveryFieldIsTold(t *testing.T) {
	base, f := filled(-1)
	if f.count < 50 {
		t.Fatalf("the model has %d fields; the filling misses some", f.count)
	}
	for i := range f.count {
		other, f := filled(i)
		changes := Diff(base, other)
		if strings.HasPrefix(f.path, ".zeros") {
			continue // how a value was said is no change
		}
		parts := strings.Split(strings.TrimPrefix(f.path, "."), ".")
		last := parts[len(parts)-1]
		if len(changes) == 0 {
			t.Errorf("a change of %s is not told", f.path)
			continue
		}
		if slices.Contains(parts, "forwards") { // shown as files say them
			last = "forwards"
		}
		if slices.Contains(parts, "faults") { // each is shown as one sentence
			last = "faults"
		}
		for _, list := range []string{"vrrp", "mpls"} {
			if slices.Contains(parts, list) { // each entry is shown in a few words
				last = list
			}
		}
		// Fields of what is compared by name or as a statement make another object; other fields are told by name.
		switch {
		case parts[0] == "expect", last == "name" && len(parts) > 1 && len(parts) <= 3 && parts[0] != "name" &&
			parts[1] != "routing",
			slices.Contains(parts, "ends"), slices.Contains(parts, "end"):
			create, _, remove := changes.Count()
			if create != 1 || remove != 1 {
				t.Errorf("a change of %s is told as %v, want one that goes and one that comes", f.path, changes)
			}
		default:
			told := changes[0].Format()
			value := "2"
			if slices.Contains([]string{"trunk", "unannounced", "off", "reflector", "unnumbered", "distinct"}, last) {
				value = "unset"
			}
			if last == "deny" { // one of the words of a rule
				value = "deny set"
			}
			if last == "prefixes" && slices.Contains(parts, "match") || last == "neighbors" && slices.Contains(parts, "in") {
				value = "s2"
			}
			if last == "client" { // one of the words of a neighbour
				value = "name s1 in s1 out s1  (in place)"
			}
			if last == "config" {
				value = "1 removed, 1 added" // files are too long to show
			}
			if last == "files[text]" {
				last, value = "files.file", "1 removed, 1 added"
			}
			if !strings.Contains(told, last) || !strings.Contains(told, value) {
				t.Errorf("a change of %s is told as %q", f.path, told)
			}
		}
	}
}

// Format is all of one change, for the test's messages.
func (c Change) Format() string { return Changes{c}.Format(false) }

func drawNetwork(t *rapid.T, label string) model.Network {
	var net model.Network
	f := &filler{mutate: -1, draw: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }}
	f.fill(reflect.ValueOf(&net).Elem(), "")
	for range rapid.IntRange(0, 3).Draw(t, label+" elements") {
		var el model.Element
		f.fill(reflect.ValueOf(&el).Elem(), "")
		if !slices.ContainsFunc(net.Elements, func(e model.Element) bool { return e.Name == el.Name }) {
			net.Elements = append(net.Elements, el)
		}
	}
	return net
}

func TestPropertyNothingDiffersFromItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net := drawNetwork(t, "net")
		if d := Diff(net, net); len(d) != 0 {
			t.Fatalf("a network differs from itself: %v", d)
		}
	})
}

func TestPropertyForthAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNetwork(t, "a"), drawNetwork(t, "b")
		create, change, remove := Diff(a, b).Count()
		create2, change2, remove2 := Diff(b, a).Count()
		if create != remove2 || change != change2 || remove != create2 {
			t.Fatalf("forth: %s; back: %s", Diff(a, b).Summary(), Diff(b, a).Summary())
		}
		if last := Diff(a, b); len(last) > 0 {
			seen := Delete
			rank := map[Action]int{Delete: 0, Modify: 1, Create: 2}
			for _, c := range last {
				if rank[c.Action] < rank[seen] {
					t.Fatalf("%s of %s comes after a %s", c.Action, c.Object, seen)
				}
				seen = c.Action
			}
		}
	})
}
