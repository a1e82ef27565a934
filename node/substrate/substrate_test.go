package substrate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

var machine = Machine{Name: "m", CPU: 8000, Memory: 16 << 30}

func TestParse(t *testing.T) {
	s, err := Parse("s.yaml", []byte(`# a comment
nodes:
  rio-1: {cpu: 4, memory: 8GiB, location: rio}
  rio-2:
    cpu: 0.5
    hook: xdp
  niteroi:
links:
  - rio-1 -- rio-2
  - rio-2 -- niteroi: {bandwidth: 1.5Gbit, delay: 5ms}
`), machine)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.SubstrateNode{
		{Name: "rio-1", CPU: 4000, Memory: 8 << 30, Location: "rio"},
		{Name: "rio-2", Hook: model.HookXDP, CPU: 500, Memory: machine.Memory / 3},
		{Name: "niteroi", CPU: 8000 / 3, Memory: machine.Memory / 3},
	}
	for i, n := range s.Nodes {
		if n != want[i] {
			t.Errorf("node %d = %+v, want %+v", i, n, want[i])
		}
	}
	if len(s.Links) != 2 || s.Links[1] != (model.SubstrateLink{A: "rio-2", B: "niteroi", Bandwidth: 1_500_000_000,
		Delay: 5_000_000}) {
		t.Errorf("links = %+v", s.Links)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ file, at, want string }{
		{"", "s.yaml:", "empty"},
		{"nodes:\n  n1:\nlink: []\n", "s.yaml:3:1:", `unknown key "link"`},
		{"nodes:\n  N1:\n", "s.yaml:2:3:", "lower-case"},
		{"nodes:\n  n1:\n  n1:\n", "s.yaml:3:3:", "n1"},
		{"nodes:\n  n1: {cpu: 4cores}\n", "s.yaml:2:13:", "4cores"},
		{"nodes:\n  n1: {memory: 8GB}\n", "s.yaml:2:16:", "8GB"},
		{"nodes:\n  n1: {hook: native}\n", "s.yaml:2:14:", "there are auto, tc and xdp"},
		{"nodes:\n  n1: {color: red}\n", "s.yaml:2:8:", "color"},
		{"nodes:\n  n1:\n  n2:\nlinks:\n  - n1 -- n3\n", "s.yaml:5:5:", `no node "n3"`},
		{"nodes:\n  n1:\n  n2:\nlinks:\n  - n1 -- n2\n  - n2 -- n1: {delay: 1ms}\n", "s.yaml:6:", "already"},
		{"nodes:\n  n1:\n  n2:\nlinks:\n  - n1 -- n1\n", "s.yaml:5:5:", "itself"},
		{"nodes:\n  n1:\n  n2:\nlinks:\n  - n1 n2\n", "s.yaml:5:5:", "n1 -- n2"},
		{"nodes:\n  n1:\n  n2:\nlinks:\n  - n1 -- n2: {delay: -5ms}\n", "s.yaml:5:", "delay"},
		{"nodes:\n  n1:\n  n2:\n", "s.yaml:1:", "no path"},
		{"nodes: [n1]\n", "s.yaml:1:8:", "mapping"},
		{"nodes: &a\n  n1: *a\n", "s.yaml:", ""},
		{"nodes:\n\tn1:\n", "s.yaml:", "YAML"},
		{"---\nnodes: {n1: {}}\n---\nnodes: {n1: {}}\n", "s.yaml:4:", "second document"},
	} {
		_, err := Parse("s.yaml", []byte(c.file), machine)
		if err == nil {
			t.Errorf("%q: no complaint", c.file)
		} else if !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v\n\twant it at %s and about %q", c.file, err, c.at, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("nodes:\n  n1: {cpu: 4, memory: 8GiB, location: rio}\n  n2:\nlinks:\n  - n1 -- n2: {bandwidth: " +
		"1Gbit, delay: 5ms}\n"))
	f.Add([]byte("nodes: &a [*a, *a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("s", data, machine)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an empty error")
			}
			return
		}
		if _, err := Number(s, model.Substrate{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTopologies(t *testing.T) {
	for _, c := range []struct {
		n     int
		top   Topology
		links int
	}{{1, Ring, 0}, {2, Ring, 1}, {3, Ring, 3}, {5, Line, 4}, {5, Ring, 5}, {5, Mesh, 10}, {1, Mesh, 0}} {
		s, err := Simulated(c.n, c.top, machine)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Nodes) != c.n || len(s.Links) != c.links || unreached(s) != "" {
			t.Errorf("%d nodes as %s: %d nodes, %d links (want %d), unreached %q", c.n, c.top, len(s.Nodes),
				len(s.Links), c.links, unreached(s))
		}
	}
	if _, err := Simulated(3, "star", machine); err == nil || !strings.Contains(err.Error(), "line") {
		t.Errorf("an unknown topology: %v, want the known ones named", err)
	}
}

// Addresses are unique, and stay when nodes are added before or after.
func TestNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, _ := Simulated(rapid.IntRange(1, 20).Draw(t, "n"), Mesh, machine)
		a, err := Number(a, model.Substrate{})
		if err != nil {
			t.Fatal(err)
		}
		b := model.Substrate{Nodes: append([]model.SubstrateNode{{Name: "new"}},
			a.Nodes[rapid.IntRange(0, len(a.Nodes)-1).Draw(t, "cut"):]...)}
		if b, err = Number(b, a); err != nil {
			t.Fatal(err)
		}
		for _, n := range b.Nodes[1:] {
			for _, o := range a.Nodes {
				if o.Name == n.Name && o.Address != n.Address {
					t.Fatalf("%s was renumbered from %s to %s", n.Name, o.Address, n.Address)
				}
			}
		}
		seen := map[string]string{}
		for i, x := range b.Nodes {
			for _, y := range b.Nodes[:i] {
				p, q := linkAddresses(x, y)
				if p.Masked() != q.Masked() || p == q {
					t.Fatalf("%s -- %s: %s and %s", x.Name, y.Name, p, q)
				}
				for _, p := range []string{p.Addr().String(), q.Addr().String(), x.Address.String()} {
					if at := x.Name + "--" + y.Name; p != x.Address.String() {
						if seen[p] != "" {
							t.Fatalf("%s is both %s's and %s's", p, seen[p], at)
						}
						seen[p] = at
					}
				}
				if x.Address == y.Address {
					t.Fatalf("%s and %s are both %s", x.Name, y.Name, x.Address)
				}
			}
		}
	})
}

// TestNeighboursAreReachedDirectly: whatever the delays, the underlay's way to a neighbour is the link that joins the
// two. A relay sends to the next node of a link's path by that node's address, and so by that link.
func TestNeighboursAreReachedDirectly(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := model.Substrate{}
		for i := range 8 {
			s.Nodes = append(s.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i)})
			for j := range i {
				if random.IntN(3) == 0 {
					s.Links = append(s.Links, model.SubstrateLink{A: s.Nodes[i].Name, B: s.Nodes[j].Name,
						Delay: model.Duration(random.IntN(1e9)), Bandwidth: model.Bandwidth(random.IntN(1e9))})
				}
			}
		}
		hops := embedding.ShortestPaths(s)
		for _, l := range s.Links {
			if hops[l.A][l.B] != l.B || hops[l.B][l.A] != l.A {
				t.Errorf("seed %d: %s reaches %s over %s, and is reached over %s", seed, l.A, l.B, hops[l.A][l.B],
					hops[l.B][l.A])
			}
		}
	}
}
