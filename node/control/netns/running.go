package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// What an element is by now: the configuration that its software runs with, and its own files. All of it belongs to
// somebody who may make it as large, as deep and as slow as he likes.

var _ control.Teller = (*Driver)(nil)

// askedFor is how long routing software has to say its configuration.
const askedFor = 10 * time.Second

// openOwn opens what was written inside an element; nil if it has nothing. Its disk is mounted.
func (d *Driver) openOwn(job *control.Job) (*elementFiles, error) {
	root, err := os.OpenRoot(d.ownFiles(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &elementFiles{root: root, base: int(model.UIDBase(job.Index)), id: job.ID, called: job.Called(),
		image: job.Element.Image != ""}, nil
}

// Running is control.Teller's.
func (d *Driver) Running(ctx context.Context, id model.ID) (out model.Running, err error) {
	d.mu.Lock()
	e := d.elements[id]
	if e == nil {
		d.mu.Unlock()
		return out, fmt.Errorf("element %s is not on this node", id)
	}
	job, runs := e.job, e.process.running()
	d.mu.Unlock()

	plan, err := software.Render(id.Network, job.Element.Resolved())
	if err != nil {
		return out, err
	}
	config, why := "", ""
	switch {
	case len(plan.ConfigFiles) == 0 || job.Element.Software != model.SoftwareFRR:
	case job.Element.Stopped: // it will begin with what it has written
	case job.Element.Suspended:
		why = "it is suspended"
	case !runs:
		why = "it does not run"
	default:
		config, why = d.askFRR(ctx, id, plan.Daemons)
	}
	read := func() error {
		f, err := d.openOwn(&job)
		if f == nil {
			return err // or it never had processes
		}
		defer f.root.Close()
		for _, p := range plan.ConfigFiles {
			text := []byte(config)
			if config == "" {
				if text, err = f.read(p, model.MaxConfigSize); err != nil || !utf8.Valid(text) || hasZeros(text) {
					why = told(why, p, err)
					continue
				}
			}
			if out.Config == nil {
				out.Config = map[string]string{}
			}
			out.Config[path.Base(p)] = string(text)
		}
		f.trees = d.treesGiven(id, &plan)
		out.Files, out.More = f.own(&plan)
		return nil
	}
	if err := d.withFiles(ctx, id, read); err != nil {
		return out, fmt.Errorf("element %s: read its files: %w", id, err)
	}
	if len(plan.ConfigFiles) > 0 && len(out.Config) == 0 && why == "" {
		why = "it has never run"
	}
	out.Stale = why
	return out, ctx.Err()
}

// told adds to the reason why software does not say its configuration why its file does not either.
func told(why, file string, err error) string {
	words := file + " is no text"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		words = "it has no " + file
	case err != nil:
		words = err.Error()
	}
	if why == "" {
		return words
	}
	return why + "; " + words
}

// withFiles calls read while the element's disk is mounted, and what it tells is whole. Where processes run it is;
// where none do, nobody else works on the disk meanwhile.
func (d *Driver) withFiles(ctx context.Context, id model.ID, read func() error) error {
	if _, err := os.Stat(d.dirs.Disk(id)); errors.Is(err, fs.ErrNotExist) {
		return read() // files of an earlier polyplane, or none
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.elements[id]
	if e == nil {
		return errors.New("it is not on this node")
	}
	if e.process.running() || e.shells > 0 {
		d.mu.Unlock()
		defer d.mu.Lock()
		return read()
	}
	return d.besides(ctx, id, func(_ context.Context, job *control.Job, p *process) error {
		if linux.IsMount(d.dirs.Files(id)) {
			return read()
		}
		if err := d.mountDisk(job); err != nil {
			return err
		}
		err := read()
		if busy := d.unmountDisk(id, 0); !errors.Is(busy, unix.EBUSY) { // somebody reads its logs
			err = errors.Join(err, busy)
		}
		return err
	})
}

// askFRR asks FRR for the configuration that it runs with. It returns why there is none if FRR does not say it, or not
// all of it.
func (d *Driver) askFRR(ctx context.Context, id model.ID, daemons []string) (config, why string) {
	ctx, cancel := context.WithTimeout(ctx, d.asked)
	defer cancel()
	var out, words bounded
	out.most, words.most = model.MaxConfigSize+4096, 4096
	status, err := d.Exec(ctx, id, control.Command{Args: []string{"/usr/bin/vtysh", "-c", "show daemons", "-c",
		"show running-config"}}, control.Stdio{Out: &out, Err: &words})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Sprintf("its routing software did not say its configuration within %v", d.asked)
	case err != nil:
		return "", err.Error()
	case out.full:
		return "", fmt.Sprintf("its routing software says more than %v of configuration",
			model.Bytes(model.MaxConfigSize))
	case status != 0:
		return "", fmt.Sprintf("vtysh ended with status %d: %s", status, software.Trouble([]byte(words.text.String())))
	}
	config, err = frrAnswer(out.text.String(), daemons)
	if err != nil {
		return "", err.Error()
	}
	return config, ""
}

// frrAnswer is the configuration in what vtysh answers to the two questions of askFRR. A daemon that vtysh cannot reach
// is not in it, and so neither is its part of the configuration.
func frrAnswer(text string, daemons []string) (string, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return "", errors.New("its routing software says what is no text")
	}
	answering, rest, found := strings.Cut(text, "\n")
	_, config, begun := strings.Cut(rest, "\nCurrent configuration:\n")
	if !found || !begun {
		return "", errors.New("vtysh does not say a configuration")
	}
	there := strings.Fields(answering)
	for _, name := range daemons {
		if !slices.Contains(there, name) {
			return "", fmt.Errorf("its daemon %s does not answer", name)
		}
	}
	config = strings.TrimPrefix(config, "!\n")
	if strings.TrimSpace(config) == "" {
		return "", errors.New("vtysh says an empty configuration")
	}
	if len(config) > model.MaxConfigSize {
		return "", fmt.Errorf("its routing software says more than %v of configuration",
			model.Bytes(model.MaxConfigSize))
	}
	return config, nil
}

// bounded takes what a command prints, up to a number of bytes.
type bounded struct {
	text strings.Builder
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > b.most {
		b.full = true
		return 0, io.ErrShortWrite // the command learns that nobody takes more
	}
	return b.text.Write(p)
}

const (
	// ownVisits is how many names of an element's files are looked at, ownDepth how deep below its root.
	ownVisits = 50000
	ownDepth  = 32
	ownChunk  = 256
)

// notOwn are the directories and files whose content is nobody's work: the machine's, what does not last, logs, and
// what software keeps for itself.
var notOwn = func() map[string]bool {
	all := map[string]bool{}
	for _, p := range slices.Concat(sharedFiles, systemDirs, []string{"proc", "sys", "dev", "run", "tmp", "usr",
		"var/run", "var/lock", "var/log", "var/cache", "var/tmp/frr", "var/lib/frr", "root/.history_frr", "etc/hosts",
		"etc/hostname", "etc/polyplane", "var/lib/polyplane", "etc/mtab", "etc/os-release"}) {
		all[rel(p)] = true
	}
	return all
}()

// own lists the files that were made or changed inside.
func (f *elementFiles) own(plan *software.Plan) (files []model.OwnFile, more bool) {
	more = f.walkOwn(plan, func(file model.OwnFile, _ fs.FileInfo) { files = append(files, file) })
	slices.SortFunc(files, func(a, b model.OwnFile) int { return strings.Compare(a.Path, b.Path) })
	if len(files) > model.MaxOwnFiles {
		files, more = files[:model.MaxOwnFiles], true
	}
	return files, more
}

// walkOwn visits the files and links that were made or changed inside. It reads directories in parts: they may be of
// any size. It returns whether there may be more than it has looked at.
func (f *elementFiles) walkOwn(plan *software.Plan, each func(model.OwnFile, fs.FileInfo)) (more bool) {
	first := map[string]string{}
	for p, content := range etcOnce(f.called) {
		if !f.image {
			first[p] = content
		}
	}
	for _, files := range [][]software.File{plan.Files, plan.Contents} {
		for i := range files {
			if files[i].Tree == "" {
				first[rel(files[i].Path)] = files[i].Content
			}
		}
	}
	visits := 0
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		if depth > ownDepth {
			more = true
			return
		}
		d, err := f.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return // removed meanwhile, or replaced by something else
		}
		var below []string
		for err == nil && visits < ownVisits {
			var entries []fs.DirEntry
			entries, err = d.ReadDir(ownChunk)
			for _, entry := range entries {
				p := path.Join(dir, entry.Name())
				visits++
				switch {
				case f.isNotOwn(p) || slices.Contains(plan.ConfigFiles, "/"+p):
				case entry.IsDir():
					below = append(below, p)
				case entry.Type() == 0 || entry.Type() == fs.ModeSymlink:
					f.visit(p, first, each)
				}
			}
		}
		d.Close()
		more = more || visits >= ownVisits
		for _, p := range below {
			walk(p, depth+1)
		}
	}
	walk(".", 0)
	return more
}

// isNotOwn tells whether a path is not the element's own.
func (f *elementFiles) isNotOwn(p string) bool {
	if f.image {
		return imageNotOwn[p]
	}
	return notOwn[p]
}

// visit visits a file unless it is as it was at first.
func (f *elementFiles) visit(p string, first map[string]string, each func(model.OwnFile, fs.FileInfo)) {
	info, err := f.root.Lstat(p)
	if err != nil {
		return // removed meanwhile
	}
	if content, known := first[p]; known && info.Mode().IsRegular() && info.Size() == int64(len(content)) {
		if now, err := f.read(p, info.Size()); err == nil && string(now) == content {
			return
		}
	}
	if f.trees != nil && f.trees.has(f, "/"+p) {
		return
	}
	if p == resolvConf && info.Mode().IsRegular() && info.Size() <= mostLines {
		// The lines between the marks are polyplane's.
		if now, err := f.read(p, mostLines); err == nil && withBlock(string(now), firstResolv, "") == firstResolv {
			return
		}
	}
	each(model.OwnFile{Path: "/" + p, Size: model.Bytes(info.Size()), Link: info.Mode()&fs.ModeSymlink != 0}, info)
}
