package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Runs FRR in an element: starts the daemons that it is told, gives each the configuration, notes that it has it, and
// does so again for each that ends. It takes the place of FRR's own frrinit.sh, watchfrr.sh and frrcommon.sh, which
// source /etc/frr/daemons as shell, give up on daemons that need longer than 20 seconds, and start some of them twice
// then.

const (
	frrPrograms = "/usr/lib/frr/"
	frrPreload  = "/run/polyplane/frr-preload.so"
)

// A test has others.
var (
	frrSockets = "/run/frr/"
	frrConf    = "/etc/frr/frr.conf"
	frrVtysh   = "/etc/frr/vtysh.conf"
)

// frrPath is where programs are looked for.
const frrPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// daemonStage is how far a daemon has come.
type daemonStage int

const (
	down daemonStage = iota
	up               // started
	listening
	configured
)

type daemon struct {
	name, program string // several instances have one program
	words         []string
	stage         daemonStage
	process       *process
	vty           *vty // once it listens, until it is configured
	began, due    time.Time
	count, fails  int
}

// loaded is what became of giving daemons the configuration.
type loaded struct {
	daemons []*daemon
	hash    string
	ok      bool
}

type frr struct {
	p       *processes
	daemons []*daemon
	quick   bool        // it may be configured without vtysh
	loading chan loaded // while daemons are given the configuration
	watcher *process
	watchAt time.Time
	rest    time.Duration
}

// runFRR is for words FILES MGMTD [DAEMON ARGUMENT… --]…: FILES is how many files each daemon may have open, MGMTD the
// arguments of the daemon that FRR 10 has besides.
func runFRR(words []string) {
	if files, err := strconv.ParseUint(words[0], 10, 32); err == nil {
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}) //nolint:errcheck // it has fewer
	}
	os.Setenv("PATH", frrPath)
	os.Setenv("LC_ALL", "C")
	f := &frr{quick: true, rest: 10 * time.Second}
	if _, err := os.Stat(frrPrograms + "mgmtd"); err == nil {
		f.add("mgmtd", strings.Fields(words[1]))
		f.quick = false // vtysh speaks of some to mgmtd
	}
	begin := 2
	for i := 2; i <= len(words); i++ {
		if i == len(words) || words[i] == "--" {
			f.add(words[begin], words[begin+1:i])
			begin = i + 1
		}
	}
	if err := f.makeDirs(); err != nil {
		say(err.Error())
	}
	f.run()
}

func (f *frr) add(name string, words []string) {
	program, _, instance := strings.Cut(name, "-")
	f.quick = f.quick && !instance
	f.daemons = append(f.daemons, &daemon{name: name, program: program, words: words})
}

func (f *frr) makeDirs() error {
	if err := os.RemoveAll(notesDir); err != nil {
		return err
	}
	if err := os.MkdirAll(notesDir, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(frrSockets, 0o755); err != nil {
		return err
	}
	who, _, ok := userOf("frr:frr")
	if !ok {
		return nil // the daemons tell
	}
	return os.Chown(frrSockets, int(who.Uid), int(who.Gid))
}

func (f *frr) run() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	f.p = newProcesses()
	pause := firstPause
	for {
		var soon time.Duration
		switch {
		case f.loading != nil:
			soon = f.watch() // one that does not answer is found by that
		case f.step():
			pause = firstPause
			soon = f.watch()
		default:
			soon = pause
			pause = min(2*pause, 200*time.Millisecond)
		}
		select {
		case <-time.After(soon):
		case <-f.p.news:
		case done := <-f.loading:
			f.loading = nil
			f.take(done)
		case got := <-signals:
			if got != syscall.SIGHUP { // FRR's daemons would read files of their own
				f.leave()
			}
		}
	}
}

// firstPause is how long is waited at first for what does not tell when it is done. Each further wait is longer.
const firstPause = 10 * time.Millisecond

// first tells whether the others need it.
func (d *daemon) first() bool { return d.name == "zebra" || d.name == "mgmtd" }

func (f *frr) start(d *daemon) {
	remove(frrSockets + d.name + ".vty")
	if d.name == "zebra" {
		remove(frrSockets + "zserv.api")
	}
	d.process = f.p.start(&command{words: append([]string{frrPrograms + d.program}, d.words...),
		env: append(os.Environ(), "LD_PRELOAD="+frrPreload), dir: "/"})
	d.stage, d.began = up, time.Now()
	d.count++
}

// listens returns whether the daemon takes connections. The one to it is kept.
func (d *daemon) listens() bool {
	if !isSocket(frrSockets+d.name+".vty") || d.name == "zebra" && !isSocket(frrSockets+"zserv.api") {
		return false
	}
	v, err := openVTY(frrSockets+d.name+".vty", time.Second)
	if err == nil {
		err = v.wait(patience)
	}
	d.vty = v
	return err == nil
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// hangUp ends the connection to a daemon.
func (d *daemon) hangUp() {
	d.vty.close()
	d.vty = nil
}

// gone notes that a daemon has ended. The first time it is started again at once, then ever more slowly.
func (f *frr) gone(d *daemon) {
	status := strconv.Itoa(d.process.status)
	d.forget()
	if time.Since(d.began) >= lasting {
		d.fails = 0
	}
	d.fails++
	var pause time.Duration
	if d.fails > 1 {
		pause = time.Second << min(d.fails-2, 5)
	}
	d.due = time.Now().Add(pause)
	if d.fails >= 3 {
		tell("trouble", d.name+" ended "+strconv.Itoa(d.fails)+" times soon after its start, lastly with status "+
			status+"; it is started again, ever more slowly")
	}
	say(d.name + " ended with status " + status + ": it is started again")
	if !d.first() {
		return
	}
	// Daemons whose zebra was another would wait for ten seconds before they spoke to this one: they begin anew as
	// well.
	for _, other := range f.daemons {
		if other.process.running() {
			other.process.signal(syscall.SIGKILL)
			<-other.process.ended
		}
		other.forget()
	}
}

func (d *daemon) forget() {
	untell(d.name)
	d.hangUp()
	d.stage, d.process = down, nil
}

// step does what can be done now, and returns whether nothing is left to be done.
func (f *frr) step() (settled bool) {
	settled = true
	gated := false
	var waiting []*daemon
	for _, d := range f.daemons { // first of all, as with one of them all may go
		if d.process != nil && !d.process.running() {
			f.gone(d)
		}
	}
	for _, d := range f.daemons {
		if d.stage == down {
			if !gated && !time.Now().Before(d.due) {
				f.start(d)
			} else {
				settled = false
			}
		}
		if d.stage == up {
			if d.listens() {
				d.stage = listening
			} else {
				settled = false
			}
		}
		if d.stage == listening {
			waiting = append(waiting, d)
		}
		gated = gated || d.first() && d.stage < listening
	}
	// What is on its way is waited for, so that one reading serves all; what ends again and again is not.
	for _, d := range f.daemons {
		if d.stage == up || d.stage == down && d.fails <= 1 {
			return settled
		}
	}
	if len(waiting) == 0 {
		return settled
	}
	done := make(chan loaded, 1)
	f.loading = done
	go func() {
		hash, ok := f.load(waiting)
		done <- loaded{waiting, hash, ok}
	}()
	return false
}

// take notes which daemons have the configuration.
func (f *frr) take(is loaded) {
	for _, d := range is.daemons {
		d.hangUp()
		// What it did take of it it has, and reading it once more would change nothing.
		d.stage = configured
		if is.ok && d.process.running() {
			tell(d.name, strconv.Itoa(d.process.pid)+" "+is.hash+" "+strconv.Itoa(d.count))
		}
	}
	all := true
	for _, d := range f.daemons {
		all = all && d.stage == configured && d.process.running()
	}
	if is.ok && all {
		untell("trouble")
	}
}

// watch starts watchfrr after a while: it finds daemons that live and do not answer; what it would start, this program
// does. Where many routers start it would only take time from those that are not ready yet.
func (f *frr) watch() time.Duration {
	switch {
	case f.watcher.running():
		return time.Hour
	case f.watchAt.IsZero() || f.watcher != nil:
		f.watcher, f.watchAt = nil, time.Now().Add(f.rest)
		f.rest = min(2*f.rest, time.Minute)
	case !time.Now().Before(f.watchAt):
		words := []string{frrPrograms + "watchfrr", "-l", "4", "-i", "5", "-t", "60", "-T", "300", "-s", "true %s",
			"-k", "true %s", "-r", os.Args[0] + " frr hung %s"}
		for _, d := range f.daemons {
			words = append(words, d.name)
		}
		f.watcher = f.p.start(&command{words: words, env: os.Environ(), dir: "/"})
		return time.Hour
	}
	return time.Until(f.watchAt)
}

// leave ends everything, and then this.
func (f *frr) leave() {
	all := []*process{f.watcher}
	for _, d := range f.daemons {
		all = append(all, d.process)
	}
	end(all...)
	os.Exit(0)
}

// load has daemons read the configuration: all of them, or one. It returns the hash of what was read.
func (f *frr) load(some []*daemon) (hash string, ok bool) {
	for range 9 { // a configuration that is written meanwhile is read again
		before, known, misfit := lookAt(frrConf)
		if misfit != "" {
			misfit += ". Put one there and restart the element, " + orOverwrite
			tell("trouble", misfit)
			os.Stdout.WriteString(misfit + "\n") //nolint:errcheck // it is noted
			return "", false
		}
		said, status := "", 0
		if !known || !f.hand(before, some) {
			said, status = f.vtysh(some)
		}
		// It may be another meanwhile, or have gone away.
		if hash, misfit = hashConf(frrConf); misfit != "" || hash != before {
			continue
		}
		os.Stdout.WriteString(said) //nolint:errcheck // as above
		if status == 0 {
			return hash, true
		}
		var words []string
		for _, l := range strings.Split(strings.TrimSpace(said), "\n") {
			if !strings.Contains(l, "processing failure") && len(words) < 3 {
				words = append(words, l)
			}
		}
		tell("trouble", "FRR did not take its configuration as a whole: "+strings.Join(words, "; "))
		return "", false
	}
	tell("trouble", frrConf+" is written again and again while FRR reads it")
	return "", false
}

// frrKnown begins how the daemons name the version for which it is known who takes which line.
const frrKnown = "FRRouting 8.4"

// lookAt returns the hash of a configuration, and whether it is known of each of its lines who takes it.
func lookAt(path string) (hash string, known bool, misfit string) {
	s := newSharer()
	known = true
	hash, misfit = eachLine(path, func(text []byte) {
		if known {
			_, known = s.take(string(text))
		}
	})
	return hash, known && s.whole(), misfit
}

// hand gives daemons the lines of the configuration that are theirs, and returns whether they took all. Otherwise vtysh
// does it, and tells what is wrong. Before it reads a line it makes a table of all commands, which takes longer than
// all else.
func (f *frr) hand(hash string, some []*daemon) bool {
	if !f.quick {
		return false
	}
	own, misfit := hashConf(frrVtysh)
	if misfit != "" || own != hashOf([]byte("service integrated-vtysh-config\n")) {
		return false
	}
	for _, d := range some {
		if d.vty == nil { // vtysh did it the time before
			v, err := openVTY(frrSockets+d.name+".vty", patience)
			if err != nil {
				return false
			}
			d.vty = v
		}
	}
	version, err := some[0].vty.ask("show version")
	if err != nil || !strings.HasPrefix(version, frrKnown) {
		f.quick = false
		return false
	}
	given, err := give(frrConf, some)
	return err == nil && given == hash
}

// vtysh has vtysh give the configuration to all daemons, or to one.
func (f *frr) vtysh(some []*daemon) (said string, status int) {
	words := []string{"vtysh", "-b"}
	if len(some) == 1 {
		words = append(words, "-d", some[0].program)
	}
	for _, d := range some {
		d.hangUp()
	}
	said, status = f.p.output(&command{words: words, env: os.Environ(), dir: "/"})
	if strings.Contains(said, "vtysh_pam:") {
		status = 1 // it was not let in, and ends with 0 all the same
	}
	return said, status
}

// reloadFRR has the running daemons take the configuration over.
func reloadFRR() {
	before, misfit := hashConf(frrConf)
	if misfit != "" {
		fail(1, misfit+". Put one there and restart the element, "+orOverwrite)
	}
	os.Setenv("PATH", frrPath)
	os.Setenv("LC_ALL", "C")
	// What Python would write beside its own files would be the element's, which may be an image.
	env := append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	python, err := find("python3", env)
	if err != nil {
		fail(127, "python3: "+err.Error())
	}
	p, err := os.StartProcess(python, []string{"python3", frrPrograms + "frr-reload.py", "--reload", frrConf},
		&os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		fail(126, err.Error())
	}
	if is, err := p.Wait(); err != nil || !is.Success() {
		os.Exit(1)
	}
	if after, misfit := hashConf(frrConf); misfit != "" || after != before {
		fail(1, "the configuration was written while it was loaded")
	}
	eachFRR(func(name, pid string) { // also those that had not taken what was there before
		count := "1"
		if f := strings.Fields(told(name)); len(f) == 3 {
			if _, err := strconv.ParseUint(f[2], 10, 31); err == nil {
				count = f[2]
			}
		}
		tell(name, pid+" "+before+" "+count)
	})
	untell("trouble")
	os.Exit(0)
}

// eachFRR visits the daemons that run, with their process numbers.
func eachFRR(do func(name, pid string)) {
	files, _ := filepath.Glob(frrSockets + "*.pid")
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".pid")
		if name == "watchfrr" {
			continue
		}
		if all := lines(path); len(all) > 0 && all[0][0] != "" {
			do(name, all[0][0])
		}
	}
}

// endHungFRR ends a daemon, or each of all, that does not answer.
func endHungFRR(which string) {
	eachFRR(func(name, pid string) {
		if which != "all" && which != name {
			return
		}
		if v, err := openVTY(frrSockets+name+".vty", patience); err == nil {
			if _, err = v.ask("show version"); err == nil {
				v.close()
				return
			}
		}
		if n, err := strconv.Atoi(pid); err == nil && n > 1 {
			say(name + " does not answer: it is ended, and started again")
			syscall.Kill(n, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
	})
	os.Exit(0)
}
