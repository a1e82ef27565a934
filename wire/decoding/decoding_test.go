package decoding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// heldBy is what a value holds beside itself, in bytes.
func heldBy(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n = int(v.Type().Elem().Size()) + heldBy(v.Elem())
		}
	case reflect.String:
		n = v.Len()
	case reflect.Slice:
		n = v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += heldBy(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			n += heldBy(v.Index(i))
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			n += int(k.Type().Size()+e.Type().Size()) + heldBy(k) + heldBy(e)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[netip.Addr]() ||
			v.Type() == reflect.TypeFor[netip.Prefix]() {
			return 0
		}
		for i := range v.NumField() {
			n += heldBy(v.Field(i))
		}
	}
	return n
}

// measured is what a body was measured to take.
func measured(data []byte, t reflect.Type) (int, error) {
	m := measurer{data: data, left: 1 << 40}
	err := m.value(t, 0)
	return 1<<40 - m.left, err
}

func TestWhatDecodingTakesIsKnownBefore(t *testing.T) {
	for what, body := range map[string]string{
		"elements":            `{"name":"x","elements":[{}` + strings.Repeat(",{}", 1_000_000) + `]}`,
		"elements otherwise":  `{"name":"x","ELEMENT\u0073":[{}` + strings.Repeat(",{}", 1_000_000) + `]}`,
		"elements, long s":    `{"name":"x","elementſ":[{}` + strings.Repeat(",{}", 1_000_000) + `]}`,
		"interfaces":          `{"name":"x","elements":[{"interfaces":[{}` + strings.Repeat(",{}", 2_000_000) + `]}]}`,
		"routes":              `{"name":"x","elements":[{"routes":[{}` + strings.Repeat(",{}", 2_000_000) + `]}]}`,
		"nothing, many times": `{"name":"x","elements":[null` + strings.Repeat(",null", 1_000_000) + `]}`,
		"nested":              `{"name":` + strings.Repeat("[", 1_000_000),
		"nested where nobody": `{"nobody":` + strings.Repeat(`{"a":`, 1_000_000),
	} {
		begin := time.Now()
		err := Check([]byte(body), reflect.TypeFor[model.Network]())
		if err == nil || !strings.Contains(err.Error(), "once it is decoded") &&
			!strings.Contains(err.Error(), "nests more than") {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: %v", what, took)
		}
	}
	// As large as a network may be, and it passes.
	net := model.Network{Name: "large"}
	for i := range model.MaxElements {
		e := model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router}
		net.Elements = append(net.Elements, e)
		for k := range 3 {
			to := (i + k + 1) % model.MaxElements
			far := fmt.Sprintf("r%d", to)
			net.Links = append(net.Links, model.Link{Name: fmt.Sprintf("%s-%s", e.Name, far),
				Ends: [2]model.End{{Element: e.Name, Interface: far}, {Element: far, Interface: e.Name}}})
		}
	}
	for what, v := range map[string]any{"a network": net, "hosts of short words": func() any {
		hosts := make([]model.Element, model.MaxElements)
		for i := range hosts {
			hosts[i] = model.Element{Name: fmt.Sprint(i), Kind: model.Host}
		}
		return model.Network{Name: "h", Elements: hosts}
	}()} {
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		n, err := measured(body, reflect.TypeFor[model.Network]())
		t.Logf("%s: %d bytes take %d, measured in %v", what, len(body), n, time.Since(begin))
		if err := Check(body, reflect.TypeFor[model.Network]()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzMeasure holds what is measured against what decoding then takes.
func FuzzMeasure(f *testing.F) {
	f.Add([]byte(`{"name":"x","elements":[{"name":"r","kind":"router","config":{"frr.conf":"a\nb"},"routing":{"bgp":{"as":1,"networks":["10.0.0.0/8"]}}},{}],` +
		`"links":[{"ends":[{"element":"r"},{}]}],"edges":[{"internet":{"targets":{"a":["1.2.3.4"]}}}]}`))
	f.Add([]byte(`{"ELEMENTſ":[null,{},{"unknown":[1,{"a":[]},"\"\\"]}]} trailing`))
	f.Add([]byte(`[{"a":{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, of := range []reflect.Type{reflect.TypeFor[model.Network](), reflect.TypeFor[model.Report](),
			reflect.TypeFor[model.Measures](),
			reflect.TypeFor[model.SetRequest](), reflect.TypeFor[[]model.Document](), reflect.TypeFor[any](),
			reflect.TypeFor[model.Registration](), reflect.TypeFor[model.TrashList](),
			reflect.TypeFor[model.NodeState](), reflect.TypeFor[model.ProbesResult]()} {
			n, err := measured(data, of)
			v := reflect.New(of)
			if json.NewDecoder(bytes.NewReader(data)).Decode(v.Interface()) != nil {
				continue
			}
			if err != nil && len(data) < maxDepth {
				t.Fatalf("%s: %s decodes, and was not measured: %v", of, data, err)
			}
			if holds := heldBy(v.Elem()); err == nil && of.Kind() != reflect.Interface && holds > n+len(data) {
				t.Fatalf("%s: %.200s takes %d bytes, %d were measured", of, data, holds, n)
			}
		}
	})
}
