// Package spec turns YAML files into networks and back: short forms, defaults, and errors that name file, line, what is
// wrong and what would be right. It does no I/O but reading the configuration files that a file names.
package spec

//go:generate go run ./internal/gen

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec/internal/form"
)

const (
	// MaxSize is how large a file may be, in bytes, with all contents of files that it can have, in base64. What is
	// larger than maxPlain, some 80,000 routers, may have maxMarks characters that can mean something in YAML: they,
	// not the bytes, are what a parser needs its memory for.
	MaxSize  = 32 << 20
	maxPlain = 4 << 20
	maxMarks = 1 << 20
	// maxLength is how long a line may be, in bytes: some 30,000 names in brackets.
	maxLength = 256 << 10
	// MaxConfigSize is how large one configuration file may be, in bytes; the other bounds of a network are the
	// model's, too.
	MaxConfigSize = model.MaxConfigSize
	// MaxNetworks is how many documents a file may have.
	MaxNetworks = 1000
	// maxDepth is how deep a file may nest, maxIndent how far it may indent. Both are far beyond what any file needs,
	// and far below what exhausts a parser's stack.
	maxDepth  = 32
	maxIndent = 1000
	// maxEntries is how many keys one mapping may have; the parser's time grows with their square, to a second or two
	// at this many. Lists have no such limit.
	maxEntries = 20_000
)

// Options tells Parse about the file's surroundings.
type Options struct {
	// ReadFile reads a configuration file that the file names. Its path is absolute, or relative to the working
	// directory. Where ReadFile is nil, regular files are read, up to one byte beyond MaxConfigSize.
	ReadFile func(path string) ([]byte, error)
	// ReadTree does the same for what `files` names, which may be a directory. Where it is nil, ReadFile reads files.
	// Without either, files and directories are read, as far as they are as large as may be put into elements.
	ReadTree func(path string) ([]TreeFile, error)
}

// Parse reads a file of one or more documents, each of them a network. The name is for errors, and configuration files
// are found relative to it. The result is what the file says, with the interfaces that its links and edges imply, and
// model.Read finds nothing wrong with it. What the file does not say is empty: it may have been set at run time, and
// then stays. With an error, which is always Errors, there is no result.
func Parse(name string, data []byte, opts Options) ([]model.Network, error) {
	documents, err := Documents(name, data, opts)
	if err != nil {
		return nil, err
	}
	return each.Of(documents, func(d Document) model.Network { return d.Network }), nil
}

// Document is a network and where it stands in its file.
type Document struct {
	Network model.Network
	builder *builder
}

// Outside is what the network takes from files that are not below the directory of the file that names them. It was
// read already, and whoever asked for the document decides whether it may be used.
func (d Document) Outside() []Elsewhere { return d.builder.outside }

// Documents is Parse for callers that will ask later where in the file something stands.
func Documents(name string, data []byte, opts Options) ([]Document, error) {
	src := source{name: name, data: data}
	docs, err := src.documents()
	if err != nil {
		return nil, Errors{err}
	}
	if read := opts.ReadFile; opts.ReadTree == nil && read != nil {
		opts.ReadTree = func(path string) ([]TreeFile, error) {
			data, err := read(path)
			return []TreeFile{{Content: data, Perm: 0o644}}, err
		}
	}
	given := opts.ReadFile != nil || opts.ReadTree != nil
	if opts.ReadFile == nil {
		opts.ReadFile = readConfig
	}
	if opts.ReadTree == nil {
		opts.ReadTree = readTree
	}
	var all []Document
	d := decoder{source: src}
	lines := map[string]int{}
	for _, doc := range docs {
		if len(d.errs) == maxErrors {
			break
		}
		var f form.Network
		f.Node = doc
		before := len(d.errs)
		what := "the file"
		if len(docs) > 1 {
			what = "the document"
		}
		d.path, d.blanks = nil, blanks{}
		d.structure(doc, reflect.ValueOf(&f).Elem(), what)
		if _, empty := doc.(*ast.NullNode); !empty && kindOf(doc) != "a mapping" {
			continue
		}
		if f.Network == "" && !d.blanks.has("network") {
			d.blanks.add("network")
			d.failAt(tokenOf(doc), "the network has no name; begin with a line like: network: lab")
		}
		b := builder{decoder: &d, form: &f, readFile: opts.ReadFile, readTree: opts.ReadTree, given: given,
			dir: filepath.Dir(name)}
		net := b.network()
		if len(d.errs) > before && len(net.Elements)+len(net.Links)+len(net.Edges) == 0 {
			continue // hardly a network
		}
		_, problems := resolve.ReadPart(net, b.unknown())
		for _, p := range problems {
			if len(d.errs) == maxErrors {
				break
			}
			d.failAt(b.locate(p), "%s", p.Message)
		}
		sort(d.errs[before:])
		line := 1
		if t := tokenOf(doc); t != nil {
			line = t.Position.Line
		}
		if first, twice := lines[net.Name]; twice && net.Name != "" {
			d.fail(doc, "network %s is in this file twice, first in line %d; give one of them another name", net.Name,
				first)
		}
		lines[net.Name] = line
		all = append(all, Document{net, &b})
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return all, nil
}

// documents parses YAML, after making sure that parsing it is harmless.
func (s source) documents() (docs []ast.Node, failed *Error) {
	if err := CheckSize(s.data); err != nil {
		return nil, s.whole("%v", err)
	}
	data := bytes.TrimPrefix(s.data, []byte("\ufeff"))
	if err := s.checkText(data); err != nil {
		return nil, err
	}
	// The parser is meant for files that people write. Garbage may reach a part of it that nobody has tested.
	defer func() {
		if p := recover(); p != nil {
			docs, failed = nil, s.whole("it is no YAML that can be read (%v)", p)
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if err := s.checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(fillNulls(joinColons(tokens)), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, s.syntax(err)
	}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.CommentGroupNode:
			continue
		}
		docs = append(docs, doc.Body)
	}
	if len(docs) > MaxNetworks {
		return nil, s.whole("there are %d networks in it, and a file may have %d; divide it, or apply one network "+
			"under many names with --name", len(docs), MaxNetworks)
	}
	if len(docs) == 0 {
		return nil, s.whole("there is no network in it; the shortest is\n  network: lab\n  routers: [r1, r2]\n  " +
			"links:\n    - r1 -- r2")
	}
	return docs, nil
}

// CheckSize tells whether a file is too large to be read.
func CheckSize(data []byte) error {
	if len(data) > MaxSize {
		return fmt.Errorf("the file has %d bytes, which is more than a description of networks ever needs (%d are "+
			"allowed); is it the right file?", len(data), MaxSize)
	}
	if len(data) <= maxPlain {
		return nil
	}
	if n := marks(data); n > maxMarks {
		return fmt.Errorf("the file has %d bytes, and %d commas, colons, line ends and the like; more than %d bytes "+
			"may only have %d of them: divide it, or name files instead of writing their content here (file: PATH)",
			len(data), n, maxPlain, maxMarks)
	}
	return nil
}

// marks counts the characters that can mean something in YAML. Of text in base64 those are the ends of its lines.
func marks(data []byte) (n int) {
	for _, c := range data {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == ' ', c == '+', c == '/', c == '=',
			c >= 0x80:
		default:
			n++
		}
	}
	return n
}

// checkText refuses what is not text, and what does not begin as a mapping does.
func (s source) checkText(data []byte) *Error {
	begun := false
	for line := 1; len(data) > 0; line++ {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		if !utf8.Valid(text) {
			return s.whole("line %d is not UTF-8 text; is it the right file?", line)
		}
		if len(text) > maxLength {
			return s.whole("line %d has %d bytes; %d are allowed: write one name or link a line", line,
				len(text), maxLength)
		}
		if i := bytes.IndexFunc(bytes.TrimSuffix(text, []byte("\r")), func(r rune) bool {
			return r < ' ' && r != '\t' ||
				r == 0x7f
		}); i >= 0 {
			return s.position(line, utf8.RuneCount(text[:i])+1, 1,
				"the control character %#02x does not belong into a text file; is it the right file?", text[i])
		}
		if word := bytes.TrimSpace(text); !begun && len(word) > 0 && word[0] != '#' && string(word) != "---" {
			begun = true
			if !bytes.ContainsRune(word, ':') && word[0] != '{' && word[0] != '%' {
				return s.position(line, 1, utf8.RuneCount(text),
					"this is no description of networks; it would begin with a line like: network: lab")
			}
		}
		data = rest
	}
	return nil
}

// checkTokens refuses what no file needs and what can grow without bounds.
func (s source) checkTokens(tokens token.Tokens) *Error {
	depth := 0
	var open []mappingSize
	var last *token.Token
	for _, t := range tokens {
		switch before := last; t.Type {
		case token.CommentType:
			continue
		case token.DocumentHeaderType:
			open = nil
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return s.at(t, "YAML anchors, aliases and merge keys (&, *, <<) are not used here; say what many have in "+
				"common under defaults:")
		case token.TagType:
			return s.at(t, "YAML tags (%s) are not used here; leave it out, or put the text in quotes", t.Value)
		case token.DirectiveType:
			return s.at(t, "YAML directives (%%) are not used here; leave the line out")
		case token.MappingKeyType:
			return s.at(t, "YAML's explicit keys (?) are not used here; write key: value")
		case token.SequenceStartType, token.MappingStartType:
			depth++
			if depth > maxDepth {
				return s.at(t, "brackets nest more than %d deep here; nothing in a description of networks does",
					maxDepth)
			}
		case token.SequenceEndType, token.MappingEndType:
			depth = max(0, depth-1)
		case token.SequenceEntryType, token.MappingValueType:
			if depth == 0 && t.Position.Column > maxIndent {
				return s.at(t, "the line is indented or nested too far (column %d)", t.Position.Column)
			}
			column := t.Position.Column
			if t.Type == token.MappingValueType && before != nil {
				column = before.Position.Column
			}
			for len(open) > 0 && open[len(open)-1].column > column {
				open = open[:len(open)-1]
			}
			if t.Type == token.MappingValueType && depth == 0 {
				if len(open) == 0 || open[len(open)-1].column < column {
					open = append(open, mappingSize{column: column})
				}
				if open[len(open)-1].entries++; open[len(open)-1].entries > maxEntries {
					return s.at(before, "this mapping has more than %d keys; divide it into several networks, or "+
						"list names where there is nothing else to say", maxEntries)
				}
			}
		case token.InvalidType:
			return s.syntaxAt(t, t.Error)
		}
		last = t
	}
	return nil
}

// mappingSize counts the keys of a mapping that begins in a column.
type mappingSize struct{ column, entries int }

func (s source) syntax(err error) *Error {
	if e, ok := errors.AsType[yaml.Error](err); ok {
		return s.syntaxAt(e.GetToken(), e.GetMessage())
	}
	return s.whole("it is no YAML: %v", err)
}

func (s source) syntaxAt(t *token.Token, message string) *Error {
	if t == nil || t.Position == nil {
		return s.whole("it is no YAML: %s", message)
	}
	// What the parser says about a tab is rarely about the tab, and may be about the line before or behind it.
	rest, text := s.data, []byte(nil)
	for line := 1; line <= t.Position.Line+1 && len(rest) > 0; line++ {
		text, rest, _ = bytes.Cut(rest, []byte("\n"))
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && line >= t.Position.Line-1 {
			return s.position(line, tab+1, 1, "a tab indents this line; YAML wants spaces")
		}
	}
	return s.at(t, "it is no YAML: %s", strings.TrimSuffix(message, "."))
}
