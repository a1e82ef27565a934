package spec

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// commands reads a command or a list of commands. A comma is part of a command.
func (d *decoder) commands(n ast.Node, what string) form.Commands {
	nodes := []ast.Node{n}
	switch n := n.(type) {
	case *ast.SequenceNode:
		nodes = n.Values
	case *ast.NullNode, nil:
		nodes = nil
	}
	all := form.Commands{} // an empty list takes back what the defaults say
	for _, n := range nodes {
		if text, ok := d.scalar(n, what); ok {
			all = append(all, text)
		}
	}
	return all
}

// valuesByName reads a mapping of single values.
func valuesByName[T any](d *decoder, n ast.Node, what string, f func(string) (T, error)) map[string]T {
	all := map[string]T{}
	for _, v := range d.entries(n, what) {
		name, _ := d.scalar(v.Key, what)
		of := name + " of " + what
		if _, nothing := v.Value.(*ast.NullNode); nothing || v.Value == nil {
			d.fail(v.Key, "%s has no value", of)
			continue
		}
		text, ok := d.scalar(v.Value, of)
		if !ok {
			continue
		}
		value, err := f(text)
		if err != nil {
			d.fail(v.Value, "%s: %v", of, err)
			continue
		}
		all[name] = value
	}
	return all
}

// service is what an element runs: what it says itself, else what the defaults say, whose files have been read.
func (b *builder) service(of string, s, d form.Service, files map[string]model.File) model.Service {
	m := model.Service{Image: first(s.Image, d.Image), Restart: first(s.Restart, d.Restart),
		Run: deref(first(s.Run, d.Run)), Env: byName(s.Env, d.Env), Tmpfs: byName(s.Tmpfs, d.Tmpfs),
		Contents: byName(b.contents(of, s.Files), files)}
	if m.Start = s.Start; s.Start == nil {
		m.Start = d.Start
	}
	if m.Stop = s.Stop; s.Stop == nil {
		m.Stop = d.Stop
	}
	if len(m.Start) == 0 {
		m.Start = nil
	}
	if len(m.Stop) == 0 {
		m.Stop = nil
	}
	if m.Run == "" && m.Image == "" && s.Restart == "" {
		m.Restart = "" // the defaults' is about their run
	}
	if !m.Runs() && m.Image == "" && s.Ready == nil {
		return m
	}
	if r := first(s.Ready, d.Ready); r != nil && *r != (form.Ready{}) {
		m.Ready = &model.Readiness{TCP: r.TCP, Command: r.Command}
	}
	return m
}

// byName takes each from a, else from b.
func byName[M ~map[string]T, T any](a, b M) map[string]T {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]T{}
	maps.Copy(all, b)
	maps.Copy(all, a)
	return all
}

// putService writes what an element runs.
func putService(n *yamlNode, s *model.Service) {
	n.set("image", s.Image)
	putWords(n, "start", s.Start)
	n.set("run", s.Run)
	n.set("restart", string(s.Restart))
	putWords(n, "stop", s.Stop)
	putByName(n, "env", s.Env, scalar)
	if s.Ready != nil {
		var of yamlNode
		if s.Ready.TCP != 0 {
			of.put("tcp", integer(s.Ready.TCP))
		}
		of.set("command", s.Ready.Command)
		n.put("ready", of)
	}
	putByName(n, "tmpfs", s.Tmpfs, num)
	putContents(n, s.Contents)
}

func putByName[T any](n *yamlNode, key string, all map[string]T, value func(T) yamlNode) {
	if len(all) == 0 {
		return
	}
	var of yamlNode
	for _, name := range slices.Sorted(maps.Keys(all)) {
		of.put(name, value(all[name]))
	}
	n.put(key, of)
}
