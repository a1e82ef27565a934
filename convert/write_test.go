package convert

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

var images = Images{FRR: "quay.io/frrouting/frr:10.2.1", BIRD: "bird:2", Host: "alpine:3"}

// TestWrittenLab compares a lab with what was looked at by people.
func TestWrittenLab(t *testing.T) {
	file := filepath.Join("testdata", "written.yaml")
	made := writeLab(t, file)[0]
	got := string(made.Topology)
	for _, name := range slices.Sorted(maps.Keys(made.Files)) {
		if filepath.Ext(name) == ".sh" {
			got += "--- " + name + "\n" + string(made.Files[name])
		}
	}
	got += "---\n"
	for _, n := range made.Notes {
		got += "# " + n.Message + "\n"
	}
	golden := filepath.Join("testdata", "written.clab")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("%s (-update writes it anew): %v\n%s\nwanted:\n%s", file, err, got, want)
	}
}

// TestWrittenUnnumbered: where BIRD is told the link-local address of a neighbour, the MAC that it follows from is written.
func TestWrittenUnnumbered(t *testing.T) {
	for software, want := range map[string]int{"frr": 0, "bird": 2} {
		nets, err := spec.Parse("x", []byte("network: x\nbgp: {unnumbered: true}\nrouters:\n  a: {bgp: {as: 1}, software: "+
			software+"}\n  b: {bgp: {as: 2}}\nlinks: [a -- b]\n"), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		lab, err := Write(nets[0], images)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(lab.Topology), "mac: "); got != want {
			t.Errorf("with %s %d MAC addresses are written, want %d:\n%s", software, got, want, lab.Topology)
		}
	}
}

// TestWrittenSpanningTree: bridges of switches in a loop run the spanning tree that the switches do, from the moment
// they are made. Without it the first broadcast would circle on the machine of whoever deploys the lab.
func TestWrittenSpanningTree(t *testing.T) {
	nets, err := spec.Parse("x", []byte("network: x\nswitches: {a: {stp: 4096}, b: {stp: true}, c: {stp: true}}\n"+
		"links: [a -- b, b -- c, c -- a]\n"), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lab, err := Write(nets[0], images)
	if err != nil {
		t.Fatal(err)
	}
	script := string(lab.Files["bridges.sh"])
	for name, priority := range map[string]string{"a": "4096", "b": "32768", "c": "32768"} {
		want := "ip link add name " + name + " type bridge forward_delay 400 hello_time 100 max_age 600 " +
			"stp_state 1 priority " + priority + "\n"
		if !strings.Contains(script, want) {
			t.Errorf("%q is not in\n%s", want, script)
		}
	}
}

func writeLab(t *testing.T, file string) (made []*Lab) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	nets, err := spec.Parse(file, data, spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, net := range nets {
		lab, err := Write(net, images)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		made = append(made, lab)
	}
	return made
}

// TestWrittenLabsComeBack: what is read of a lab that was written has the same elements, links and addresses, and each
// router's own configuration.
func TestWrittenLabsComeBack(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, filepath.Join("testdata", "written.yaml")) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		nets, err := spec.Parse(file, data, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, made := range writeLab(t, file) {
			read := func(name string) ([]byte, error) {
				if data, ok := made.Files[strings.TrimPrefix(name, "./")]; ok {
					return data, nil
				}
				return nil, fmt.Errorf("there is no %s", name)
			}
			result, err := Read(nets[i].Name+".clab.yml", made.Topology, Words{Unaddressed: true}, read)
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, made.Topology)
			}
			back, err := spec.Parse("back.yaml", result.YAML, spec.Options{ReadFile: read})
			if slices.ContainsFunc(nets[i].Elements, func(e model.Element) bool { return len(e.VRFs) > 0 }) {
				continue // commands there make VRFs, and with them spaces for the same addresses
			}
			if trees(nets[i]) && err != nil && strings.Contains(err.Error(), "it closes a loop of switches") {
				continue // a topology does not say what its bridges do; the script that makes them does
			}
			if err != nil {
				t.Fatalf("%s: what was written is read as what is refused: %v\n%s", file, err, result.YAML)
			}
			if slices.ContainsFunc(nets[i].Links, func(l model.Link) bool { return l.VLANs != "" }) {
				continue // a topology does not say which VLANs there are
			}
			if got, want := outline(t, back[0]), outline(t, nets[i]); !slices.Equal(got, want) {
				t.Errorf("%s: there and back it is\n%s\nit was\n%s", file, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for _, e := range back[0].Elements {
				if e.Kind == model.Router && e.Software == model.SoftwareFRR &&
					e.Config["frr.conf"] != string(made.Files[e.Name+"/frr.conf"]) {
					t.Errorf("%s: %s came back without its configuration", file, e.Name)
				}
			}
		}
	}
}

// trees tells whether all of a network's switches run a spanning tree.
func trees(net model.Network) bool {
	return !slices.ContainsFunc(net.Elements, func(e model.Element) bool { return e.Kind == model.Switch && e.STP == "" })
}

// outline is what a network and what comes back of it have in common: elements, addresses and who is linked to whom.
func outline(t *testing.T, net model.Network) (lines []string) {
	t.Helper()
	document, problems := resolve.Read(net)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	resolved, _, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	edges := map[string]bool{}
	for _, e := range resolved.Edges {
		edges[e.End.Element+":"+e.End.Interface] = true
	}
	for _, e := range resolved.Elements {
		lines = append(lines, fmt.Sprintf("%s %s", e.Kind, e.Name))
		for _, i := range e.Interfaces {
			if e.Kind == model.Switch || edges[e.Name+":"+i.Name] {
				continue
			}
			addresses := slices.Clone(i.Addresses)
			slices.SortFunc(addresses, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
			lines = append(lines, fmt.Sprintf("%s:%s %v to %s, mtu %d", e.Name, i.LinuxName(), addresses, i.Far.Element, i.MTU))
		}
	}
	slices.Sort(lines)
	return lines
}
