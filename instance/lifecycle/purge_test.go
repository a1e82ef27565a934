package lifecycle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
)

const aBackup = "auto-20260101T000000Z.backup"

var anID = strings.Repeat("0a", 32)

// place is a machine's directory in which a data directory is.
type place struct {
	*testing.T
	dir string
}

func (p *place) mount(from, at, kind string, flags uintptr) {
	p.Helper()
	at = filepath.Join(p.dir, at)
	if err := os.MkdirAll(at, 0o755); err != nil {
		p.Fatal(err)
	}
	if err := unix.Mount(from, at, kind, flags, ""); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) }) //nolint:errcheck // it may be gone
}

func (p *place) disk(at string) { p.mount("tmpfs", at, "tmpfs", 0) }

func (p *place) bind(from, at string) {
	if err := os.MkdirAll(filepath.Join(p.dir, from), 0o755); err != nil {
		p.Fatal(err)
	}
	p.mount(filepath.Join(p.dir, from), at, "", unix.MS_BIND)
}

func (p *place) link(to, at string) {
	p.Helper()
	if err := os.MkdirAll(filepath.Join(p.dir, to), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(p.dir, at)), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(p.dir, to), filepath.Join(p.dir, at)); err != nil {
		p.Fatal(err)
	}
}

// swap puts a link in the place of a file.
func (p *place) swap(to, at string) {
	p.Helper()
	at = filepath.Join(p.dir, at)
	if err := errors.Join(os.Remove(at), os.Symlink(filepath.Join(p.dir, to), at)); err != nil {
		p.Fatal(err)
	}
}

// fill makes what polyplane makes, and more.
func (p *place) fill(more ...string) {
	p.Helper()
	for _, name := range append(more, "var/data/nodes/n1/networks/lab/h1/x", "var/data/settings.json",
		"var/data/etcd/member/snap/db", "var/data/etcd/polyplane", "var/data/examined-backup/x",
		"var/data/nodes/n1/desired/b4ee574a45461466a561756a650445fc.json", "var/data/nodes/n1/arriving/lab/h3@m/none",
		"var/data/etcd.aside-20260101T000000.000Z/member/wal/0-0.wal", "var/data/etcd.log",
		"var/data/images/index.json", "var/data/images/"+anID+".image", "var/data/nodes/n1/desired.json",
		"var/data/nodes/n1/disks/lab/h1.ext4", "var/data/nodes/n1/images/"+anID+".ext4",
		"var/data/nodes/n1/trash/lab/h2@x/files/etc/hosts", "var/data/backups/"+aBackup, "var/data/log/manager.log",
		"var/data/authority/authority.pem") {
		at := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			p.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			p.Fatal(err)
		}
	}
}

// there is all that is in the place, files and directories in which nothing is; links end with an @.
func (p *place) there() (all []string) {
	p.Helper()
	err := filepath.WalkDir(p.dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == p.dir {
			return err
		}
		name := strings.TrimPrefix(at, p.dir+"/")
		switch {
		case e.Type() == fs.ModeSymlink:
			name += "@"
		case e.IsDir():
			if in, err := os.ReadDir(at); err != nil || len(in) > 0 {
				return err
			}
		}
		all = append(all, name)
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	return all
}

// TestPurge: what polyplane made in its data directory goes, whatever that is: a link, a disk, a directory mounted once
// more, or something of these within it. Disks stay mounted, what others made stays and is told, also behind links and on
// disks, and it may be repeated.
func TestPurge(t *testing.T) {
	const told, mounted = "Not deleted, since polyplane did not make it, was ", "A disk is mounted at "
	const left = "Left as it is, since others may have made what is there: "
	for name, c := range map[string]struct {
		make func(p *place)
		left []string // beside what is mounted
		said []string
	}{
		"a directory":              {func(p *place) { p.fill() }, nil, nil},
		"a disk":                   {func(p *place) { p.disk("var/data"); p.fill("var/data/lost+found/x") }, []string{"var/data/lost+found/x"}, []string{mounted + "DIR/var/data: it stays so"}},
		"a directory mounted here": {func(p *place) { p.bind("big", "var/data"); p.fill() }, []string{"big", "var/data"}, []string{mounted + "DIR/var/data"}},
		"a link to a directory": {func(p *place) {
			p.fill("var/x")
			os.RemoveAll(filepath.Join(p.dir, "var/data"))
			p.link("big", "var/data")
			p.fill()
		}, []string{"var/x"}, nil},
		"a link to a disk": {func(p *place) {
			p.disk("mnt")
			p.fill("var/x")
			os.RemoveAll(filepath.Join(p.dir, "var/data"))
			p.link("mnt", "var/data")
			p.fill()
		},
			[]string{"mnt", "var/data@", "var/x"}, []string{mounted + "DIR/mnt"}},
		"below a link":      {func(p *place) { p.link("big", "var"); p.fill() }, []string{"big", "var@"}, nil},
		"others' files too": {func(p *place) { p.fill("var/data/thesis.tex", "var/data/log.txt", "var/data/dir/f") }, []string{"var/data/dir/f", "var/data/log.txt", "var/data/thesis.tex"}, []string{told + "dir, log.txt, thesis.tex, in DIR/var/data."}},
		"a disk with others' files": {func(p *place) { p.disk("var/data"); p.fill("var/data/thesis.tex") }, []string{"var/data/thesis.tex"},
			[]string{mounted + "DIR/var/data", told + "thesis.tex"}},
		"disks within": {func(p *place) {
			p.disk("var/data/images")
			p.disk("var/data/theirs")
			p.fill("var/data/theirs/f")
			p.disk("var/data/nodes/n1/networks/lab/h1") // polyplane's own
		}, []string{"var/data/images", "var/data/theirs/f"}, []string{mounted + "DIR/var/data/images", told + "theirs"}},
		"a link within": {func(p *place) { p.link("big/safe", "var/data/backups"); p.fill() }, []string{"big"}, nil},
		"a link to others' disk": {func(p *place) {
			p.disk("nas")
			p.link("nas", "var/data/backups")
			p.fill("nas/thesis.tex", "nas/member/x", "nas/auto.backup")
		},
			[]string{"nas/auto.backup", "nas/member/x", "nas/thesis.tex"}, []string{mounted + "DIR/nas", left + "DIR/nas."}},
		"a link to the machine's logs": {func(p *place) { p.link("logs", "var/data/log"); p.fill("logs/syslog") },
			[]string{"logs/manager.log", "logs/syslog"}, []string{left + "DIR/logs."}},
		"links below": {func(p *place) {
			p.link("big", "var/data/nodes/n1/disks")
			p.link("more", "var/data/nodes/n2")
			p.fill("more/f")
		},
			[]string{"big/lab/h1.ext4", "more/f"}, []string{left + "DIR/big, DIR/more."}},
		"a link to a file": {func(p *place) { p.link("big", "var/data"); p.fill("theirs.log"); p.swap("theirs.log", "big/etcd.log") },
			[]string{"theirs.log"}, []string{left + "DIR/theirs.log."}},
		"nodes on others' disk": {func(p *place) {
			p.disk("nas")
			p.link("nas", "var/data/nodes")
			p.fill("nas/a/networks/b/c", "nas/n1/f", "nas/n1/disks/lab/x")
		},
			[]string{"nas/a/networks/b/c", "nas/n1/disks/lab/x", "nas/n1/f"}, []string{mounted + "DIR/nas", left + "DIR/nas/a, DIR/nas/n1/disks/lab, DIR/nas/n1."}},
		"disks below": {func(p *place) {
			p.disk("var/data/nodes/n1")
			p.disk("var/data/nodes/n1/disks")
			p.disk("var/data/nodes/n2/trash")
			p.fill("var/data/nodes/n1/disks/f", "var/data/images/f", "var/data/nodes/n2/f")
		}, []string{"var/data/nodes/n1/disks/f", "var/data/nodes/n2/trash"},
			[]string{mounted + "DIR/var/data/nodes/n1/disks:", mounted + "DIR/var/data/nodes/n1:", mounted + "DIR/var/data/nodes/n2/trash:", left + "DIR/var/data/nodes/n1/disks/f."}},
		"a disk with images of others": {func(p *place) { p.disk("var/data/images"); p.fill("var/data/images/cat.jpg") },
			[]string{"var/data/images/cat.jpg"}, []string{mounted + "DIR/var/data/images", left + "DIR/var/data/images."}},
		"a link to a disk with names as ours": {func(p *place) {
			p.disk("nas")
			p.link("nas", "var/data")
			p.fill("nas/images/cat.jpg", "nas/log/router.log", "nas/backups/home.tar")
		}, []string{"nas/backups/home.tar", "nas/images/cat.jpg", "nas/log/router.log", "var/data@"},
			[]string{mounted + "DIR/nas", left + "DIR/nas/backups, DIR/nas/images, DIR/nas/log."}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &place{t, t.TempDir()}
			c.make(p)
			purge := func() string {
				var out strings.Builder
				none := func(instance.Dirs) error { return nil }
				d := Down{Dirs: instance.Dirs{Name: "test-purge", Run: filepath.Join(p.dir, "run/test-purge"), Data: filepath.Join(p.dir, "var/data")},
					Purge: true, Out: &out, Drivers: func(instance.Dirs, ...string) error { return nil }, Rest: none}
				if err := os.MkdirAll(filepath.Join(p.dir, "run"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := d.Run(t.Context()); err != nil {
					t.Errorf("down --purge: %v", err)
				}
				if err := os.RemoveAll(filepath.Join(p.dir, "run")); err != nil {
					t.Fatal(err)
				}
				if left := p.there(); !slices.Equal(left, c.left) {
					t.Errorf("left are %q, want %q", left, c.left)
				}
				return out.String()
			}
			said := purge()
			for _, words := range append(c.said, "polyplane 'test-purge' is down, and its data is deleted") {
				if words = strings.ReplaceAll(words, "DIR", p.dir); !strings.Contains(said, words) {
					t.Errorf("it does not say %q: %s", words, said)
				}
			}
			if len(c.said) == 0 && strings.Count(said, "\n") > 1 {
				t.Errorf("it says %s", said)
			}
			purge()
		})
	}
}
