package spec

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// Whatever the input: no panic, an error that names the file or networks that are valid, resolve, and survive Format.
func FuzzParse(f *testing.F) {
	for _, data := range examples(f) {
		f.Add(data)
	}
	bad, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, path := range bad {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data) })
}

// FuzzLink looks at the links' own little language.
func FuzzLink(f *testing.F) {
	for _, s := range []string{"a -- b", "a:x -- b:y", "a:x -- b: 10.0.0.0/30", "a -- b: 10.0.0.0/30, 2001:db8::/64",
		"a -- b: {mtu: 9000}",
		"a -- b: {bandwidth: 1Gbit, delay: 1ms, loss: 1%}", "\"a:x/0:1 -- b\"", "a--b", "a -- a", ": -- :"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, link string) {
		checkParse(t, []byte("network: n\nrouters: [a, b]\nlinks:\n  - "+link+"\n  - a -- b\n"))
	})
}

// read completes a document.
func read(net model.Network) resolve.Document {
	d, _ := resolve.Read(net)
	return d
}

func checkParse(t *testing.T, data []byte) {
	nets, err := Parse("fuzz.yaml", data,
		Options{ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
	if err != nil {
		if nets != nil || !strings.HasPrefix(err.Error(), "fuzz.yaml:") {
			t.Errorf("%d networks beside the error %q", len(nets), err)
		}
		return
	}
	for _, net := range nets {
		if _, problems := resolve.Read(net); len(problems) > 0 {
			t.Errorf("Parse passed what Read does not: %v", problems)
		}
		checkRoundTrip(t, net)
		_, _, err := read(net).Resolve(model.Assigned{}, resolve.NewNumbers())
		if err != nil && !strings.Contains(err.Error(), "left") {
			t.Errorf("Resolve: %v", err)
		}
	}
}

func TestLine(t *testing.T) {
	for _, n := range []int{1, 2, 1000, 10_000} {
		nets, err := Parse("line.yaml", Line(n), Options{})
		if err != nil {
			t.Fatalf("%d routers: %v", n, err)
		}
		if len(nets) != 1 || len(nets[0].Elements) != n || len(nets[0].Links) != n-1 {
			t.Errorf("%d routers: %d elements, %d links", n, len(nets[0].Elements), len(nets[0].Links))
		}
		for _, e := range nets[0].Elements {
			if e.Software != model.SoftwareStatic {
				t.Fatalf("%s runs %s", e.Name, e.Software)
			}
		}
	}
	last := strings.Split(strings.TrimSpace(string(Line(MaxLine))), "\n")
	if got := last[len(last)-1]; got != "  - r79999 -- r80000: 10.4.225.248/30" {
		t.Errorf("the longest line ends with %q", got)
	}
	if len(Line(MaxLine)) > MaxSize {
		t.Errorf("the longest line has %d bytes, %d are allowed", len(Line(MaxLine)), MaxSize)
	}
}

// A large network of which every element says something, as a program would write it.
func TestLongFormOfThousands(t *testing.T) {
	var b strings.Builder
	b.WriteString("network: large\nrouters:\n")
	const n = 5000
	for i := range n {
		b.WriteString("  r" + strconv.Itoa(i) +
			":\n    software: static\n    cpu: 0.1\n    routes:\n      - blackhole 10.0.0.0/8\n")
	}
	b.WriteString("links:\n")
	for i := range n - 1 {
		b.WriteString("  - r" + strconv.Itoa(i) + " -- r" + strconv.Itoa(i+1) +
			":\n      bandwidth: 10Mbit\n      delay: 1ms\n")
	}
	nets, err := Parse("large.yaml", []byte(b.String()), Options{})
	if err != nil || len(nets[0].Elements) != n {
		t.Fatal(err)
	}
	checkRoundTrip(t, nets[0])
}
