package netns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

var _ control.Watcher = (*Driver)(nil)

// An element's software claims to be ready. The evidence is what the programs of package software note inside the
// element: which process of each daemon has read which configuration. The notes are in the container's /run, where the
// element's root may write as he likes. He deceives only himself by that. The driver reads a bounded amount of them,
// never waits for them, and follows no links to them: see openPlain.

// readiness is what the driver knows of a container's daemons.
type readiness struct {
	ready   bool            // each runs and has its configuration
	trouble string          // what is wrong, in words
	waits   string          // what it waits for, in words
	expect  string          // hash of what they must have read, if this process started them
	starts  map[string]int  // how often each daemon had been started in this container when it was last ready
	news    []change.Change // what is still to be told
	stopped string          // a daemon that is stopped
	since   time.Time       // since then
	routed  bool            // the routing software is ready, if there is any
	served  string          // the definition with which its owner's service was last ready
	seen    seenConfig      // its configuration when it was last read
}

// seenConfig is what a configuration file was when it was read.
type seenConfig struct {
	device, inode uint64
	changed       unix.Timespec // which nobody but the kernel sets
	hash          string
	next          time.Time // before this it is not read again
}

// configPace is the time per byte until a changed configuration is read again. Others wait while it is read (some 2 ns
// a byte), and the element's root may change it all the time.
const configPace = time.Microsecond

// watchEvery is how often starting elements are looked at while they are few. Each of them makes it longer.
const (
	watchEvery = 50 * time.Millisecond
	watchEach  = 2 * time.Millisecond
	// settledEvery is how often all other elements are looked at.
	settledEvery = 3 * time.Second
	// stoppedLong is how long a daemon may be stopped (by a signal) before that counts as a failure. By then watchfrr
	// has started its own daemons again. BIRD may have been stopped on purpose; whoever did so may or may not let it go
	// on.
	stoppedLong = 2 * time.Minute
	// lookedAtOnce is how many elements are looked at without a pause.
	lookedAtOnce = 16
)

// Watch signals when elements have become ready, or have stopped being ready.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	var settled, told time.Time
	next, soon := time.NewTimer(watchEvery), time.NewTimer(0)
	defer next.Stop()
	defer soon.Stop()
	defer d.crew.all.Wait() // what it began ends with the context
	<-soon.C
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.woken:
			if !waiting { // one at once, and those that end soon after it together
				waiting = true
				soon.Reset(watchEvery - time.Since(told))
			}
			continue
		case <-soon.C:
			waiting, told = false, time.Now()
			changed()
			continue
		case <-next.C:
		}
		all := time.Since(settled) >= settledEvery
		if all {
			settled = time.Now()
		}
		differ, starting := d.lookAtAll(all)
		next.Reset(watchEvery + time.Duration(starting)*watchEach)
		if differ {
			waiting, told = false, time.Now()
			soon.Stop()
			changed()
		}
	}
}

// lookAtAll looks whether the software of those elements that are starting has come up, and with settled at all others
// as well. It returns whether something differs from before, and how many are starting.
func (d *Driver) lookAtAll(settled bool) (differ bool, starting int) {
	d.mu.Lock()
	ids := make([]model.ID, 0, len(d.elements))
	for id, e := range d.elements {
		if e.process.wanted && (settled || !e.process.ready) {
			ids = append(ids, id)
		}
	}
	d.mu.Unlock()
	// A few at a time: with hundreds of them on a busy machine this takes long, and the agent's loop needs the lock
	// too.
	for some := range slices.Chunk(ids, lookedAtOnce) {
		d.mu.Lock()
		for _, id := range some {
			e := d.elements[id]
			if e == nil || !e.process.wanted || e.job.Element.Suspended || !e.process.running() {
				continue
			}
			p := &e.process
			ready, trouble := p.ready, p.trouble
			d.look(id, p)
			if !p.ready {
				starting++
			}
			differ = differ || ready != p.ready || trouble != p.trouble || len(p.news) > 0
		}
		d.mu.Unlock()
	}
	if settled {
		d.trimLogs(ids)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return differ || d.turnFree(), starting
}

// trimLogs bounds the logs of those in which people have something run.
func (d *Driver) trimLogs(ids []model.ID) {
	for _, id := range ids {
		d.mu.Lock()
		e := d.elements[id]
		serves := e != nil && e.process.plan.Service != nil && e.process.running()
		d.mu.Unlock()
		if serves {
			d.trimLog(id)
		}
	}
}

// look reads the notes about an element's daemons.
func (d *Driver) look(id model.ID, p *process) {
	if p.queued { // what it has is not what is wanted
		p.ready, p.waits = false, waitsForTurn
		return
	}
	if p.imageWaits != "" {
		p.ready, p.waits = false, p.imageWaits
		return
	}
	missing, trouble, starts := d.notes(p)
	if trouble == "" {
		trouble = p.stoppedFor(time.Now())
	}
	p.routed = len(missing) == 0 && trouble == ""
	serves, waits := true, ""
	if s := p.plan.Service; s != nil {
		var wrong string
		if serves, wrong, waits = d.serviceNotes(p, starts); trouble == "" {
			trouble = wrong
		}
	}
	p.trouble, p.ready, p.waits = trouble, p.routed && serves && trouble == "", ""
	switch {
	case p.ready:
		p.tellRestarts(starts)
		p.starts, p.expect = starts, ""
	case len(missing) == 0:
		p.waits = waits
	case len(missing) > 0:
		p.waits = "waits for " + strings.Join(missing, ", ") + " to run with the configuration"
	}
}

// tellRestarts has it told what had ended, and is as it shall be again.
func (p *process) tellRestarts(starts map[string]int) {
	var again []string
	for _, name := range p.plan.Daemons {
		if was, known := p.starts[name]; known && starts[name] > was {
			again = append(again, name)
		}
	}
	if len(again) > 0 {
		p.again++
		p.news = append(p.news, change.ElementRestarted.Of(
			strings.Join(again, ", ")+" had ended, and has its configuration again"))
	}
	if p.plan.Service == nil {
		return
	}
	// Another definition has it started again as well.
	name := software.ServiceNote
	if was, known := p.starts[name]; known && starts[name] > was && p.served == p.plan.Service.Hash {
		p.again++
		p.news = append(p.news, change.ElementRestarted.Of("its service had ended"))
	}
	p.served = p.plan.Service.Hash
}

// serviceNotes returns whether what its owner has run is as it shall be, or else what is wrong, and what is waited for.
func (d *Driver) serviceNotes(p *process, starts map[string]int) (serves bool, trouble, waits string) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", p.pid))
	if err != nil || !p.running() { // the process number may be another process's by now
		return false, "", "is being started"
	}
	defer root.Close()
	read := func(name string) string {
		data, err := readNote(root, software.ServiceNotes+name)
		if err != nil {
			return ""
		}
		return software.Trouble(data)
	}
	if trouble = read(software.TroubleNote); trouble != "" {
		return false, trouble, ""
	}
	if waits = read(software.WaitsNote); waits == "" {
		waits = "waits for what is run in it"
	}
	note, err := readNote(root, software.ServiceNotes+software.ServiceNote)
	if err != nil {
		return false, "", waits
	}
	n, err := software.ParseNote(note)
	if err != nil || n.Config != p.plan.Service.Hash ||
		strings.IndexByte("ZXT\x00", stateOf(root, n.PID, software.ServiceNote)) >= 0 {
		return false, "", waits
	}
	if starts != nil {
		starts[software.ServiceNote] = n.Starts
	}
	return true, "", ""
}

// stoppedFor says so if a daemon has been stopped for long.
func (p *process) stoppedFor(now time.Time) string {
	if p.stopped == "" {
		p.since = time.Time{}
		return ""
	}
	if p.since.IsZero() {
		p.since = now
	}
	if now.Sub(p.since) < stoppedLong {
		return ""
	}
	return fmt.Sprintf("%s has been stopped for %s, by a signal (SIGSTOP) that somebody sent: SIGCONT has it go on, "+
		"and a restart of the element starts it anew", p.stopped, stoppedLong)
}

// notes returns the daemons that are not known to run with their configuration, and what is wrong with them.
func (d *Driver) notes(p *process) (missing []string, trouble string, starts map[string]int) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", p.pid))
	if err != nil || !p.running() { // the process number may be another process's by now
		return p.plan.Daemons, "", nil
	}
	defer root.Close()
	if data, err := readNote(root, software.NotesDir+"/"+software.TroubleNote); err == nil {
		trouble = software.Trouble(data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		trouble = "what is wrong inside cannot be read: " + err.Error()
	}
	starts, p.stopped = map[string]int{}, ""
	for _, name := range p.plan.Daemons {
		note, err := readNote(root, software.NotesDir+"/"+name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		n, err := software.ParseNote(note)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		is := stateOf(root, n.PID, name)
		if is == 'T' {
			p.stopped = name
		}
		if strings.IndexByte("ZXT\x00", is) >= 0 || p.expect != "" && n.Config != p.expect &&
			!p.isConfig(root, n.Config) {
			missing = append(missing, name)
			continue
		}
		starts[name] = n.Starts
	}
	return missing, trouble, starts
}

// isConfig returns whether this is the hash of the element's present configuration. Its owner may have written another
// one between the start and the reading.
func (p *process) isConfig(root *os.Root, hash string) bool {
	file, err := openRegular(root, p.plan.ConfigFiles[0]) // there is one where anything is expected
	if err != nil {
		return false
	}
	defer file.Close()
	var is unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &is); err != nil || is.Size > maxConfig {
		return false
	}
	if s := &p.seen; s.device != is.Dev || s.inode != is.Ino || s.changed != is.Ctim {
		if time.Now().Before(s.next) {
			return false
		}
		h := sha256.New()
		n, err := io.Copy(h, io.LimitReader(file, maxConfig))
		if err != nil {
			return false
		}
		*s = seenConfig{is.Dev, is.Ino, is.Ctim, hex.EncodeToString(h.Sum(nil)),
			time.Now().Add(time.Duration(n) * configPace)}
	}
	return p.seen.hash == hash
}

// readNote reads a note inside an element.
func readNote(root *os.Root, path string) ([]byte, error) {
	file, err := openPlain(root, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, software.MaxNote))
}

// stateOf is the state of a daemon's process in the element, as in proc(5), or 0. Where a daemon has several instances,
// their names end in a number.
func stateOf(root *os.Root, pid int, name string) byte {
	file, err := root.OpenFile("proc/"+strconv.Itoa(pid)+"/stat", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, software.MaxNote))
	if err != nil {
		return 0
	}
	program, _, _ := strings.Cut(name, "-")
	_, rest, ok := strings.Cut(string(data), "("+program+") ")
	if !ok || rest == "" {
		return 0
	}
	return rest[0]
}

// troubleOf is the error of an element whose software does not become ready.
func (p *process) troubleOf(id model.ID) error {
	if p.trouble == "" || !p.wanted || !p.running() {
		return nil
	}
	return fmt.Errorf("element %s: its software is not ready: %s; `polyplane logs %s` tells more", id, p.trouble, id)
}

// expectConfig notes what the daemons that are about to be started must read.
func (p *process) expectConfig(files *elementFiles) {
	p.readiness = readiness{news: p.news, seen: p.seen}
	if len(p.plan.ConfigFiles) != 1 {
		return
	}
	if data, err := files.read(p.plan.ConfigFiles[0], maxConfig); err == nil {
		p.expect = contentHash(data)
	}
}

// writePrograms writes the programs that elements with software see below /run. It replaces them as a whole: running
// elements keep what they were started with.
func (d *Driver) writePrograms() error {
	dir := d.programsDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the elements' programs: %w", err)
	}
	for _, p := range software.Programs() {
		path := filepath.Join(dir, filepath.Base(p.Path))
		if now, err := os.ReadFile(path); err == nil && slices.Equal(now, p.Content) {
			continue
		}
		err := os.WriteFile(path+".new", p.Content, p.Mode)
		if err = errors.Join(err, os.Chmod(path+".new", p.Mode)); err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			return fmt.Errorf("write the elements' program %s: %w", filepath.Base(p.Path), err)
		}
	}
	return nil
}

func (d *Driver) programsDir() string { return filepath.Join(d.dirs.Data, "programs") }
