package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// fill gives every field below v a value other than zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.NumField() > 0 && !v.Type().Field(0).IsExported() {
			return // an address or a time: what they encode to is theirs
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("w" + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		v.SetInt(int64(1 + *n%100))
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(uint64(1 + *n%100))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(1 + *n%100))
	}
}

// What a node is told is put together from parts; no field may be forgotten.
func TestEveryFieldOfTheStateIsTold(t *testing.T) {
	var state model.NodeState
	n := 0
	v := reflect.ValueOf(&state).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "Networks" {
			fill(v.Field(i), &n)
		}
		if v.Type().Field(i).Name != "Networks" && v.Field(i).IsZero() {
			t.Fatalf("the test does not fill %s", v.Type().Field(i).Name)
		}
	}
	for networks := range 3 {
		whole := state
		var parts [][]byte
		for i := range networks {
			nn := model.NodeNetwork{Name: string(rune('a' + i)), Index: uint32(i + 1)}
			parts = append(parts, encodeLine(model.Update{Network: &nn}))
			whole.Networks = append(whole.Networks, nn)
		}
		line := encodeState(state, parts)
		if line[len(line)-1] != '\n' || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", line)
		}
		for form, pieces := range map[string][][]byte{
			"whole": {line},
			"changes": append(parts, encodeLine(model.Update{State: &state,
				Change: &model.StateChange{Whole: true, Networks: networks}})),
		} {
			if told := assemble(t, &model.Assembly{}, pieces); !reflect.DeepEqual(*told, whole) {
				t.Fatalf("%s: told with %d networks:\n%+v\nmeant:\n%+v", form, networks, *told, whole)
			}
		}
	}
}

// assemble has a node hear what it is told.
func assemble(t *testing.T, a *model.Assembly, pieces [][]byte) *model.NodeState {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(bytes.Join(pieces, nil)))
	d.DisallowUnknownFields()
	var s *model.NodeState
	for d.More() {
		var u model.Update
		if s != nil {
			t.Fatal("something comes after the state that makes it so")
		}
		if err := d.Decode(&u); err != nil {
			t.Fatal(err)
		}
		var err error
		if s, err = a.Add(u); err != nil {
			t.Fatal(err)
		}
	}
	if s == nil {
		t.Fatal("nothing was told")
	}
	return s
}

// One who is told the changes always has what one who is told everything has, and is told little for a small change.
func TestOnlyChangedNetworksAreTold(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	pieces := func(next func() api.Desired) [][]byte { return next().Lines }
	changes := func() func() api.Desired {
		next, end, err := f.Watch("n1", true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
		return next
	}
	var each, seldom model.Assembly
	atEach, atTimes := changes(), changes()
	compare := func(who string, a *model.Assembly, next func() api.Desired) (length int) {
		t.Helper()
		told := pieces(next)
		if is, want := assemble(t, a, told), f.desired(t, "n1"); !reflect.DeepEqual(*is, want) {
			t.Fatalf("%s was told\n%+v\nmeant\n%+v", who, *is, want)
		}
		return len(bytes.Join(told, nil))
	}
	const many = 40
	for i := range many {
		f.apply(t, line(fmt.Sprintf("lab%d", i), 4), model.ApplyOptions{})
		compare("one who listens", &each, atEach)
	}
	whole := compare("one who comes", &model.Assembly{}, changes())
	set := func(name string) {
		t.Helper()
		object := ""
		for _, n := range f.desired(t, "n1").Networks {
			if n.Name == name {
				object = n.Elements[0].Name
			}
		}
		if _, err := f.Set(t.Context(), name,
			model.SetRequest{Object: object, Values: []model.Assignment{{Key: "memory", Value: "70MiB"}}}); err != nil {
			t.Fatal(err)
		}
	}
	set("lab7")
	small := compare("one who listens", &each, atEach)
	t.Logf("%d networks are told in %d bytes, a change of one in %d", many, whole, small)
	if small > whole/many*3 {
		t.Errorf("of %d bytes for %d networks, one change of one takes %d", whole, many, small)
	}
	compare("one who listens seldom", &seldom, atTimes)
	set("lab8")
	set("lab9")
	if err := f.Delete(t.Context(), "lab10", false); err != nil {
		t.Fatal(err)
	}
	compare("one who listens seldom", &seldom, atTimes)
	// A network that was deleted and made again between two looks is told again.
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	f.finishDeletions(t.Context())
	f.apply(t, line("lab10", 3), model.ApplyOptions{})
	compare("one who listens seldom", &seldom, atTimes)
	compare("one who listens", &each, atEach)
	// What does not fit is noticed: a word is lost.
	set("lab3")
	pieces(atEach)
	set("lab4")
	if _, err := each.Add(last(t, pieces(atEach))); err == nil {
		t.Error("a state that is a change of one that was never told was taken")
	}
}

// last is the last line.
func last(t *testing.T, pieces [][]byte) (u model.Update) {
	t.Helper()
	if err := json.Unmarshal(pieces[len(pieces)-1], &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestEveryFieldOfAnElementReachesItsNode follows an element, every field of which is set, from what was resolved to what
// its node renders configurations of: what is not told there has no effect.
func TestEveryFieldOfAnElementReachesItsNode(t *testing.T) {
	var e model.ResolvedElement
	n := 0
	fill(reflect.ValueOf(&e).Elem(), &n)
	e.Attack = model.AttackStop // it is told with the network's and the administrators' word
	record := model.ResolvedRecord{Network: model.Resolved{Name: "lab", Elements: []model.ResolvedElement{e}},
		Assigned: model.Assigned{Placement: model.Placement{Elements: map[string]string{e.Name: "n1"}}}}
	states := model.NodeStates([]model.ResolvedRecord{record}, substrateOf(1))
	var parts [][]byte
	state := states["n1"]
	for _, nn := range state.Networks {
		parts = append(parts, encodeLine(model.Update{Network: &nn}))
	}
	told := assemble(t, &model.Assembly{}, [][]byte{encodeState(state, parts)})
	if len(told.Networks) != 1 || len(told.Networks[0].Elements) != 1 {
		t.Fatalf("the node is told %+v", told)
	}
	if is := told.Networks[0].Elements[0].Resolved(); !reflect.DeepEqual(is, e) {
		t.Errorf("the node is told\n%+v\nmeant\n%+v", is, e)
	}
}

func TestTheSubstratesHookIsTold(t *testing.T) {
	substrate := substrateOf(2)
	substrate.Hook = model.HookTC
	substrate.Nodes[1].Hook = model.HookXDP
	f := start(t, t.TempDir(), substrate)
	if h := f.desired(t, "n1").Hook; h != model.HookTC {
		t.Errorf("n1 is told %q", h)
	}
	if h := f.desired(t, "n2").Hook; h != model.HookXDP {
		t.Errorf("n2 is told %q", h)
	}
}
