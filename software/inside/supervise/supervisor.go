package main

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lasting is how long a service must run to count as well. It is ended by force after half of that.
const lasting = 10 * time.Second

type stage int

const (
	routing  stage = iota // waits for the routing software to have its configuration
	starting              // runs the commands of start
	running
	failing // one of them failed
	ending  // the service ends, for another one
)

type supervisor struct {
	p     *processes
	w     *wanted
	stage stage
	life  string

	routing *process // the image's routing software, where that is run
	daemons []string

	task     *process // a command of start
	taskOf   string
	output   *tail
	finished map[string]bool

	service  *process
	began    time.Time
	due      time.Time
	count    int
	fails    int
	over     bool // it has ended, and is not started again
	forceAt  time.Time
	proven   bool
	troubled bool

	check   *process
	checkAt time.Time
	checked bool
	wait    time.Duration
}

func newSupervisor() *supervisor {
	return &supervisor{p: newProcesses(), w: &wanted{}, finished: map[string]bool{}, wait: firstWait}
}

const firstWait = 50 * time.Millisecond

// note replaces a file of the state as a whole: it is read at any moment.
func note(name, words string) {
	fresh := state + name + ".new"
	if os.WriteFile(fresh, []byte(words+"\n"), 0o644) == nil {
		os.Rename(fresh, state+name) //nolint:errcheck // what is not there is not believed
	}
}

func unnote(names ...string) {
	for _, name := range names {
		os.Remove(state + name) //nolint:errcheck // there may be none
	}
}

// run runs what the definition says, beside routing software where words say so: its daemons, what it may use, and its
// command.
func (s *supervisor) run(words []string) {
	os.MkdirAll(kept, 0o755) //nolint:errcheck // commands are then not known to have been run
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	net, _ := os.Readlink("/proc/self/ns/net")
	s.life = strings.TrimSpace(string(boot)) + " " + net
	s.stage = starting
	if len(words) > 2 {
		s.stage, s.daemons = routing, strings.Split(words[0], ",")
		confined := append([]string{os.Args[0], "confine", words[1]}, words[2:]...)
		s.routing = s.p.start(&command{words: confined, env: os.Environ(), dir: "/"})
	}
	s.take()
	for {
		if s.routing != nil && !s.routing.running() {
			s.leave(s.routing.status)
		}
		soon := s.step()
		var timer <-chan time.Time
		if soon > 0 {
			timer = time.After(soon)
		}
		select {
		case <-timer:
		case <-s.p.news:
		case got := <-signals:
			switch got {
			case syscall.SIGHUP:
				s.take()
			case syscall.SIGUSR1:
				s.again()
			default:
				s.finish()
			}
		}
	}
}

// take reads the definition.
func (s *supervisor) take() {
	w, err := readDefinition()
	if err != nil {
		note("trouble", err.Error())
		return
	}
	was := s.w
	s.w, s.proven, s.troubled = w, false, false
	unnote("service", "trouble", "waits")
	note("read", w.hash)
	if w.another(was) {
		s.over, s.due, s.fails = false, time.Time{}, 0
		if s.service != nil {
			s.stopService()
			return
		}
	}
	if w.restart != was.restart {
		s.over = false
	}
	switch s.stage {
	case routing:
		note("waits", waitsForRouting)
	case ending:
	default:
		s.stage = starting // commands that were run are not run again
	}
}

const waitsForRouting = "waits for the routing software to have its configuration"

// again has the service started again as it is.
func (s *supervisor) again() {
	if s.service == nil || s.stage != running {
		return // it is going to be started anyway
	}
	s.proven = false
	unnote("service")
	s.stopService()
}

// trouble notes what is wrong, in words.
func (s *supervisor) trouble(words string) {
	s.troubled = true
	note("trouble", words)
}

// environment is that of commands. The service's user has a home of its own.
func (s *supervisor) environment(home string) []string {
	env := os.Environ()
	if home != "" {
		env = append(env, "HOME="+home)
	}
	// Of two with the same name the later one counts, and programs take the first that they find.
	var all []string
	at := map[string]int{}
	for _, v := range append(env, s.w.env...) {
		name, _, _ := strings.Cut(v, "=")
		if i, there := at[name]; there {
			all[i] = v
			continue
		}
		at[name] = len(all)
		all = append(all, v)
	}
	return all
}

// step does what can be done now. It returns after how long to look again, where nothing tells when there is more to
// do.
func (s *supervisor) step() time.Duration {
	for {
		switch s.stage {
		case routing:
			for _, daemon := range s.daemons {
				if _, err := os.Stat("/run/polyplane/state/" + daemon); err != nil {
					return 200 * time.Millisecond
				}
			}
			unnote("waits")
			s.stage = starting
		case starting:
			if s.task.running() {
				return 0
			}
			if s.task != nil {
				s.taskEnded()
				continue
			}
			s.nextStart()
			if s.task != nil {
				continue
			}
		case running:
			if s.service != nil && !s.service.running() {
				s.serviceEnded()
			}
			if s.service == nil && len(s.w.service()) > 0 && !s.over {
				if left := time.Until(s.due); left > 0 {
					return min(left, 200*time.Millisecond)
				}
				s.startService()
			}
			if s.proven || s.over && s.troubled {
				return 0
			}
			return s.prove()
		case failing:
			return 0
		case ending:
			if !s.ended() {
				return 20 * time.Millisecond
			}
			s.service, s.due, s.fails, s.over, s.stage = nil, time.Time{}, 0, false, starting
		}
	}
}

// nextStart begins the first command of start that was not run yet.
func (s *supervisor) nextStart() {
	for i, command := range s.w.start {
		if s.finished[command] {
			continue
		}
		note("waits", "runs start command "+strconv.Itoa(i+1)+" of "+strconv.Itoa(len(s.w.start))+": "+
			cut(command, 200))
		s.taskOf = command
		s.task, s.output = s.execute(command)
		return
	}
	s.stage = running
}

func cut(text string, most int) string { return text[:min(len(text), most)] }

// execute runs a shell's command, as root. What it prints goes on to the log, and the end of it is kept.
func (s *supervisor) execute(text string) (*process, *tail) {
	r, w, err := os.Pipe()
	if err != nil {
		return failed(126, err.Error()), &tail{}
	}
	t := &tail{whole: make(chan struct{})}
	go t.follow(r)
	child := s.p.start(&command{words: []string{shell, "-c", text}, env: s.environment(""), dir: home(), out: w})
	w.Close()
	return child, t
}

// home is where commands begin.
func home() string {
	if info, err := os.Lstat("/root"); err == nil && info.IsDir() {
		return "/root"
	}
	return "/"
}

// tail is the end of what a command prints.
type tail struct {
	mu    sync.Mutex
	text  []byte
	whole chan struct{}
}

func (t *tail) follow(r *os.File) {
	defer close(t.whole)
	defer r.Close()
	part := make([]byte, 4096)
	for {
		n, err := r.Read(part)
		os.Stdout.Write(part[:n]) //nolint:errcheck // the log may be full
		t.mu.Lock()
		if t.text = append(t.text, part[:n]...); len(t.text) > 300 {
			t.text = t.text[len(t.text)-300:]
		}
		t.mu.Unlock()
		if err == io.EOF || err != nil {
			return
		}
	}
}

// said is it in one line. Where something that the command started goes on printing, it may not be all.
func (t *tail) said() string {
	select {
	case <-t.whole:
	case <-time.After(200 * time.Millisecond):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(t.text), "?")), " ")
}

// Commands like `ip route add` fail when the element is started again, since its network has outlived its processes.
// Where one did its work before, and says that what it makes is there, it has done it.
func (s *supervisor) doneBefore(command string) bool {
	text, err := os.ReadFile(filepath.Join(kept, "started"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return lines[0] == s.life && (contains(lines[1:], markOf(command)) || contains(lines[1:], shellMark(command)))
}

func markOf(command string) string { return hashOf([]byte(command + "\n")) }

// shellMark is how an earlier version marked a command that had done its work: as bash quotes it.
func shellMark(command string) string {
	if strings.ContainsAny(command, "\n\t") {
		return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\t", `\t`).Replace(command) + "'"
	}
	return "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
}

func (s *supervisor) remember(command string) {
	if s.doneBefore(command) {
		return
	}
	path := filepath.Join(kept, "started")
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), s.life+"\n") {
		text = []byte(s.life + "\n")
	}
	os.WriteFile(path, append(text, markOf(command)+"\n"...), 0o644) //nolint:errcheck // the next start then runs it again
}

func (s *supervisor) taskEnded() {
	status := s.task.status
	s.task = nil
	if status != 0 {
		said := s.output.said()
		if !strings.Contains(said, "File exists") || !s.doneBefore(s.taskOf) {
			s.trouble("its start command `" + cut(s.taskOf, 150) + "` failed with status " + strconv.Itoa(status) +
				after(said))
			say("start command failed with status " + strconv.Itoa(status) + ": " + s.taskOf)
			unnote("waits")
			s.stage = failing
			return
		}
	}
	s.remember(s.taskOf)
	s.finished[s.taskOf] = true
}

// after are words behind a colon, if there are any.
func after(words string) string {
	if words == "" {
		return ""
	}
	return ": " + words
}

func (s *supervisor) startService() {
	unnote("service")
	s.wait = firstWait
	s.count++
	s.began = time.Now()
	c := &command{words: s.w.service(), dir: s.w.dir}
	at := "/root"
	if s.w.user != "" {
		who, its, ok := userOf(s.w.user)
		if !ok {
			s.service = failed(126, "the image's user "+cut(s.w.user, 100)+" is not in its /etc/passwd or /etc/group")
			return
		}
		c.who, at = who, its
	}
	if c.dir == "" {
		c.dir = home()
	}
	os.MkdirAll(c.dir, 0o755) //nolint:errcheck // the start tells
	c.env = s.environment(at)
	s.service = s.p.start(c)
}

// serviceEnded starts it again where it shall: the first time at once, then ever more slowly.
func (s *supervisor) serviceEnded() {
	status := strconv.Itoa(s.service.status)
	ok := s.service.status == 0
	s.proven = false
	unnote("service")
	s.service = nil
	s.endCheck()
	if time.Since(s.began) >= lasting {
		s.fails = 0
	}
	s.fails++
	say("the service ended with status " + status)
	if s.w.restart == "no" || s.w.restart == "on-failure" && ok {
		s.over = true
		if !ok {
			s.trouble("its service ended with status " + status + ", and is not to be started again")
		}
		return
	}
	var pause time.Duration
	if s.fails > 1 {
		pause = time.Second << min(s.fails-2, 5)
	}
	s.due = time.Now().Add(pause)
	if s.fails >= 3 {
		s.trouble("its service ended " + strconv.Itoa(s.fails) + " times soon after its start, lastly with status " +
			status + "; it is started again, ever more slowly")
	}
}

func (s *supervisor) stopService() {
	s.stage = ending
	s.endCheck()
	s.service.signal(s.w.signal)
	s.forceAt = time.Now().Add(lasting / 2)
}

// ended returns whether the service has ended, and ends it by force when it is time.
func (s *supervisor) ended() bool {
	if s.service == nil || !s.service.running() && !s.service.group() {
		return true
	}
	if !time.Now().Before(s.forceAt) {
		s.service.signal(syscall.SIGKILL)
	}
	return false
}

func (s *supervisor) endCheck() {
	s.check.signal(syscall.SIGKILL)
	s.check, s.checkAt, s.checked = nil, time.Time{}, false
}

// listens returns whether somebody listens on the TCP port.
func listens(port int) bool {
	want := strings.ToUpper(strconv.FormatInt(int64(port)+1<<16, 16)[1:])
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(path)
		for _, line := range strings.Split(string(text), "\n") {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], ":"+want) {
				return true
			}
		}
	}
	return false
}

// prove notes that all is as it shall be once it is, and what is waited for until then.
func (s *supervisor) prove() time.Duration {
	if s.service != nil {
		// What ends at once has not started; what did so again and again must last first.
		least := 200 * time.Millisecond
		if s.fails >= 3 {
			least = lasting
		}
		if left := least - time.Since(s.began); left > 0 {
			return left
		}
	}
	if s.w.tcp != 0 && !listens(s.w.tcp) {
		note("waits", "waits until something listens on TCP port "+strconv.Itoa(s.w.tcp))
		return s.slower()
	}
	if s.w.ready != "" && !s.checked {
		switch {
		case s.check.running():
			return 0
		case s.check != nil:
			status := s.check.status
			s.check = nil
			if status == 0 {
				s.checked = true
				break
			}
			note("waits", "waits until `"+cut(s.w.ready, 150)+"` succeeds; its status is "+strconv.Itoa(status))
			left := s.slower()
			s.checkAt = time.Now().Add(left)
			return left
		case time.Now().Before(s.checkAt):
			return time.Until(s.checkAt)
		default:
			note("waits", "waits for `"+cut(s.w.ready, 150)+"`")
			null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
			if err != nil {
				return s.slower()
			}
			s.check = s.p.start(&command{words: []string{shell, "-c", s.w.ready}, env: s.environment(""), dir: home(),
				out: null})
			null.Close()
			if !s.check.running() {
				return time.Millisecond
			}
			return 0
		}
	}
	note("service", strconv.Itoa(os.Getpid())+" "+s.w.hash+" "+strconv.Itoa(s.count))
	unnote("waits")
	if s.fails >= 3 {
		s.troubled = false
		unnote("trouble")
	}
	s.fails, s.proven = 0, true
	return 0
}

func (s *supervisor) slower() time.Duration {
	now := s.wait
	s.wait = min(2*s.wait, 500*time.Millisecond)
	return now
}

// finish runs the commands that shall be run before the end, ends everything, and then this.
func (s *supervisor) finish() {
	unnote("service")
	s.task.signal(syscall.SIGKILL)
	path := filepath.Join(kept, "stop-failed")
	tell := func(words string) { os.WriteFile(path, []byte(words+"\n"), 0o644) } //nolint:errcheck // as above
	for _, command := range s.w.stop {
		tell("its stop command `" + cut(command, 150) + "` did not end in time")
		child, output := s.execute(command)
		<-child.ended
		os.Remove(path) //nolint:errcheck // it may not have been written
		if child.status != 0 {
			status := strconv.Itoa(child.status)
			say("stop command failed with status " + status + ": " + command)
			tell("its stop command `" + cut(command, 150) + "` failed with status " + status + after(output.said()))
			break
		}
	}
	s.leave(0)
}

// leave ends everything, and then this.
func (s *supervisor) leave(status int) {
	unnote("service")
	s.task.signal(syscall.SIGKILL)
	s.endCheck()
	if s.service != nil {
		s.stopService()
		for !s.ended() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if s.routing.running() {
		s.routing.signal(syscall.SIGTERM)
		<-s.routing.ended
	}
	os.Exit(status)
}
