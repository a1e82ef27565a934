package spec

import (
	"reflect"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

const lspHelp = "write {to: 10.9.0.0/24, push: 100, via: r2}, {in: 100, out: 200, via: r3}, {in: 200, via: r4} or " +
	"{in: 200}"

// lsp reads what a router does with one label, or with packets that get one.
func (d *decoder) lsp(n ast.Node, l *form.LSP, _ string) {
	l.Node = n
	before := len(d.errs)
	d.structure(n, reflect.ValueOf(l).Elem(), "an entry of mpls")
	switch pushes := l.To.IsValid() || len(l.Push) > 0; {
	case len(d.errs) > before:
	case len(l.In) > 1:
		d.fail(n, "an entry of mpls has one label in:; %s", lspHelp)
	case pushes && (len(l.In) > 0 || len(l.Out) > 0):
		d.fail(n, "an entry of mpls is either of packets to a prefix (to, push) or of packets with a label (in, "+
			"out); %s", lspHelp)
	case pushes && !l.To.IsValid():
		d.fail(n, "an entry of mpls with push: needs to:, the prefix whose packets get the label; %s", lspHelp)
	case pushes && len(l.Push) == 0:
		d.fail(n, "an entry of mpls with to: needs push:, the label that packets get; %s", lspHelp)
	case !pushes && len(l.In) == 0:
		d.fail(n, "an entry of mpls needs in:, or to: and push:; %s", lspHelp)
	}
}

func lsps(all []form.LSP) []model.LSP {
	var out []model.LSP
	for _, l := range all {
		m := model.LSP{To: l.To, Out: l.Out, Via: l.Via}
		if len(l.In) > 0 {
			m.In = l.In[0]
		}
		if len(l.Push) > 0 {
			m.Out = l.Push
		}
		out = append(out, m)
	}
	return out
}

// putMPLS writes the label-switched paths that a router is on.
func putMPLS(n *yamlNode, all []model.LSP) {
	if len(all) == 0 {
		return
	}
	l := yamlNode{kind: yamlList}
	for _, p := range all {
		one := yamlNode{kind: yamlMapping}
		out := "push"
		if p.To.IsValid() {
			one.set("to", p.To.String())
		} else {
			one.put("in", raw(strconv.Itoa(p.In)))
			out = "out"
		}
		switch labels := p.Out; {
		case len(labels) == 1:
			one.put(out, raw(strconv.Itoa(labels[0])))
		case len(labels) > 1:
			several := yamlNode{kind: yamlList}
			for _, v := range labels {
				several.list = append(several.list, raw(strconv.Itoa(v)))
			}
			one.put(out, several)
		}
		one.set("via", p.Via)
		l.list = append(l.list, one)
	}
	n.put("mpls", l)
}
