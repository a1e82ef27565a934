package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// said is a file's network in few words: its elements, and its links.
func said(t *testing.T, text string) (elements, links string) {
	t.Helper()
	nets, err := Parse("many.yaml", []byte("network: n\n"+text), Options{})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	var es, ls []string
	for _, e := range nets[0].Elements {
		es = append(es, e.Name)
	}
	for _, l := range nets[0].Links {
		ls = append(ls, l.Name)
	}
	checkRoundTrip(t, nets[0])
	return strings.Join(es, " "), strings.Join(ls, " ")
}

func TestManyNames(t *testing.T) {
	for text, want := range map[string]string{
		"routers: r[1-3]":                           "r1 r2 r3",
		"routers: r[9-11], core":                    "r9 r10 r11 core",
		"hosts: h[08-11]":                           "h08 h09 h10 h11",
		"hosts: h[0-2]":                             "h0 h1 h2",
		"routers: p[1-2]-r[1-2]":                    "p1-r1 p1-r2 p2-r1 p2-r2",
		"routers:\n  - r[1-2]\n  - core":            "r1 r2 core",
		"routers: [\"r[1-2]\", core]":               "r1 r2 core",
		"routers:\n  r[1-2]: {cpu: 0.5}\n  core:":   "r1 r2 core",
		"switches: s[5-5]":                          "s5",
		"routers: r[1-2]\nhosts: h[1-2]":            "r1 r2 h1 h2",
		"links: clos spines 1 leaves 2 hosts 1":     "spine1 leaf1 leaf2 h1 h2",
		"links: grid 2x2":                           "r1 r2 r3 r4",
		"links: clos spines 1 leaves 1":             "spine1 leaf1",
		"routers: [a, b, c]\nlinks: [ring, line 2]": "a b c",
	} {
		if got, _ := said(t, text+"\n"); got != want {
			t.Errorf("%s makes %s, want %s", text, got, want)
		}
	}
	nets, err := Parse("many.yaml", []byte("network: n\nrouters:\n  r[1-2]: {cpu: 0.5}\n  core:\n"), Options{})
	if err != nil || nets[0].Elements[1].CPU != 500 || nets[0].Elements[2].CPU != 0 {
		t.Errorf("settings of many: %+v, %v", nets, err)
	}
}

func TestManyLinks(t *testing.T) {
	for text, want := range map[string]string{
		"line":                           "r1--r2 r2--r3 r3--r4 r4--r5 r5--r6",
		"ring":                           "r1--r2 r2--r3 r3--r4 r4--r5 r5--r6 r6--r1",
		"ring 3":                         "r1--r2 r2--r3 r3--r1",
		"ring 2":                         "r1--r2",
		"mesh 3":                         "r1--r2 r1--r3 r2--r3",
		"grid 3x2":                       "r1--r2 r1--r4 r2--r3 r2--r5 r3--r6 r4--r5 r5--r6",
		"grid 1x3":                       "r1--r2 r2--r3",
		"clos spines 2 leaves 3 hosts 1": "r1--r3 r2--r3 r3--h1 r1--r4 r2--r4 r4--h2 r1--r5 r2--r5 r5--h3",
		"h[1-3] -- r[4-6]":               "h1--r4 h2--r5 h3--r6",
		"h[1-3] -- r1":                   "h1--r1 h2--r1 h3--r1",
		"r1 -- h[1-2]":                   "r1--h1 r1--h2",
		"r[1-1] -- h1: 10.0.0.0/30":      "r1--h1",
	} {
		if _, got := said(t, "routers: r[1-6]\nhosts: h[1-3]\nlinks:\n  - "+text+"\n"); got != want {
			t.Errorf("%s makes %s, want %s", text, got, want)
		}
	}
	nets, err := Parse("many.yaml", []byte("network: n\nrouters: r[1-4]\nhosts: h[1-2]\nlinks:\n  - grid 2x2: "+
		"{mtu: 9000, loss: 1%}\n  - h[1-2]:eth0 -- r1:port[1-2]: {bandwidth: 1Mbit}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range nets[0].Links {
		if first := i < 4; (l.MTU == 9000 && l.Loss == 0.01) != first || (l.Bandwidth == 1e6) == first {
			t.Errorf("link %+v", l)
		}
	}
	if e := nets[0].Links[5].Ends; e != [2]model.End{{Element: "h2", Interface: "eth0"},
		{Element: "r1", Interface: "port2"}} {
		t.Errorf("ends are %v", e)
	}
}

func TestManyThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"routers: r[1-99999]":                 "stands for more than the 20000 names",
		"routers: r[3-1]":                     "many.yaml:2:10: routers: [3-1] runs backwards; write [1-3]",
		"routers: r[1-3":                      "has a bracket without its other one",
		"routers: r[a-c]":                     "[a-c] is no range; a range is two numbers, like r[1-20]",
		"routers: r[01-100]":                  "are not equally long",
		"routers: r[1-11][1-11]":              "r[1-11][1-11] stands for r111 twice",
		"routers: r[1-010]":                   "are not equally long",
		"routers:\n  - r[1-3]\n  - r2":        "routers has r2 twice, first in line 3",
		"routers:\n  r[1-3]:\n  r2: {cpu: 1}": "a router has this name as well",
		"routers: r[1-3]\nlinks:\n  - grid 2x2": "many.yaml:4:5: links: grid 2x2: it joins 4 routers, and the file has 3; " +
			"list as many",
		"links: grid 1000x1000":             "1000000 is more than the 20000 elements",
		"links: grid 0x5":                   "0 is too few",
		"links: grid":                       "a grid has a size",
		"links: grid big":                   `"big" is no size; write columns and rows`,
		"links: mesh 1000":                  "a mesh of 1000 routers has 499500 links; a network may have 60000",
		"links: ring":                       "there are not two routers for it",
		"links: ring ten":                   "a number is expected; there are line, ring",
		"links: line 1":                     "1 is too few; at least 2",
		"links: clos spines 3":              "a clos has spines and leaves",
		"links: clos tops 3 leaves 2":       `"tops" is unknown; write clos spines 3`,
		"links: clos spines 200 leaves 400": "it has 80000 links",
		"hosts: [a]\nlinks: clos spines 1 leaves 2 hosts 1":          "it joins 2 hosts, and the file has 1",
		"routers: r[1-4]\nlinks:\n  - r[1-2] -- r[2-4]":              "there are 2 ends on one side and 3 on the other",
		"routers: r[1-4]\nlinks:\n  - ring: {name: x}":               "a name is one link's, and these are 4 links",
		"routers: r[1-4]\nlinks:\n  - ring: {prefixes: 10.0.0.0/24}": "prefixes are one link's",
		"routers: r[1-4]\nlinks:\n  - r[1-2] -- r[5-6]":              "there is no router, host or switch r5",
		"links: star 5": "links takes a list",
	} {
		if text == "links: grid 0x5" {
			want = "0 is too few"
		}
		_, err := Parse("many.yaml", []byte("network: n\n"+text+"\n"), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A small file cannot stand for more than a large one could say.
func TestManyAreBoundedInAFile(t *testing.T) {
	var names, links strings.Builder
	for i := range 40 {
		fmt.Fprintf(&names, "---\nnetwork: n%d\nrouters: r[1-20000]\n", i)
		fmt.Fprintf(&links, "---\nnetwork: n%d\nlinks: mesh 300\n", i)
	}
	for text, want := range map[string]string{names.String(): "more than 80000 names by ranges",
		links.String(): "more than 240000 links by ranges and shapes"} {
		if _, err := Parse("many.yaml", []byte(text), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzMany looks at ranges and shapes: whatever they are, names are valid, and no more than there may be.
func FuzzMany(f *testing.F) {
	for _, s := range []string{"r[1-3]", "r[01-20]", "p[1-2]-r[1-2]", "r[3-1]", "r[", "]r[1-2]", "r[1-2][1-2]",
		"grid 3x2", "clos spines 2 leaves 3 hosts 1", "ring 5", "mesh", "r[1-2] -- h[1-2]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if names, err := namesOf(word, 1000); err == nil {
			if len(names) < 1 || len(names) > 1000 {
				t.Errorf("%q stands for %d names", word, len(names))
			}
			slices.Sort(names)
			if all := len(names); len(slices.Compact(names)) != all {
				t.Errorf("%q stands for a name twice", word)
			}
		}
		checkParse(t, []byte("network: n\nrouters: r[1-4]\nhosts: h[1-3]\nlinks:\n  - "+word+"\n"))
	})
}
