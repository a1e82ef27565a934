package manager

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/polyplane/polyplane/model"
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
		state.Networks = nil
		var parts [][]byte
		for i := range networks {
			nn := model.NodeNetwork{Name: string(rune('a' + i)), Index: uint32(i + 1)}
			b, err := json.Marshal(nn)
			if err != nil {
				t.Fatal(err)
			}
			state.Networks, parts = append(state.Networks, nn), append(parts, b)
		}
		var told model.Update
		line := bytes.Join(encodeState(state, parts), nil)
		if err := json.Unmarshal(line, &told); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !reflect.DeepEqual(*told.State, state) {
			t.Fatalf("told with %d networks:\n%+v\nmeant:\n%+v", networks, *told.State, state)
		}
		if line[len(line)-1] != '\n' || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", line)
		}
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
