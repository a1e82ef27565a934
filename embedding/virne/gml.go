package virne

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// GML, the Graph Modelling Language, is a list of keys with a number, a string, or a list in brackets each.

// entry is a key with its value: a number or string as text, or a list.
type entry struct {
	key  string
	text string
	list []entry
	line int
}

// maxDepth bounds lists in lists: a graph needs three.
const maxDepth = 16

type gmlReader struct {
	data string
	at   int
	line int
	read int // entries
}

// readGML reads the keys of a file.
func readGML(data string) ([]entry, error) {
	r := &gmlReader{data: data, line: 1}
	list, err := r.entries(0)
	if err == nil && r.at < len(r.data) {
		err = r.wrong("a ] without a [")
	}
	return list, err
}

func (r *gmlReader) wrong(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", r.line, fmt.Sprintf(format, args...))
}

// entries reads keys up to the end, or to a bracket that closes.
func (r *gmlReader) entries(depth int) (list []entry, err error) {
	for {
		r.space()
		if r.at == len(r.data) || r.data[r.at] == ']' {
			return list, nil
		}
		e := entry{line: r.line}
		if e.key = r.word(); e.key == "" {
			return nil, r.wrong("a key is missing before %.10q", r.data[r.at:])
		}
		r.space()
		switch {
		case r.at == len(r.data):
			return nil, r.wrong("key %.30q has no value", e.key)
		case r.data[r.at] == '[':
			if depth == maxDepth {
				return nil, r.wrong("lists are nested more than %d deep", maxDepth)
			}
			r.at++
			if e.list, err = r.entries(depth + 1); err != nil {
				return nil, err
			}
			if r.at == len(r.data) {
				return nil, r.wrong("the [ of line %d is not closed", e.line)
			}
			r.at++
		case r.data[r.at] == '"':
			end := strings.IndexByte(r.data[r.at+1:], '"')
			if end < 0 {
				return nil, r.wrong("a string is not closed")
			}
			e.text = r.data[r.at+1 : r.at+1+end]
			r.line += strings.Count(e.text, "\n")
			r.at += end + 2
		default:
			if e.text = r.word(); e.text == "" {
				return nil, r.wrong("key %.30q has no value", e.key)
			}
		}
		if r.read++; r.read > mostEntries {
			return nil, r.wrong("the file has more than %d keys", mostEntries)
		}
		list = append(list, e)
	}
}

// space skips blanks and comments.
func (r *gmlReader) space() {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case '\n':
			r.line++
			fallthrough
		case ' ', '\t', '\r':
			r.at++
		case '#':
			if end := strings.IndexByte(r.data[r.at:], '\n'); end >= 0 {
				r.at += end
			} else {
				r.at = len(r.data)
			}
		default:
			return
		}
	}
}

func (r *gmlReader) word() string {
	start := r.at
	for r.at < len(r.data) && !strings.ContainsRune(" \t\r\n[]\"#", rune(r.data[r.at])) {
		r.at++
	}
	return r.data[start:r.at]
}

// Bounds of what a graph may be: more is a file of something else.
const (
	mostNodes  = 10_000
	mostLinks  = 500_000
	mostAmount = 1e6

	mostEntries = 4_000_000 // keys of a file: some 400 MB of memory
)

// parseGraph reads a network. demands tells that it is a request, all of whose demands must be understood.
func parseGraph(data string, demands bool) (*Graph, error) {
	top, err := readGML(data)
	if err != nil {
		return nil, err
	}
	for _, e := range top {
		if e.key == "graph" && e.list != nil {
			return graphOf(e, demands)
		}
	}
	return nil, fmt.Errorf("there is no graph [ … ] in it")
}

func graphOf(top entry, demands bool) (*Graph, error) {
	g := &Graph{}
	number := map[string]int{}
	joined := map[[2]int]int{}
	for _, e := range top.list {
		switch {
		case e.key == "node":
			id := e.get("id")
			if _, twice := number[id]; id == "" || twice {
				return nil, fmt.Errorf("line %d: a node needs an id of its own", e.line)
			}
			cpu, err := e.amount("cpu")
			if err != nil {
				return nil, err
			}
			number[id] = len(g.Nodes)
			g.Nodes = append(g.Nodes, cpu)
		case demands && (e.key == "node_attrs_setting" || e.key == "link_attrs_setting"):
			name, what := e.get("name"), e.get("type")
			if (what == "resource" || what == "latency") && name != "cpu" && name != "bw" {
				return nil, fmt.Errorf("line %d: it asks for %.30q; only cpu of nodes and bw of links are understood",
					e.line, name)
			}
		}
	}
	for _, e := range top.list {
		if e.key != "edge" {
			continue
		}
		a, okA := number[e.get("source")]
		b, okB := number[e.get("target")]
		if !okA || !okB || a == b {
			return nil, fmt.Errorf("line %d: an edge needs a source and a target, the ids of two nodes", e.line)
		}
		bandwidth, err := e.amount("bw")
		if err != nil {
			return nil, err
		}
		if first, twice := joined[pair(a, b)]; twice {
			return nil, fmt.Errorf("line %d: the nodes of this edge are joined by that of line %d already", e.line,
				first)
		}
		joined[pair(a, b)] = e.line
		g.Links = append(g.Links, Link{a, b, bandwidth})
	}
	switch {
	case len(g.Nodes) == 0:
		return nil, fmt.Errorf("the graph has no nodes")
	case len(g.Nodes) > mostNodes || len(g.Links) > mostLinks:
		return nil, fmt.Errorf("the graph has %d nodes and %d edges; %d and %d at most", len(g.Nodes), len(g.Links),
			mostNodes, mostLinks)
	}
	return g, nil
}

// get is the value of a key, the first if there are several.
func (e *entry) get(key string) string {
	for _, x := range e.list {
		if x.key == key {
			return x.text
		}
	}
	return ""
}

// amount is a key's value that is one.
func (e *entry) amount(key string) (float64, error) {
	text := e.get(key)
	if text == "" {
		return 0, fmt.Errorf("line %d: the %s has no %s", e.line, e.key, key)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > mostAmount {
		return 0, fmt.Errorf("line %d: %s %.30q is no number from 0 to %g", e.line, key, text, float64(mostAmount))
	}
	return v, nil
}
