package lifecycle

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/polyplane/polyplane/instance"
)

// What polyplane makes in the data directory has names by which it can be told from what others have put beside it.
// That matters where a directory may be others' too: behind a link, or on a disk of its own.

// kind is one thing that polyplane makes: a file, or a directory with what may be in it.
type kind struct {
	name *regexp.Regexp
	dir  bool
	in   []kind // what polyplane makes in the directory
	all  bool   // everything in the directory is polyplane's
	// certain tells that no others' file has such a name by chance. Only such things are deleted behind a link.
	certain bool
	last    bool   // it goes last, since what is there is known by it
	mark    string // what every such directory has in it; without it a directory may be others'
}

func file(name string) kind { return kind{name: regexp.MustCompile("^" + name + "$")} }

func dir(name string, in ...kind) kind {
	is := file(name)
	is.dir, is.in = true, in
	return is
}

func whole(name string) kind {
	is := dir(name)
	is.all = true
	return is
}

func sure(is kind) kind {
	is.certain = true
	return is
}

func goesLast(is kind) kind {
	is.last = true
	return is
}

const (
	anyName   = `[^.].*`
	anew      = `(\.new|\.damaged.*)?`
	temporary = `\.new-[0-9]+`
)

// Patterns take a while to be read, so they are when they are first asked for.
var (
	imageKinds = sync.OnceValue(func() []kind {
		return []kind{file(`[0-9a-f]{64}(\.(image|ext4|json|new))+`), dir(`[0-9a-f]{64}\.mount`), file(temporary),
			goesLast(file(`index\.json` + anew))}
	})
	diskKinds = sync.OnceValue(func() []kind {
		return []kind{dir(anyName, file(`[^.].*\.ext4(\..*)?`)), file(`\.empty-[0-9]+(\..*)?`)}
	})
	setAside = sync.OnceValue(func() []kind {
		return []kind{dir(anyName, dir(`.*@.*`, file(`disk\.ext4(\..*)?`), file(`(none|taken|new)`), whole("files")))}
	})
	nodeKinds = sync.OnceValue(func() []kind {
		return []kind{dir("arriving", setAside()...), dir("disks", diskKinds()...),
			dir("desired", file(`[0-9a-f]{32}\.json`+anew), file(temporary)),
			dir("evidence", dir(anyName, file(`.*\.pcapng(\..*)?`))), dir("images", imageKinds()...),
			dir("networks", dir(anyName, whole(anyName))), dir("programs", file(anyName)),
			dir("trash", setAside()...), file(`\.files-[0-9]+`), file(`(incidents|usual|store)\.json` + anew),
			goesLast(file(`desired\.json`)), file(`desired\.json` + anew)}
	})
	dataKinds = sync.OnceValue(func() []kind {
		return []kind{
			dir("aside", file(`[0-9a-f]{24}\.(json|overtaken)`+anew)),
			dir("authority", file(`(authority\.pem|revoked\.json)`+anew), file(temporary)),
			sure(dir("backups", file(`auto-[0-9]{8}T[0-9]{6}Z\.backup(\.part)?`))),
			sure(dir("etcd", dir("member",
				dir("snap", file(`db(\..*)?`), file(`[0-9a-f-]+\.snap(\..*)?`), file("tmp.*")),
				dir("wal(.tmp)?", file(`[0-9a-f-]+\.(wal|tmp)(\.broken)?`))),
				file("polyplane"))),
			file(`etcd\.log`), file(`etcd\.reserve`), whole("examined-(backup|[0-9]+)"), // by a check that was killed
			dir("identity", file(`[a-z]+\.(pem|json)`+anew), file(temporary)),
			sure(dir("images", imageKinds()...)),
			dir("log", file(`(up|manager|agent-.*)\.log(\.1)?`)),
			sure(dir("nodes",
				kind{name: regexp.MustCompile(anyName), dir: true, in: nodeKinds(), mark: "desired.json"})),
			file(`restore\.log`), file(`self-test\.json`), file(regexp.QuoteMeta(instance.SettingsFile))}
	})
)

// madeEndings are what names in the data directory end with where it was made anew, damaged, or set aside.
var madeEndings = regexp.MustCompile(`(\.new|\.damaged|\.damaged-.+|\.aside-.+)$`)

// namedOf is what of some kinds has a name; nil if nothing.
func namedOf(kinds []kind, name string) *kind {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name.MatchString(name) })
	if at < 0 {
		return nil
	}
	return &kinds[at]
}

// madeKind is what polyplane made under a name in the data directory; nil if it did not.
func madeKind(name string) *kind {
	if is := namedOf(dataKinds(), name); is != nil {
		return is
	}
	return namedOf(dataKinds(), madeEndings.ReplaceAllString(name, ""))
}

// mayBe tells whether a directory can be of a kind, by what is in it.
func (k *kind) mayBe(entries []fs.DirEntry) bool {
	return k.mark == "" || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == k.mark })
}

// nodeParts are the directories that nodes have below one.
func nodeParts(nodes string) (all []string) {
	paths, _ := filepath.Glob(filepath.Join(nodes, "*", "*")) // it fails for wrong patterns only
	return slices.DeleteFunc(paths, func(at string) bool {
		is := namedOf(nodeKinds(), filepath.Base(at))
		return is == nil || !is.dir
	})
}
