package spec

import (
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// files reads what is put into an element: a path of whoever applies, or a mapping.
func (d *decoder) files(n ast.Node, what string) form.Files {
	if text, ok := n.(ast.ScalarNode); ok && text.Type() == ast.IntegerType {
		d.fail(n, "%s are files that are put into the element, by path: `files: {/etc/motd: ./motd}`; how many files "+
			"its processes may have open is said by open-files: %s", what, text.String())
		return nil
	}
	all := form.Files{}
	for _, v := range d.entries(n, what) {
		item := form.Item[form.File]{Key: v.Key, Node: v.Value}
		item.Name, _ = d.scalar(v.Key, what)
		of := item.Name + " of " + what
		switch v.Value.(type) {
		case nil, *ast.NullNode:
			item.Node = v.Key
			d.fail(v.Key, "%s is given nothing; write the path of a file or a directory, or {text: TEXT}", of)
			continue
		case *ast.MappingNode, *ast.MappingValueNode:
			d.structure(v.Value, reflect.ValueOf(&item.Value).Elem(), of)
		default:
			item.Value.File, _ = d.scalar(v.Value, of)
			if strings.Contains(item.Value.File, "\n") {
				d.fail(v.Value, "%s is the path of a file, and this is text; write {text: TEXT}", of)
				continue
			}
		}
		all = append(all, item)
	}
	return all
}

// contents are the files that are put into an element.
func (b *builder) contents(of string, files form.Files) map[string]model.File {
	if len(files) == 0 {
		return nil
	}
	all := map[string]model.File{}
	for i := range files {
		item := &files[i]
		added, err := b.content(of, item)
		if err != nil {
			b.failAt(tokenOf(item.Node), "files of %s: %s: %v", of, model.Shorten(item.Name, model.MaxName), err)
			continue
		}
		for at := range added {
			if _, twice := all[at]; twice {
				b.failAt(tokenOf(item.Node), "files of %s: %s is given twice, as a file and in a directory", of, at)
			}
		}
		maps.Copy(all, added)
	}
	return all
}

// content is what one entry puts into an element.
func (b *builder) content(of string, item *form.Item[form.File]) (map[string]model.File, error) {
	f, said := &item.Value, 0
	for _, is := range []bool{f.File != "", f.Text != nil, f.Base64 != nil, f.Tree != ""} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return nil, fmt.Errorf("it takes one of file, text and base64")
	case f.Tree != "" && (!model.IsImageID(f.Tree) || f.Mode != ""):
		return nil, fmt.Errorf("tree is the ID of files that the manager has, as `save` writes it (sha256:…), and " +
			"they have their own modes; write the path of a file or a directory")
	case f.Tree != "":
		var size model.Bytes
		if f.Size != "" {
			var err error
			if size, err = model.ParseBytes(f.Size); err != nil {
				return nil, fmt.Errorf("size: %w", err)
			}
		}
		return map[string]model.File{item.Name: {Tree: f.Tree, Size: size}}, nil
	case f.Size != "":
		return nil, fmt.Errorf("size is only said of a tree")
	case f.Text != nil:
		return map[string]model.File{item.Name: model.FileOf([]byte(*f.Text), f.Mode)}, nil
	case f.Base64 != nil:
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(*f.Base64), ""))
		if err != nil {
			return nil, fmt.Errorf("base64: %w", err)
		}
		return map[string]model.File{item.Name: model.FileOf(data, f.Mode)}, nil
	}
	name := f.File
	if !filepath.IsAbs(name) {
		name = filepath.Join(b.dir, name)
	}
	name, err := b.placed("files of "+of+": "+item.Name, name)
	if err != nil {
		return nil, fmt.Errorf("%w; paths are relative to the file that names them", err)
	}
	files, known := b.trees[name]
	if !known {
		if files, err = b.readTree(name); err != nil {
			return nil, fmt.Errorf("%w; paths are relative to the file that names them", err)
		}
		if b.trees == nil {
			b.trees = map[string][]TreeFile{}
		}
		b.trees[name] = files
	}
	all := make(map[string]model.File, len(files))
	for i := range files {
		if files[i].Tree != "" {
			all[item.Name] = model.File{Tree: files[i].Tree, Size: model.Bytes(files[i].Size), Mode: f.Mode}
			continue
		}
		mode := f.Mode
		if mode == "" {
			mode = fmt.Sprintf("%04o", files[i].Perm)
		}
		at := item.Name
		if files[i].Path != "" {
			at = strings.TrimSuffix(at, "/") + "/" + files[i].Path
		}
		all[at] = model.FileOf(files[i].Content, mode)
	}
	return all, nil
}

// putContents writes the files that are put into an element.
func putContents(n *yamlNode, all map[string]model.File) {
	putByName(n, "files", all, func(f model.File) (of yamlNode) {
		if f.Tree != "" {
			of.set("tree", f.Tree)
			if f.Size != 0 {
				of.put("size", num(f.Size))
			}
			return of
		}
		if data := f.Content(); len(f.Base64) > 0 || len(data) > longestText || strings.Contains(data, "\r") {
			of.put("base64", scalar(inLines(data)))
		} else {
			of.put("text", scalar(data))
		}
		of.set("mode", f.Mode)
		return of
	})
}

// longestText is how long a content may be that is written as text, in bytes. What is longer is written in base64, of
// which a reader takes more (MaxSize), and whose lines are never too long.
const longestText = 64 << 10

// inLines is a content in base64; in lines unless it is short.
func inLines(content string) string {
	const width = 96
	text := base64.StdEncoding.EncodeToString([]byte(content))
	if len(text) <= width {
		return text
	}
	var b strings.Builder
	for line := range slices.Chunk([]byte(text), width) {
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}
