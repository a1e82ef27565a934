package substrate

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// maxFile is the largest substrate file, in bytes: 1,024 nodes and their links take about a tenth.
const maxFile = 1 << 20

const fileForm = `a substrate file looks like this:
nodes:
  n1: {cpu: 4, memory: 8GiB, location: rio}
  n2: {}
links:
  - n1 -- n2: {bandwidth: 10Gbit, delay: 5ms}
(docs/substrate.md has all of it)`

// Parse reads a substrate file (YAML), as docs/substrate.md tells. What is left out: cpu and memory are an even share
// of what this machine has. name is what errors call the file. The nodes are without addresses (see Number).
func Parse(name string, data []byte, m Machine) (model.Substrate, error) {
	s, err := parse(data, m)
	if err == nil {
		return s, nil
	}
	var bad *badNode
	if !errors.As(err, &bad) {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	at := fmt.Sprintf("%s:%d:%d", name, bad.token.Position.Line, bad.token.Position.Column)
	return s, fmt.Errorf("%s: %s\n%s", at, bad.message, excerpt(data, bad.token.Position.Line))
}

// badNode is an error with its place in the file.
type badNode struct {
	token   *token.Token
	message string
}

func (b *badNode) Error() string { return b.message }

func bad(n ast.Node, format string, args ...any) error {
	return &badNode{n.GetToken(), fmt.Sprintf(format, args...)}
}

// excerpt shows the line, cut to a terminal's width.
func excerpt(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	text := []rune(strings.ToValidUTF8(lines[line-1], "?"))
	if len(text) > 100 {
		text = append(text[:100], '…')
	}
	return fmt.Sprintf("  %d | %s", line, string(text))
}

func parse(data []byte, m Machine) (model.Substrate, error) {
	var s model.Substrate
	if len(data) > maxFile {
		return s, fmt.Errorf("%d bytes are too many for a substrate file, at most %d are allowed", len(data), maxFile)
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			return s, &badNode{syntax.Token, "this is not YAML: " + syntax.Message}
		}
		return s, fmt.Errorf("this is not YAML: %w", err)
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return s, bad(d.Body, "a second document: a substrate file has one")
		}
		body = d.Body
	}
	if body == nil {
		return s, fmt.Errorf("the file is empty: %s", fileForm)
	}
	var nodes, links ast.Node
	err = mapping(body, fileForm, func(key ast.Node, word string, value ast.Node) error {
		switch word {
		case "nodes":
			nodes = value
		case "links":
			links = value
		default:
			return bad(key, "unknown key %q: known are nodes, links", word)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if nodes == nil {
		return s, bad(body, "there are no nodes: %s", fileForm)
	}
	if err := parseNodes(&s, nodes, m); err != nil {
		return s, err
	}
	if links != nil {
		if err := parseLinks(&s, links); err != nil {
			return s, err
		}
	}
	if from := unreached(s); from != "" {
		return s, bad(body, "no path of links leads from %s to %s", s.Nodes[0].Name, from)
	}
	return s, nil
}

// fileKey is a key of a node or of a link. docs/substrate.md has a table of these.
type fileKey[T any] struct {
	name, takes, meaning string
	read                 func(into *T, text string) error
}

var nodeKeys = []fileKey[model.SubstrateNode]{
	{"cpu", "cores, like 4 or 0.5", "How many cores its elements may ask for together; an even share of this " +
		"machine's when left out.",
		func(n *model.SubstrateNode, text string) (err error) { n.CPU, err = cores(text); return err }},
	{"memory", "a size, like 8GiB", "How much memory its elements may ask for together; an even share of this " +
		"machine's when left out.",
		func(n *model.SubstrateNode, text string) (err error) { n.Memory, err = size(text); return err }},
	{"location", "a word", "Where it is: elements with this `location` are placed on the nodes that have it.",
		func(n *model.SubstrateNode, text string) error {
			if n.Location = text; CheckName(text) != nil {
				return fmt.Errorf("%q cannot be a location: use lower-case letters, digits and '-'", text)
			}
			return nil
		}},
	{"hook", "`auto`, `tc` or `xdp`", "Where the devices of its links take tunnels' packets of routers with " +
		"`forwarding: xdp`; what `up --hook` says when left out.",
		func(n *model.SubstrateNode, text string) error {
			if n.Hook = model.Hook(text); !slices.Contains(model.Hooks, n.Hook) {
				return fmt.Errorf("%q is no hook: there are auto, tc and xdp", text)
			}
			return nil
		}},
}

var linkKeys = []fileKey[model.SubstrateLink]{
	{"bandwidth", "a rate, like 10Gbit", "What networks can reserve of it, in each direction; without it nothing is " +
		"refused. Nothing slows packets down to it.",
		func(l *model.SubstrateLink, text string) (err error) { l.Bandwidth, err = bandwidth(text); return err }},
	{"delay", "a time, like 5ms; at most 1m", "Of two ways with as many links, packets take the one with less of it. " +
		"Nothing holds packets up for it.",
		func(l *model.SubstrateLink, text string) (err error) { l.Delay, err = delay(text); return err }},
}

// read reads the value of a key; whose begins what is told of it.
func read[T any](keys []fileKey[T], into *T, key, value ast.Node, word, text, whose string) error {
	names := make([]string, len(keys))
	for i, k := range keys {
		if names[i] = k.name; k.name != word {
			continue
		}
		if err := k.read(into, text); err != nil {
			return bad(value, "%s%s: %s", whose, word, err)
		}
		return nil
	}
	return bad(key, "unknown key %q: known are %s", word, strings.Join(names, ", "))
}

func parseNodes(s *model.Substrate, nodes ast.Node, m Machine) error {
	given := map[string]map[string]bool{}
	err := mapping(nodes, "nodes is a mapping from names to {cpu, memory, location, hook}",
		func(key ast.Node, name string, value ast.Node) error {
			if err := CheckName(name); err != nil {
				return bad(key, "%s", err)
			}
			if len(s.Nodes) == MaxNodes {
				return bad(key, "more than %d nodes", MaxNodes)
			}
			n := model.SubstrateNode{Name: name}
			given[name] = map[string]bool{}
			if value.Type() != ast.NullType {
				err := mapping(value, "a node is {cpu: 4, memory: 8GiB, location: rio}",
					func(key ast.Node, word string, value ast.Node) error {
						given[name][word] = true
						text, err := scalar(value, name+"'s "+word)
						if err != nil {
							return err
						}
						return read(nodeKeys, &n, key, value, word, text, name+"'s ")
					})
				if err != nil {
					return err
				}
			}
			s.Nodes = append(s.Nodes, n)
			return nil
		})
	if err != nil {
		return err
	}
	if len(s.Nodes) == 0 {
		return bad(nodes, "there are no nodes: %s", fileForm)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !given[n.Name]["cpu"] {
			n.CPU = m.CPU / model.CPU(len(s.Nodes))
		}
		if !given[n.Name]["memory"] {
			n.Memory = m.Memory / model.Bytes(len(s.Nodes))
		}
	}
	return nil
}

func parseLinks(s *model.Substrate, links ast.Node) error {
	list, ok := links.(*ast.SequenceNode)
	if !ok {
		return bad(links, "links is a list, such as\nlinks:\n  - n1 -- n2: {bandwidth: 10Gbit, delay: 5ms}")
	}
	nodes := each.SetOf(s.Nodes, func(n model.SubstrateNode) string { return n.Name })
	seen := map[[2]string]bool{}
	add := func(at ast.Node, text string, value ast.Node) error {
		l, err := parseLink(at, text, value)
		if err != nil {
			return err
		}
		for _, end := range []string{l.A, l.B} {
			if !nodes[end] {
				return bad(at, "link %s -- %s: there is no node %q", l.A, l.B, end)
			}
		}
		if l.A == l.B {
			return bad(at, "link %s -- %s: a node cannot be linked with itself", l.A, l.B)
		}
		if seen[[2]string{l.A, l.B}] || seen[[2]string{l.B, l.A}] {
			return bad(at, "link %s -- %s: these nodes are linked already", l.A, l.B)
		}
		seen[[2]string{l.A, l.B}] = true
		s.Links = append(s.Links, l)
		return nil
	}
	for _, item := range list.Values {
		var err error
		switch item.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			one := 0
			err = mapping(item, "", func(key ast.Node, word string, value ast.Node) error {
				if one++; one > 1 {
					return bad(key, "two links in one item of the list: begin each with '-'")
				}
				return add(key, word, value)
			})
		default:
			var text string
			if text, err = scalar(item, "a link"); err == nil {
				err = add(item, text, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseLink(at ast.Node, text string, value ast.Node) (model.SubstrateLink, error) {
	var l model.SubstrateLink
	a, b, ok := strings.Cut(text, "--")
	l.A, l.B = strings.TrimSpace(a), strings.TrimSpace(b)
	// Names may contain dashes, but have a space before the two between them.
	if a, b, spaced := strings.Cut(text, " -- "); spaced {
		l.A, l.B = strings.TrimSpace(a), strings.TrimSpace(b)
	}
	if !ok || l.A == "" || l.B == "" {
		return l, bad(at, "%q is not a link: write n1 -- n2", text)
	}
	if value == nil || value.Type() == ast.NullType {
		return l, nil
	}
	return l, mapping(value, "a link's properties are {bandwidth: 10Gbit, delay: 5ms}",
		func(key ast.Node, word string, value ast.Node) error {
			text, err := scalar(value, word)
			if err != nil {
				return err
			}
			return read(linkKeys, &l, key, value, word, text, fmt.Sprintf("link %s -- %s: ", l.A, l.B))
		})
}

// mapping calls each for every key of a mapping; form is what errors say it should look like.
func mapping(n ast.Node, form string, each func(key ast.Node, word string, value ast.Node) error) error {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return bad(n, "a mapping was expected here: %s", form)
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		word, err := scalar(p.Key, "a key")
		if err != nil {
			return err
		}
		if seen[word] {
			return bad(p.Key, "%q is there twice", word)
		}
		seen[word] = true
		if err := each(p.Key, word, p.Value); err != nil {
			return err
		}
	}
	return nil
}

// scalar is the text of a plain value. Anchors, aliases, tags and merges are refused: nobody needs them here.
func scalar(n ast.Node, what string) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, nil
	case *ast.MappingKeyNode:
		return scalar(n.Value, what)
	}
	return "", bad(n, "%s must be a plain word or number", what)
}

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)$`)

// units reads "1.5Gbit" and the like; the result is in the unit of factor 1, at most 2⁵³.
func units(text string, factors map[string]float64, example string) (float64, error) {
	m := quantity.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is not a quantity: write for example %s", text, example)
	}
	f, ok := factors[m[2]]
	if !ok {
		return 0, fmt.Errorf("%q has no known unit: write for example %s", text, example)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil || v*f > 1<<53 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return math.Round(v * f), nil
}

func bandwidth(text string) (model.Bandwidth, error) {
	v, err := units(text, map[string]float64{"bit": 1, "kbit": 1e3, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9,
		"Tbit": 1e12}, "10Mbit or 1.5Gbit")
	if err == nil && v == 0 {
		err = errors.New("nothing would pass: leave it out for an unlimited link")
	}
	return model.Bandwidth(v), err
}

func size(text string) (model.Bytes, error) {
	v, err := units(text, map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
		"TiB": 1 << 40}, "512MiB or 8GiB")
	return model.Bytes(v), err
}

func cores(text string) (model.CPU, error) {
	v, err := units(text, map[string]float64{"": 1000}, "4 or 0.5 (in cores)")
	if err == nil && v > math.MaxUint32 {
		err = fmt.Errorf("%q is too large", text)
	}
	return model.CPU(v), err
}

func delay(text string) (model.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > time.Minute {
		return 0, fmt.Errorf("%q is not a delay: write for example 5ms or 1.5s, at most 1m", text)
	}
	return model.Duration(d), nil
}

// unreached returns the first node that no path leads to from the first one, or nothing. Machines without any link are
// not joined, whatever else that may mean to others.
func unreached(s model.Substrate) string {
	if len(s.Links) == 0 {
		if len(s.Nodes) > 1 {
			return s.Nodes[1].Name
		}
		return ""
	}
	hops := embedding.ShortestPaths(s)[s.Nodes[0].Name]
	for _, n := range s.Nodes[1:] {
		if hops[n.Name] == "" {
			return n.Name
		}
	}
	return ""
}
