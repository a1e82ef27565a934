package resolve

import (
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
)

// given are directories in which no file can be put: the machine's, the kernel's, those in memory, and polyplane's own.
var given = slices.Concat(held, model.SharedFiles, []string{"/run", "/tmp", "/var/run", "/var/lock"})

// givenInImages are those of elements that are made from images, which have no files of the machine.
var givenInImages = []string{"/proc", "/sys", "/dev", "/run/polyplane", "/etc/polyplane", "/var/lib/polyplane"}

// longestName is how long the names in a path may be: what Linux has (255), without what is added to the names of files
// that are being written or are in the way.
const longestName = 255 - 32

// checkContents checks the files that are put into an element.
func (ps *problems) checkContents(i int) {
	e := &ps.net.Elements[i]
	memory, given := slices.Sorted(maps.Keys(e.Tmpfs)), given
	if e.Image != "" {
		given = givenInImages
	}
	for _, at := range slices.Sorted(maps.Keys(e.Contents)) {
		f := e.Contents[at]
		field, shown := "files/"+at, model.Shorten(at, model.MaxName)
		in := func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }
		above, inMemory := fileAbove(e.Contents, at), slices.IndexFunc(memory, in)
		_, mode := f.Perm()
		switch {
		case !isPath(at):
			ps.element(i, "files", "files: %q is no path that a file can be at: at most %d bytes of text without "+
				"control characters, in at most %d names of at most %d bytes", shown, model.MaxFilePath,
				model.MaxFileDepth, longestName)
		case !strings.HasPrefix(at, "/") || path.Clean(at) != at || at == "/":
			ps.element(i, field, "files: %q is not a whole path in its shortest form, like /etc/motd", shown)
		case slices.ContainsFunc(given, in):
			ps.element(i, field, "files: %s cannot be put there: the machine's and the kernel's files are seen there, "+
				"polyplane's own, or what is in memory; put it into /etc, /opt, /root, /srv or a directory of the "+
				"element's own", shown)
		case strings.HasSuffix(at, model.SuffixBeingWritten):
			ps.element(i, field, "files: %s has a name as polyplane gives them to files that it is about to put "+
				"there; call it otherwise", shown)
		case at == "/etc/hostname":
			ps.element(i, field, "files: /etc/hostname has the element's name, which the network's file says")
		case inMemory >= 0:
			ps.element(i, field, "files: %s would be hidden by the file system in memory at %s (tmpfs)", shown,
				memory[inMemory])
		case above != "" && e.Contents[above].Tree != "":
			ps.element(i, field, "files: all that is at %s is large, and is kept as a whole, so that %s cannot be in "+
				"it; put it elsewhere, or into the directory that is named for %s", above, shown, above)
		case above != "":
			ps.element(i, field, "files: %s is a file, so that %s cannot be in it", above, shown)
		case e.RunsRouting() && slices.ContainsFunc(model.ConfigFiles(e.Software), isConfigAt(e.Software, at)):
			ps.element(i, field, "files: %s is the configuration of %s; write it as `config: {%s: {file: PATH}}`", at,
				e.Software, path.Base(at))
		case f.Text != "" && len(f.Base64) > 0:
			ps.element(i, field, "files: %s has text and base64; it takes one of them", shown)
		case !utf8.ValidString(f.Text) || strings.Contains(f.Text, "\x00"):
			ps.element(i, field, "files: the text of %s is not UTF-8 text; write it in base64", shown)
		case f.Tree != "" && (f.Text != "" || len(f.Base64) > 0):
			ps.element(i, field, "files: %s has a tree, and text or base64; it takes one of them", shown)
		case f.Tree != "" && !model.IsImageID(f.Tree) && !path.IsAbs(f.Tree):
			ps.element(i, field, "files: the tree %q of %s is no ID of files (sha256:…)",
				model.Shorten(f.Tree, model.MaxName), shown)
		case f.Tree == "" && f.Size != 0:
			ps.element(i, field, "files: %s has the size %s, which is said of trees only", shown, f.Size)
		case model.IsImageID(f.Tree) && f.Mode != "":
			ps.element(i, field, "files: %s has a tree and a mode; files in a tree have modes of their own", shown)
		case f.Tree != "" && f.Size > model.MaxTree:
			ps.element(i, field, "files: %s has %s; what is put into elements at a path has %s at most", shown,
				f.Size.Rounded(), model.MaxTree)
		case f.Tree != "" && ps.within(i, at) != "":
			ps.element(i, field, "files: all that is at %s is large, and is kept as a whole; this cannot be where %s "+
				"is, which is polyplane's, the machine's or in memory: name the directories in it one by one", shown,
				ps.within(i, at))
		case !mode:
			ps.element(i, field, "files: the mode %q of %s is not like 0644 or 0755: three octal digits, with a zero "+
				"before them or not", model.Shorten(f.Mode, model.MaxName), shown)
		}
	}
	ps.checkTrees(i)
}

// checkTrees checks that an element's disk has room for what is too large for the document.
func (ps *problems) checkTrees(i int) {
	e := &ps.net.Elements[i]
	var size model.Bytes
	for _, f := range e.Contents {
		if f.Tree != "" && f.Size <= model.MaxTree {
			size += f.Size
		}
	}
	if disk := e.Limits().Disk; size > disk-disk/16 {
		ps.element(i, "files", "its files have %s, and its disk of %s has no room for them: say disk: %s",
			size.Rounded(), disk, (size + size/8 + (64 << 20)).Rounded())
	}
}

// within is a path below one where no tree can be, since something that is not the tree's is there; empty where there
// is none.
func (ps *problems) within(i int, at string) string {
	e := &ps.net.Elements[i]
	others := slices.Concat(given, givenInImages, slices.Sorted(maps.Keys(e.Tmpfs)), []string{"/etc/hostname",
		"/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group"})
	if e.RunsRouting() {
		others = append(others, "/etc/"+string(e.Software))
	}
	for _, other := range others {
		if other == at || strings.HasPrefix(other, at+"/") {
			return other
		}
	}
	return ""
}

// isConfigAt returns whether a file of the software's configuration, by its name, is at a path.
func isConfigAt(software model.Software, at string) func(name string) bool {
	return func(name string) bool { return at == "/etc/"+string(software)+"/"+name }
}

// fileAbove is the one of the files in which a path would have to be, if any.
func fileAbove(all map[string]model.File, at string) string {
	for dir := path.Dir(at); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if _, there := all[dir]; there {
			return dir
		}
	}
	return ""
}

// isPath returns whether a text can be a path, and be shown to people.
func isPath(at string) bool {
	if !utf8.ValidString(at) || len(at) > model.MaxFilePath || strings.ContainsFunc(at, unicode.IsControl) {
		return false
	}
	parts := strings.Split(at, "/")
	return len(parts) <= model.MaxFileDepth && !slices.ContainsFunc(parts, func(part string) bool {
		return len(part) > longestName
	})
}
