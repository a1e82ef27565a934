// Command supervise is the first process of an element in which something is run. One that is made from an image may
// have no shell, no libc and no other program, so this is one static file, and small: every such element has one.
// Hundreds of these start at once, and each program that one starts costs more than all that it does itself.
//
//	supervise start [DAEMONS CAPABILITIES COMMAND…]
//	                           runs what /etc/polyplane/service says until the element ends. COMMAND is the image's
//	                           routing software, which gets only CAPABILITIES, and whose DAEMONS (with commas) must
//	                           have their configuration first
//	supervise reload           has it take over what that says by now
//	supervise again            has the service started again as it is
//	supervise pause            runs nothing, and waits
//	supervise pipes COMMAND…   becomes the command, with its descriptors 3, 4 and 5 as 0, 1 and 2
//	supervise frr start FILES MGMTD [DAEMON ARGUMENT… --]…
//	                           runs FRR until it is to end: see runFRR
//	supervise frr reload       has the running daemons take /etc/frr/frr.conf over
//	supervise frr hung DAEMON  ends the daemon, or each of all, if it does not answer
//	supervise bird start       runs BIRD until it ends
//	supervise bird reload      has the running BIRD take /etc/bird/bird.conf over, and fails where it does not
//	supervise confine CAPABILITIES COMMAND…
//	                           becomes the command, which never has more than the capabilities (with commas)
package main

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	state      = "/run/polyplane/service." // how the paths of its notes begin
	definition = "/etc/polyplane/service"
	kept       = "/var/lib/polyplane"
)

const usage = "usage: supervise start [DAEMONS CAPABILITIES COMMAND…] | reload | again | pause | pipes COMMAND… | " +
	"frr start FILES MGMTD [DAEMON ARGUMENT… --]… | frr reload | frr hung DAEMON | " +
	"bird start | bird reload | confine CAPABILITIES COMMAND…"

// sources is the hash of the files that this was compiled from.
var sources string

// init names the process, as the agent looks for it. The name is the first thread's, which runs this.
func init() {
	name := []byte("service\x00")
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0)
}

func main() {
	runtime.GOMAXPROCS(1) // it waits most of the time
	if len(os.Args) < 2 {
		fail(2, usage)
	}
	switch os.Args[1] {
	case "start":
		newSupervisor().run(os.Args[2:])
	case "reload":
		reload()
	case "again":
		if err := syscall.Kill(1, syscall.SIGUSR1); err != nil {
			fail(1, err.Error())
		}
	case "pause":
		pause()
	case "pipes":
		becomeOnPipes(os.Args[2:])
	case "frr":
		switch {
		case len(os.Args) > 5 && os.Args[2] == "start":
			runFRR(os.Args[3:])
		case len(os.Args) == 3 && os.Args[2] == "reload":
			reloadFRR()
		case len(os.Args) == 4 && os.Args[2] == "hung":
			endHungFRR(os.Args[3])
		}
		fail(2, usage)
	case "bird":
		switch {
		case len(os.Args) == 3 && os.Args[2] == "start":
			runBIRD()
		case len(os.Args) == 3 && os.Args[2] == "reload":
			reloadBIRD()
		}
		fail(2, usage)
	case "confine":
		if len(os.Args) < 4 {
			fail(2, usage)
		}
		becomeConfined(os.Args[2], os.Args[3:])
	case "sources":
		os.Stdout.WriteString(sources + "\n") //nolint:errcheck // a test reads it
	default:
		fail(2, usage)
	}
}

func fail(status int, words string) {
	os.Stderr.WriteString(words + "\n") //nolint:errcheck // there is nobody else to tell
	os.Exit(status)
}

// say tells the element's log.
func say(words string) { os.Stdout.WriteString("polyplane: " + words + "\n") } //nolint:errcheck // as above

// pause is the first process of an element in which only people's commands run.
func pause() {
	p := newProcesses()
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		select {
		case got := <-ends:
			if got != syscall.SIGHUP { // Go's programs end of that, where nobody takes it
				os.Exit(0)
			}
		case <-p.news:
		}
	}
}

func becomeOnPipes(command []string) {
	for to, from := range []int{3, 4, 5} {
		if err := syscall.Dup3(from, to, 0); err != nil {
			fail(126, "polyplane: "+err.Error())
		}
		syscall.Close(from)
	}
	if len(command) == 0 {
		fail(2, "polyplane: no command")
	}
	become(command)
}

func become(command []string) {
	path, err := find(command[0], os.Environ())
	if err == nil {
		err = syscall.Exec(path, command, os.Environ())
	}
	if errors.Is(err, syscall.ENOENT) {
		fail(127, "polyplane: "+command[0]+": not found")
	}
	fail(126, "polyplane: "+command[0]+": "+err.Error())
}

// find looks for a program as execvp(3) does.
func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var last error = syscall.ENOENT
	for _, dir := range strings.Split(variable(env, "PATH"), ":") {
		path := filepath.Join("/", dir, name)
		info, err := os.Stat(path)
		switch {
		case err != nil || info.IsDir():
		case info.Mode()&0o111 != 0:
			return path, nil
		default:
			last = syscall.EACCES
		}
	}
	return "", last
}

func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// reload has the first process of the element take over the definition, and waits until it has.
func reload() {
	text, err := os.ReadFile(definition)
	if err != nil {
		fail(1, err.Error())
	}
	want := hashOf(text)
	for range 300 {
		read, err := os.ReadFile(state + "read")
		if err == nil && strings.TrimSpace(string(read)) == want {
			os.Exit(0)
		}
		if err := syscall.Kill(1, syscall.SIGHUP); err != nil {
			fail(1, err.Error())
		}
		time.Sleep(100 * time.Millisecond)
	}
	fail(1, "what is to be run was not taken over")
}
