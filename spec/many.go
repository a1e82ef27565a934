package spec

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// A range in a name stands for many names: r[1-100], h[01-20]. What it stands for is bounded before any of it is made,
// for one network and for all of a file, so that a few bytes cannot fill the memory.

// maxManyNames and maxManyLinks are how many names and links may come of ranges and shapes in one file: as many as a
// file that says each could have.
const (
	maxManyNames = 4 * model.MaxElements
	maxManyLinks = 4 * model.MaxLinks
)

var (
	nameRange = regexp.MustCompile(`\[([^\[\]]*)\]`)
	digits    = regexp.MustCompile(`^([0-9]{1,9})-([0-9]{1,9})$`)
)

const rangeHelp = "a range is two numbers, like r[1-20], or h[01-20] for h01 to h20"

// isMany tells whether a name has a range in it.
func isMany(name string) bool { return strings.ContainsAny(name, "[]") }

// namesOf are the names that a name with ranges stands for, at most so many. The last range counts fastest.
func namesOf(name string, most int) ([]string, error) {
	type span struct{ from, count, width int }
	var spans []span
	ranges := nameRange.FindAllStringSubmatchIndex(name, -1)
	total := 1
	for _, at := range ranges {
		text := name[at[2]:at[3]]
		m := digits.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("[%s] is no range; %s", text, rangeHelp)
		}
		from, _ := strconv.Atoi(m[1])
		to, _ := strconv.Atoi(m[2])
		width := 0
		switch {
		case to < from:
			return nil, fmt.Errorf("[%s] runs backwards; write [%s-%s]", text, m[2], m[1])
		case m[1][0] == '0' && len(m[1]) > 1 && len(m[1]) != len(m[2]):
			return nil, fmt.Errorf("the numbers of [%s] are not equally long; %s", text, rangeHelp)
		case m[1][0] == '0' && len(m[1]) == len(m[2]):
			width = len(m[1])
		case m[2][0] == '0' && len(m[2]) > 1:
			return nil, fmt.Errorf("the numbers of [%s] are not equally long; %s", text, rangeHelp)
		}
		spans = append(spans, span{from, to - from + 1, width})
		if total *= to - from + 1; total > most {
			return nil, fmt.Errorf("%s stands for more than the %d names that there may be", name, most)
		}
	}
	if isMany(nameRange.ReplaceAllString(name, "")) {
		return nil, fmt.Errorf("%s has a bracket without its other one; %s", name, rangeHelp)
	}
	names := make([]string, total)
	for n := range names {
		var b strings.Builder
		rest, step := n, total
		last := 0
		for i, at := range ranges {
			step /= spans[i].count
			fmt.Fprintf(&b, "%s%0*d", name[last:at[0]], spans[i].width, spans[i].from+rest/step)
			rest, last = rest%step, at[1]
		}
		names[n] = b.String() + name[last:]
	}
	if len(ranges) > 1 { // 1 and 11 are what 11 and 1 are
		sorted := slices.Sorted(slices.Values(names))
		for i := 1; i < len(sorted); i++ {
			if sorted[i] == sorted[i-1] {
				return nil, fmt.Errorf("%s stands for %s twice; write something between the ranges, like "+
					"r[1-20]-[1-20]", name, sorted[i])
			}
		}
	}
	return names, nil
}

// many are the names that a name in the file stands for: itself, if it has no range.
func (d *decoder) many(n ast.Node, name, what string) []string {
	if !isMany(name) {
		return []string{name}
	}
	if d.manyNames > maxManyNames {
		return nil // it is said
	}
	names, err := namesOf(name, model.MaxElements)
	if err == nil {
		if d.manyNames += len(names); d.manyNames > maxManyNames {
			err = fmt.Errorf("with %s the file has more than %d names by ranges; divide it", name, maxManyNames)
		}
	}
	if err != nil {
		d.enter("?")
		d.fail(n, "%s: %v", what, err)
		d.leave()
		d.lost(n)
		return nil
	}
	return names
}

// listed reads names in one text, with commas between: `r[1-3], core`.
func (d *decoder) listed(n ast.Node, what string) (names []string, ok bool) {
	text, isText := n.(*ast.StringNode)
	if !isText || !isMany(text.Value) {
		return nil, false
	}
	for s := range strings.SplitSeq(text.Value, ",") {
		names = append(names, d.many(n, strings.TrimSpace(s), what)...)
	}
	return names, true
}

// links reads the list of links, or one shape without a list.
func (d *decoder) links(n ast.Node, what string) form.Links {
	var all form.Links
	items := []ast.Node{n}
	if s, one := n.(*ast.StringNode); !one || !isShape(s.Value) {
		items = d.items(n, what)
	}
	for i, item := range items {
		l := form.Link{Entry: i}
		d.enter(strconv.Itoa(i))
		if d.link(item, &l) {
			all = append(all, l)
		} else {
			d.lost(item)
		}
		d.leave()
	}
	return all
}

// expandLinks makes links of those entries that stand for many, and the elements that a shape makes.
func (b *builder) expandLinks() {
	var all form.Links
	for i := range b.form.Links {
		if b.manyLinks > maxManyLinks || len(b.errs) == maxErrors {
			break // it is said
		}
		l := &b.form.Links[i]
		made, err := b.linksOf(l)
		if err == nil && len(made) > 1 {
			if b.manyLinks += len(made); b.manyLinks > maxManyLinks {
				err = fmt.Errorf("the file has more than %d links by ranges and shapes; divide it", maxManyLinks)
			}
		}
		if err == nil && len(all)+len(made) > model.MaxLinks && len(made) > 1 {
			b.failAt(tokenOf(l.Key), "links: %s: with it the network has more than the %d links that it may have",
				l.Text, model.MaxLinks)
			for _, left := range b.form.Links[i:] {
				b.blanks.lose("links", left.Text)
			}
			break
		}
		switch {
		case err != nil:
		case len(made) > 1 && l.Value.Name != "":
			err = fmt.Errorf("a name is one link's, and these are %d links; leave it out", len(made))
		case len(made) > 1 && len(l.Value.Prefixes) > 0:
			err = fmt.Errorf("prefixes are one link's, and these are %d links; leave them out, and they are numbered "+
				"from the pools", len(made))
		}
		if err != nil {
			if !errors.Is(err, errLost) {
				b.failAt(tokenOf(l.Key), "links: %s: %v", l.Text, err)
			}
			b.enter("links")
			b.blank(strconv.Itoa(l.Entry))
			b.leave()
			b.blanks.lose("links", l.Text)
			continue
		}
		all = append(all, made...)
	}
	b.form.Links = all
}

// linksOf are the links that one entry stands for.
func (b *builder) linksOf(l *form.Link) (form.Links, error) {
	if l.Shape != nil {
		ends, err := b.shape(l)
		made := make(form.Links, len(ends))
		for i, e := range ends {
			made[i] = *l
			made[i].A, made[i].B = form.End{Element: e[0]}, form.End{Element: e[1]}
		}
		return made, err
	}
	if !isMany(l.Text) {
		return form.Links{*l}, nil
	}
	var ends [2][]string
	for k, e := range []form.End{l.A, l.B} {
		text := e.Element
		if e.Interface != "" {
			text += ":" + e.Interface
		}
		var err error
		if ends[k], err = namesOf(text, model.MaxLinks); err != nil {
			return nil, err
		}
	}
	a, z := len(ends[0]), len(ends[1])
	if a != z && a != 1 && z != 1 {
		return nil, fmt.Errorf("there are %d ends on one side and %d on the other; write as many on both, or one", a, z)
	}
	made := make(form.Links, max(a, z))
	for i := range made {
		made[i] = *l
		made[i].A.Element, made[i].A.Interface = cutEnd(ends[0][min(i, a-1)])
		made[i].B.Element, made[i].B.Interface = cutEnd(ends[1][min(i, z-1)])
	}
	return made, nil
}

const shapeHelp = "there are line, ring, mesh (each with a number of routers, if not all), grid 10x10, and clos " +
	"spines 3 leaves 6 hosts 2"

var (
	// errLost says that a shape has too few elements, and that this may only follow from another mistake.
	errLost   = errors.New("elements are missing")
	errNumber = errors.New("a number is expected; " + shapeHelp)
	gridSize  = regexp.MustCompile(`^([0-9]+)x([0-9]+)$`)
)

// isShape tells whether an entry of links is a shape, by its first word.
func isShape(text string) bool {
	words := strings.Fields(text)
	if len(words) == 0 || len(words) > 1 && words[1] == "--" {
		return false
	}
	switch words[0] {
	case "line", "ring", "mesh", "grid", "clos":
		return true
	}
	return false
}

// size reads how many there shall be of something.
func size(word string, least int) (int, error) {
	n, err := strconv.Atoi(word)
	switch {
	case err != nil || n < 0:
		return 0, errNumber
	case n < least:
		return 0, fmt.Errorf("%d is too few; at least %d are needed", n, least)
	case n > model.MaxElements:
		return 0, fmt.Errorf("%d is more than the %d elements that a network may have", n, model.MaxElements)
	}
	return n, nil
}

// shape works out the links of a shape, as pairs of elements.
func (b *builder) shape(l *form.Link) ([][2]string, error) {
	words := l.Shape
	switch words[0] {
	case "grid":
		return b.grid(l, words[1:])
	case "clos":
		return b.clos(l, words[1:])
	}
	count := len(b.form.Routers)
	switch {
	case len(words) == 2:
		var err error
		if count, err = size(words[1], 2); err != nil {
			return nil, err
		}
	case len(words) > 2:
		return nil, errNumber
	case count < 2 && b.blanks.has("routers"):
		return nil, errLost
	case count < 2:
		return nil, fmt.Errorf("there are not two routers for it; list them under routers:, or say how many: %s 10",
			words[0])
	}
	if links := count * (count - 1) / 2; words[0] == "mesh" && links > model.MaxLinks {
		return nil, fmt.Errorf("a mesh of %d routers has %d links; a network may have %d", count, links, model.MaxLinks)
	}
	names, err := b.routersOf(l, count, func(n int) string { return "r" + strconv.Itoa(n) })
	if err != nil {
		return nil, err
	}
	var ends [][2]string
	switch words[0] {
	case "mesh":
		for i := range names {
			for k := i + 1; k < len(names); k++ {
				ends = append(ends, [2]string{names[i], names[k]})
			}
		}
	default:
		for i := 1; i < len(names); i++ {
			ends = append(ends, [2]string{names[i-1], names[i]})
		}
		if words[0] == "ring" && len(names) > 2 {
			ends = append(ends, [2]string{names[len(names)-1], names[0]})
		}
	}
	return ends, nil
}

// grid joins routers in rows and columns, row by row in the file's order.
func (b *builder) grid(l *form.Link, words []string) ([][2]string, error) {
	if len(words) != 1 {
		return nil, errors.New("a grid has a size: grid 10x10, columns before rows")
	}
	m := gridSize.FindStringSubmatch(words[0])
	if m == nil {
		return nil, fmt.Errorf("%q is no size; write columns and rows, like grid 10x10", words[0])
	}
	columns, err := size(m[1], 1)
	if err != nil {
		return nil, err
	}
	rows, err := size(m[2], 1)
	if err != nil {
		return nil, err
	}
	if _, err := size(strconv.Itoa(columns*rows), 2); err != nil {
		return nil, err
	}
	names, err := b.routersOf(l, columns*rows, func(n int) string { return "r" + strconv.Itoa(n) })
	if err != nil {
		return nil, err
	}
	var ends [][2]string
	for i, name := range names {
		if (i+1)%columns != 0 {
			ends = append(ends, [2]string{name, names[i+1]})
		}
		if i+columns < len(names) {
			ends = append(ends, [2]string{name, names[i+columns]})
		}
	}
	return ends, nil
}

// clos joins every leaf with every spine, and with hosts of its own.
func (b *builder) clos(l *form.Link, words []string) ([][2]string, error) {
	said := map[string]int{"hosts": 0}
	for i := 0; i+1 < len(words); i += 2 {
		least := 1
		switch words[i] {
		case "hosts":
			least = 0
		case "spines", "leaves":
		default:
			return nil, fmt.Errorf("%q is unknown; write clos spines 3 leaves 6 hosts 2, hosts being those of each "+
				"leaf", words[i])
		}
		n, err := size(words[i+1], least)
		if err != nil {
			return nil, err
		}
		said[words[i]] = n
	}
	spines, leaves, hosts := said["spines"], said["leaves"], said["hosts"]
	if len(words)%2 != 0 || spines == 0 || leaves == 0 {
		return nil, errors.New("a clos has spines and leaves: clos spines 3 leaves 6 hosts 2")
	}
	if all := spines + leaves + leaves*hosts; all > model.MaxElements {
		return nil, fmt.Errorf("it has %d elements; a network may have %d", all, model.MaxElements)
	}
	if all := leaves * (spines + hosts); all > model.MaxLinks {
		return nil, fmt.Errorf("it has %d links; a network may have %d", all, model.MaxLinks)
	}
	routers, err := b.routersOf(l, spines+leaves, func(n int) string {
		if n <= spines {
			return "spine" + strconv.Itoa(n)
		}
		return "leaf" + strconv.Itoa(n-spines)
	})
	if err != nil {
		return nil, err
	}
	ofLeaves := elementsOf(&b.form.Hosts, l, leaves*hosts, func(n int) string { return "h" + strconv.Itoa(n) })
	if len(ofLeaves) < leaves*hosts {
		if b.blanks.has("hosts") {
			return nil, errLost
		}
		return nil, fmt.Errorf("it joins %d hosts, and the file has %d; list as many under hosts:, or none at all: "+
			"then they are h1, h2 and so on", leaves*hosts, len(ofLeaves))
	}
	var ends [][2]string
	for i, leaf := range routers[spines:] {
		for _, spine := range routers[:spines] {
			ends = append(ends, [2]string{spine, leaf})
		}
		for k := range hosts {
			ends = append(ends, [2]string{leaf, ofLeaves[i*hosts+k]})
		}
	}
	return ends, nil
}

// routersOf are the file's first routers. If it has none at all, they are made.
func (b *builder) routersOf(l *form.Link, count int, name func(int) string) ([]string, error) {
	names := elementsOf(&b.form.Routers, l, count, name)
	if len(names) < count {
		if b.blanks.has("routers") {
			return nil, errLost
		}
		return nil, fmt.Errorf("it joins %d routers, and the file has %d; list as many under routers:, or none at "+
			"all: then they are %s, %s and so on", count, len(names), name(1), name(2))
	}
	return names, nil
}

// elementsOf are the first of the elements there are, at most so many. If there are none at all, so many are made.
func elementsOf[T any, L ~[]form.Item[T]](all *L, l *form.Link, count int, name func(int) string) []string {
	if len(*all) == 0 {
		for n := range count {
			*all = append(*all, form.Item[T]{Name: name(n + 1), Key: l.Key})
		}
	}
	names := make([]string, 0, count)
	for i := range (*all)[:min(count, len(*all))] {
		names = append(names, (*all)[i].Name)
	}
	return names
}

// manyOf makes one item for each name that a key stands for. They have their values in common.
func manyOf[T any](d *decoder, item form.Item[T], what, kind string) []form.Item[T] {
	names := d.many(item.Key, item.Name, what)
	label := kind + " " + item.Name
	d.value(item.Node, reflect.ValueOf(&item.Value).Elem(), label)
	all := make([]form.Item[T], len(names))
	for i, name := range names {
		all[i] = item
		all[i].Name = name
	}
	return all
}
