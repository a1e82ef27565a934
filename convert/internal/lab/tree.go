// Package lab is what the readers of other projects' files have in common: YAML as a tree whose nodes know their lines,
// what could not be carried over, and a document in the making.
package lab

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/polyplane/polyplane/each"
)

// Bounds of a file: far beyond what people write, and far below what exhausts a machine.
const (
	MaxSize = 4 << 20
	// maxNodes bounds what aliases make of a small file.
	maxNodes  = 200_000
	maxDepth  = 64
	maxIndent = 1000
)

// Kind tells what a node of the tree is.
type Kind int

// The kinds.
const (
	Nothing Kind = iota
	Scalar
	List
	Mapping
)

// Node is a value of a YAML file, and the line where it begins. Aliases and merge keys are resolved: what they bring
// has the lines where it was written.
type Node struct {
	Kind Kind
	Line int
	Text string // of a scalar
	// Number and Bool tell how a scalar was written: without quotes, as one.
	Number, Bool bool
	Items        []*Node
	Pairs        []Pair
}

// Pair is one of a mapping's.
type Pair struct {
	Key   string
	Line  int
	Value *Node
}

// Get is the value of a key; nil where there is none. It may be asked of nil.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Pairs {
		if n.Pairs[i].Key == key {
			return n.Pairs[i].Value
		}
	}
	return nil
}

// Has tells whether a mapping has the key, with a value or without.
func (n *Node) Has(key string) bool {
	return n != nil && slices.ContainsFunc(n.Pairs, func(p Pair) bool { return p.Key == key })
}

// String is a scalar's text; empty for everything else.
func (n *Node) String() string {
	if n == nil {
		return ""
	}
	return n.Text
}

// Strings are a list's scalars, or a scalar alone.
func (n *Node) Strings() (all []*Node) {
	switch {
	case n == nil:
	case n.Kind == Scalar:
		all = []*Node{n}
	default:
		all = append(all, each.That(n.Items, func(item *Node) bool { return item.Kind == Scalar })...)
	}
	return all
}

// False tells whether it is the value false.
func (n *Node) False() bool {
	return n != nil && n.Kind == Scalar && strings.EqualFold(n.Text, "false")
}

// Error is something wrong with a file as a whole: it cannot be read.
type Error struct {
	File    string
	Line    int // zero where it is about no line
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

// Parse reads the first document of a YAML file.
func Parse(file string, data []byte) (root *Node, err error) {
	if len(data) > MaxSize {
		return nil, &Error{File: file, Message: fmt.Sprintf("the file has %d bytes, which is more than a lab ever "+
			"needs (%d are allowed); is it the right file?", len(data), MaxSize)}
	}
	if !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
		return nil, &Error{File: file, Message: "it is no text; is it the right file?"}
	}
	if i := templated(data); i > 0 {
		return nil, &Error{file, i, "this is a template ({{ … }}), not a lab: expand it first"}
	}
	// The parser is meant for files that people write. Garbage may reach a part of it that nobody has tested.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, &Error{File: file, Message: fmt.Sprintf("it is no YAML that can be read (%v)", p)}
		}
	}()
	tokens := lexer.Tokenize(strings.TrimPrefix(string(data), "\ufeff"))
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if depth > maxDepth || t.Position.Column > maxIndent && t.Type == token.SequenceEntryType {
			return nil, &Error{file, t.Position.Line, "it nests too deep; no lab does"}
		}
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
			return nil, &Error{file, e.GetToken().Position.Line, "it is no YAML: " +
				strings.TrimSuffix(e.GetMessage(), ".")}
		}
		return nil, &Error{File: file, Message: fmt.Sprintf("it is no YAML: %v", err)}
	}
	for _, doc := range parsed.Docs {
		switch doc.Body.(type) {
		case nil, *ast.CommentGroupNode:
			continue
		}
		b := builder{file: file, anchors: map[string]ast.Node{}, open: map[string]bool{}}
		root = b.node(doc.Body, 0)
		if b.err != nil {
			return nil, b.err
		}
		return root, nil
	}
	return nil, &Error{File: file, Message: "there is nothing in it"}
}

var templateMark = regexp.MustCompile(`(?m)^\s*\{\{|:\s*\{\{`)

// templated is the line of a template's first mark; zero where there is none.
func templated(data []byte) int {
	at := templateMark.FindIndex(data)
	if at == nil {
		return 0
	}
	return 1 + strings.Count(strings.TrimRight(string(data[:at[1]]), "\n"), "\n")
}

// builder makes the tree of the parser's nodes.
type builder struct {
	file    string
	anchors map[string]ast.Node
	open    map[string]bool // the aliases that are being resolved
	count   int
	err     *Error
}

func (b *builder) fail(n ast.Node, format string, args ...any) *Node {
	if b.err == nil {
		b.err = &Error{b.file, lineOf(n), fmt.Sprintf(format, args...)}
	}
	return &Node{}
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

func (b *builder) node(n ast.Node, depth int) *Node {
	if b.count++; b.count > maxNodes || depth > maxDepth {
		return b.fail(n, "there is too much in it: its aliases repeat, or it nests too deep")
	}
	if b.err != nil {
		return &Node{}
	}
	switch n := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return &Node{Line: lineOf(n)}
	case *ast.StringNode:
		return &Node{Kind: Scalar, Line: lineOf(n), Text: n.Value}
	case *ast.LiteralNode:
		return &Node{Kind: Scalar, Line: lineOf(n), Text: n.Value.Value}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return &Node{Kind: Scalar, Line: lineOf(n), Text: n.GetToken().Value, Number: true}
	case *ast.BoolNode:
		return &Node{Kind: Scalar, Line: lineOf(n), Text: n.GetToken().Value, Bool: true}
	case *ast.TagNode:
		return b.node(n.Value, depth+1)
	case *ast.AnchorNode:
		if n.Name == nil || n.Value == nil {
			return b.fail(n, "an anchor without a name or a value")
		}
		b.anchors[n.Name.GetToken().Value] = n.Value
		return b.node(n.Value, depth+1)
	case *ast.AliasNode:
		return b.alias(n, depth)
	case *ast.SequenceNode:
		list := &Node{Kind: List, Line: lineOf(n)}
		for i, item := range n.Values {
			made := b.node(item, depth+1)
			if list.Items = append(list.Items, made); i == 0 && !n.IsFlowStyle && made.Line > 0 {
				list.Line = made.Line
			}
		}
		return list
	case *ast.MappingNode:
		return b.mapping(n, n.Values, depth)
	case *ast.MappingValueNode:
		return b.mapping(n, []*ast.MappingValueNode{n}, depth)
	}
	return b.fail(n, "what stands here is not understood (%s)", n.Type())
}

func (b *builder) alias(n *ast.AliasNode, depth int) *Node {
	name := ""
	if n.Value != nil {
		name = n.Value.GetToken().Value
	}
	to := b.anchors[name]
	if to == nil {
		return b.fail(n, "there is no anchor &%s before this", name)
	}
	if b.open[name] {
		return b.fail(n, "the anchor &%s has itself in it", name)
	}
	b.open[name] = true
	defer delete(b.open, name)
	return b.node(to, depth+1)
}

func (b *builder) mapping(n ast.Node, values []*ast.MappingValueNode, depth int) *Node {
	m := &Node{Kind: Mapping, Line: lineOf(n)}
	var merged []*Node
	for i, v := range values {
		line := lineOf(v.Key)
		if i == 0 && line > 0 {
			m.Line = line
		}
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			from := b.node(v.Value, depth+1)
			if from.Kind == List {
				merged = append(merged, from.Items...)
			} else {
				merged = append(merged, from)
			}
			continue
		}
		key := b.node(v.Key, depth+1)
		if key.Kind != Scalar {
			return b.fail(v.Key, "a key is a single word")
		}
		value := b.node(v.Value, depth+1)
		value.Line = cmp.Or(value.Line, line)
		if m.Has(key.Text) {
			return b.fail(v.Key, "%q is there twice; keep one of them", key.Text)
		}
		m.Pairs = append(m.Pairs, Pair{key.Text, line, value})
	}
	for _, from := range merged {
		for _, p := range from.Pairs {
			if !m.Has(p.Key) {
				m.Pairs = append(m.Pairs, p)
			}
		}
	}
	return m
}

var dottedKey = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)+$`)

// ExpandDots makes mappings of keys with dots in them, as netlab's files have them: a.b: 1 is a: {b: 1}.
func (n *Node) ExpandDots() {
	if n == nil {
		return
	}
	for _, item := range n.Items {
		item.ExpandDots()
	}
	var pairs []Pair
	for _, p := range n.Pairs {
		p.Value.ExpandDots()
		if dottedKey.MatchString(p.Key) {
			words := strings.Split(p.Key, ".")
			for _, word := range slices.Backward(words[1:]) {
				p.Value = &Node{Kind: Mapping, Line: p.Line, Pairs: []Pair{{word, p.Line, p.Value}}}
			}
			p.Key = words[0]
		}
		pairs = join(pairs, p)
	}
	n.Pairs = pairs
}

// join adds a pair, into the mapping that its key may have already.
func join(pairs []Pair, p Pair) []Pair {
	for i, q := range pairs {
		if q.Key != p.Key {
			continue
		}
		if q.Value.Kind != Mapping || p.Value.Kind != Mapping {
			return pairs
		}
		both := *q.Value
		both.Pairs = slices.Clone(both.Pairs)
		for _, below := range p.Value.Pairs {
			both.Pairs = join(both.Pairs, below)
		}
		pairs[i].Value = &both
		return pairs
	}
	return append(pairs, p)
}
