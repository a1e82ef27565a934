package main

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processes are those that this one has started. As the first process of its namespace, it also gets those whose parent
// has ended, and takes note of their ends.
type processes struct {
	mu   sync.Mutex
	live map[int]*process
	news chan struct{} // something has ended
}

// process is one that was started. The rest of it is written before ended is closed.
type process struct {
	pid    int
	ended  chan struct{}
	status int
}

func newProcesses() *processes {
	p := &processes{live: map[int]*process{}, news: make(chan struct{}, 1)}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	go p.reap(ends)
	return p
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// group tells whether anything of its process group lives.
func (p *process) group() bool { return syscall.Kill(-p.pid, 0) == nil }

func (p *process) signal(s syscall.Signal) {
	if p != nil {
		syscall.Kill(-p.pid, s) //nolint:errcheck // it may have ended
	}
}

// end has processes end, and waits until they have. Those that do not by themselves are ended by force.
func end(all ...*process) {
	for _, p := range all {
		if p.running() {
			p.signal(syscall.SIGTERM)
		}
	}
	late := time.After(lasting)
	for _, p := range all {
		if !p.running() {
			continue
		}
		select {
		case <-p.ended:
			continue
		case <-late:
		}
		for _, p := range all {
			if p.running() {
				p.signal(syscall.SIGKILL)
				<-p.ended
			}
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reap takes note of ends. Processes become this one's children at any time, without having been started by it.
func (p *processes) reap(ends chan os.Signal) {
	for {
		var is syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &is, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || pid == 0: // none has ended
			<-ends
			continue
		}
		p.mu.Lock()
		child := p.live[pid]
		delete(p.live, pid)
		p.mu.Unlock()
		if child == nil {
			continue
		}
		if child.status = is.ExitStatus(); is.Signaled() {
			child.status = 128 + int(is.Signal())
		}
		close(child.ended)
		poke(p.news)
	}
}

// command is what is to be started.
type command struct {
	words []string
	env   []string
	dir   string
	who   *syscall.Credential
	// out gets what it prints; nil stands for this one's own.
	out *os.File
}

// start starts a command as a process group of its own. One that cannot be started has ended with the status that a
// shell would tell, and says why.
func (p *processes) start(c *command) *process {
	null, err := os.OpenFile("/dev/null", os.O_RDONLY, 0)
	if err != nil {
		return failed(126, err.Error())
	}
	defer null.Close()
	out, errs := os.Stdout, os.Stderr
	if c.out != nil {
		out, errs = c.out, c.out
	}
	path, err := find(c.words[0], c.env)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		var pid int
		pid, err = syscall.ForkExec(path, c.words, &syscall.ProcAttr{Dir: c.dir, Env: c.env,
			Files: []uintptr{null.Fd(), out.Fd(), errs.Fd()},
			Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: c.who}})
		if err == nil {
			child := &process{pid: pid, ended: make(chan struct{})}
			p.live[pid] = child
			return child
		}
	}
	words := c.words[0] + ": " + err.Error()
	if c.words[0] == shell && err == syscall.ENOENT {
		words = "the image has no " + shell + ", by which commands are run"
	}
	status := 126
	if err == syscall.ENOENT {
		status = 127
	}
	if c.out != nil {
		c.out.WriteString(words + "\n") //nolint:errcheck // it is told otherwise
	}
	return failed(status, words)
}

func failed(status int, words string) *process {
	say(words)
	p := &process{ended: make(chan struct{}), status: status, pid: 1 << 30} // no process has such a number
	close(p.ended)
	return p
}

// shell runs commands that people write.
const shell = "/bin/sh"

// userOf finds the user and the groups that an image names: NAME, NUMBER, and either with :GROUP.
func userOf(who string) (c *syscall.Credential, home string, ok bool) {
	name, group, given := strings.Cut(who, ":")
	home = "/"
	c = &syscall.Credential{}
	passwd, groups := lines("/etc/passwd"), lines("/etc/group")
	uid, err := strconv.ParseUint(name, 10, 16)
	found := err == nil || name == ""
	for _, f := range passwd {
		if len(f) < 6 || f[0] != name && (err != nil || f[2] != name) {
			continue
		}
		u, err1 := strconv.ParseUint(f[2], 10, 16)
		g, err2 := strconv.ParseUint(f[3], 10, 16)
		if err1 != nil || err2 != nil {
			continue
		}
		uid, c.Gid, home, name, found = u, uint32(g), f[5], f[0], true
		break
	}
	if name == "" {
		home = "/root"
	}
	c.Uid = uint32(uid)
	if given {
		gid, err := strconv.ParseUint(group, 10, 16)
		ok := err == nil
		for _, f := range groups {
			if len(f) < 3 || f[0] != group {
				continue
			}
			if g, err := strconv.ParseUint(f[2], 10, 16); err == nil {
				gid, ok = g, true
			}
		}
		if !ok {
			return nil, "", false
		}
		c.Gid = uint32(gid)
		return c, home, found
	}
	for _, f := range groups {
		if len(f) < 4 || !contains(strings.Split(f[3], ","), name) {
			continue
		}
		if g, err := strconv.ParseUint(f[2], 10, 16); err == nil && len(c.Groups) < 64 {
			c.Groups = append(c.Groups, uint32(g))
		}
	}
	return c, home, found
}

func contains(list []string, word string) bool {
	for _, w := range list {
		if w == word && word != "" {
			return true
		}
	}
	return false
}

// lines are the fields of the lines of a short file.
func lines(path string) (all [][]string) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text := make([]byte, 256<<10)
	n := 0
	for n < len(text) {
		m, err := f.Read(text[n:])
		if n += m; err != nil {
			break
		}
	}
	for _, line := range strings.Split(string(text[:n]), "\n") {
		all = append(all, strings.Split(line, ":"))
	}
	return all
}
