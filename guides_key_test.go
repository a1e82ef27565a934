package polyplane_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/plan"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

// TestGuideFollowsAKey goes through the places of docs/adding-a-key.md, with devices and with each other amount of an
// element: the files, save, the bounds, set, plan, and what is generated. That describe has a line for each, the page
// shows by its source.
func TestGuideFollowsAKey(t *testing.T) {
	schema, cli := read(t, "schema/polyplane.schema.json"), read(t, "docs/cli.md")
	fileFormat := read(t, "docs/file-format.md")
	names := []string{}
	for _, k := range (model.Amounts{}).Keys() {
		names = append(names, k.Name)
		t.Run(k.Name, func(t *testing.T) { followKey(t, k, schema, fileFormat, cli) })
	}
	if !slices.Contains(names, "devices") {
		t.Error("there is no key devices, which the page shows")
	}
}

func followKey(t *testing.T, k model.Key[model.Amounts], schema, fileFormat, cli string) {
	parse := func(text string, a ...any) (model.Network, error) {
		nets, err := spec.Parse("lab.yaml", fmt.Appendf(nil, text, a...), spec.Options{})
		if err != nil {
			return model.Network{}, err
		}
		return nets[0], nil
	}
	bare, err := parse("network: lab\nrouters:\n  r: {software: none}\n")
	if err != nil {
		t.Fatal(err)
	}
	own, err := parse("network: lab\nrouters:\n  r: {software: none, %s: %s}\n", k.Name, k.Example)
	if err != nil {
		t.Fatal(err)
	}
	byDefault, err := parse("network: lab\ndefaults:\n  routers: {%s: %s}\nrouters:\n  r: {software: none}\n",
		k.Name, k.Example)
	if err != nil {
		t.Fatal(err)
	}
	of := func(n model.Network) *model.Amounts { return &n.Elements[0].Amounts }
	if !k.Zero(of(bare)) || k.Zero(of(own)) || !k.Same(of(own), of(byDefault)) {
		t.Errorf("read: %+v, %+v, %+v", of(bare), of(own), of(byDefault))
	}
	zero := "0"
	if k.Type == reflect.TypeFor[model.Bytes]() {
		zero = "0MiB"
	}
	_, err = parse("network: lab\nrouters:\n  r: {software: none, %s: %s}\n", k.Name, zero)
	if err == nil || !strings.Contains(err.Error(), k.Nothing) {
		t.Errorf("zero: %v", err)
	}

	saved, err := spec.Format(own)
	if err != nil || !strings.Contains(string(saved), k.Name+": "+k.Text(of(own))) {
		t.Errorf("saved (%v):\n%s", err, saved)
	}

	set, _, errs := model.Assign(bare, model.Settings{}, "r", []model.Assignment{{Key: k.Name, Value: k.Example}})
	if len(errs) > 0 || !k.Same(of(set), of(own)) {
		t.Errorf("set: %v, %+v", errs, of(set))
	}
	back, _, errs := model.Assign(set, model.Settings{}, "r", []model.Assignment{{Key: k.Name}})
	if len(errs) > 0 || !k.Zero(of(back)) {
		t.Errorf("given back: %v, %+v", errs, of(back))
	}

	changes := plan.Diff(bare, own)
	if len(changes) != 1 || changes[0].Effect != "in place" || len(changes[0].Details) != 1 ||
		changes[0].Details[0].Field != k.Name {
		t.Errorf("plan: %+v", changes)
	}

	if k.Name == "devices" { // whose error the page shows
		wrong := own
		wrong.Elements = slices.Clone(own.Elements)
		of(wrong).Devices = 5000
		problem := k.Check(of(wrong))
		_, wrongs := resolve.Read(wrong)
		told := slices.ContainsFunc(wrongs, func(p model.Problem) bool {
			return strings.Contains(p.Message, problem)
		})
		if problem == "" || !told || !strings.Contains(read(t, "docs/adding-a-key.md"), "`"+problem+"`") {
			t.Errorf("bounds: %q, which Validate tells: %v; does the page show it?", problem, told)
		}
	}

	meaning, err := json.Marshal(k.Meaning)
	if err != nil || !strings.Contains(schema, string(meaning)) {
		t.Errorf("the schema does not tell %s", meaning)
	}
	if !strings.Contains(fileFormat, "| `"+k.Name+"` |") || !strings.Contains(fileFormat, k.Meaning) {
		t.Error("file-format.md does not tell of it")
	}
	if !strings.Contains(cli, " "+k.Name+"="+k.Example+" ") && !strings.Contains(cli, " "+k.Name+"="+k.Example+"\n") {
		t.Error("cli.md does not tell of it")
	}
}
