package main

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	birdSockets = "/run/bird"
	birdProgram = "/usr/sbin/bird"
)

// A test has others.
var (
	birdConf    = "/etc/bird/bird.conf"
	birdControl = birdSockets + "/bird.ctl"
	birdPID     = birdSockets + "/polyplane.pid" // BIRD's, which may have no note yet
)

const birdMisfit = ". Put one there, " + orOverwrite

// runBIRD runs BIRD until it ends, and notes that it has its configuration.
func runBIRD() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	p := newProcesses()
	err := errors.Join(os.MkdirAll(birdSockets, 0o755), os.RemoveAll(notesDir), os.MkdirAll(notesDir, 0o755))
	if err != nil {
		say(err.Error())
	}
	remove(birdControl)
	loaded, hasID := awaitConf(signals)
	// Of this BIRD says nothing where it is looked for, and ends.
	if !hasID && !hasAddress() {
		os.Stderr.WriteString("BIRD has no router ID, and no IPv4 address to take one from: its " + //nolint:errcheck // as in fail
			"configuration needs a line like \"router id 10.255.0.1;\"\n")
	}
	bird := p.start(&command{words: []string{birdProgram, "-f", "-c", birdConf, "-s", birdControl}, env: os.Environ(),
		dir: "/"})
	pid := strconv.Itoa(bird.pid)
	os.WriteFile(birdPID, []byte(pid+"\n"), 0o644) //nolint:errcheck // a reload then fails
	again := make(chan struct{}, 1)
	go tendBIRD(pid, loaded, again)
	for {
		select {
		case <-bird.ended:
		case got := <-signals:
			if got == syscall.SIGHUP { // as BIRD itself takes it
				poke(again)
				continue
			}
			end(bird)
		}
		os.Exit(bird.status)
	}
}

// tendBIRD notes that BIRD has its configuration once it has, and has it read that again when it is told to. It may
// wait for a BIRD that does not answer.
func tendBIRD(pid, loaded string, again chan struct{}) {
	for pause := firstPause; !isUp(); pause = min(2*pause, 300*time.Millisecond) {
		time.Sleep(pause)
	}
	take := func() {
		hash, err := configureBIRD()
		if err != nil {
			say(err.Error())
			tell("trouble", "BIRD does not take its configuration")
			return
		}
		tellBIRD(pid, hash)
	}
	if hash, misfit := hashConf(birdConf); misfit != "" || hash != loaded {
		take()
	} else {
		tellBIRD(pid, loaded)
	}
	settle := []time.Duration{8 * time.Second, 32 * time.Second}
	for {
		var soon <-chan time.Time
		if len(settle) > 0 {
			soon = time.After(settle[0])
		}
		select {
		case <-again:
			take()
		case <-soon:
			if settle = settle[1:]; !settleBIRD(pid) {
				settle = nil
			}
		}
	}
}

// tellBIRD notes that BIRD has read the configuration with this hash.
func tellBIRD(pid, hash string) {
	tell("bird", pid+" "+hash+" 1")
	untell("trouble")
}

// awaitConf waits for a configuration: BIRD starts with one or not at all. It returns its hash, and whether it says
// what the router's ID is.
func awaitConf(signals chan os.Signal) (hash string, hasID bool) {
	for was := ""; ; {
		hash, misfit := eachLine(birdConf, func(line []byte) { hasID = hasID || begins(line, "router", "id") })
		if misfit == "" {
			untell("trouble")
			return hash, hasID
		}
		if misfit != was {
			was = misfit
			tell("trouble", misfit+birdMisfit)
			os.Stdout.WriteString(misfit + birdMisfit + "\n") //nolint:errcheck // it is noted
		}
		hasID = false
		select {
		case got := <-signals:
			if got != syscall.SIGHUP {
				os.Exit(0)
			}
		case <-time.After(time.Second):
		}
	}
}

// begins tells whether a line begins with a word, and a second one that begins so.
func begins(line []byte, first, second string) bool {
	f := strings.Fields(string(line))
	return len(f) > 1 && f[0] == first && strings.HasPrefix(f[1], second)
}

// hasAddress tells whether there is an IPv4 address that is not only the machine's own.
func hasAddress() bool {
	all, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_INET)
	if err != nil {
		return true // BIRD finds out
	}
	messages, err := syscall.ParseNetlinkMessage(all)
	for _, m := range messages {
		global := len(m.Data) > 3 && m.Data[0] == syscall.AF_INET && m.Data[3] == 0
		if m.Header.Type == syscall.RTM_NEWADDR && global {
			return true
		}
	}
	return err != nil
}

// askBIRD gives BIRD a command, and returns what it says, as birdc shows it.
func askBIRD(command string) (said string, err error) {
	v, err := openVTY(birdControl, patience)
	if err != nil {
		return "", err
	}
	defer v.close()
	if said, err = v.reply(); err == nil { // its greeting
		if err = v.send([]byte(command + "\n")); err == nil {
			var more string
			more, err = v.reply()
			said += more
		}
	}
	return said, err
}

// reply reads an answer of BIRD: lines that begin with a number and "-", and at last one with a number and a space.
// Lines that go on begin with a space.
func (v *vty) reply() (string, error) {
	var got, said []byte
	part := make([]byte, 4096)
	for all := 0; ; {
		if i := bytes.IndexByte(got, '\n'); i >= 0 {
			l := got[:i]
			got = got[i+1:]
			numbered := len(l) > 4 && strings.Trim(string(l[:4]), "0123456789") == ""
			switch {
			case numbered:
				said = append(append(said, l[5:]...), '\n')
				if l[4] == ' ' {
					return string(said), nil
				}
			case len(l) > 0:
				said = append(append(said, l[1:]...), '\n')
			}
			continue
		}
		n := 0
		if err := again(func() (err error) { n, err = syscall.Read(v.fd, part); return err }); err != nil {
			return string(said), err
		}
		if n == 0 {
			return string(said), errors.New("it hung up")
		}
		if all += n; all > mostSaid {
			return string(said), errors.New("it says too much")
		}
		got = append(got, part[:n]...)
	}
}

// isUp tells whether BIRD works with what it has read: it answers then.
func isUp() bool {
	said, err := askBIRD("show status")
	return err == nil && strings.Contains(said, "is up and running")
}

// configureBIRD has BIRD read its configuration until what it has read is what is there, and returns its hash.
func configureBIRD() (hash string, err error) {
	for range 3 {
		before, misfit := hashConf(birdConf)
		if misfit != "" {
			return "", errors.New(misfit + birdMisfit)
		}
		said, err := askBIRD("configure")
		switch {
		case err != nil:
			return "", errors.New(said + err.Error())
		case !strings.Contains(said, "Reconfigured") && !strings.Contains(said, "Reconfiguration in progress") &&
			!strings.Contains(said, "Reconfiguration already in progress"):
			return "", errors.New(strings.TrimSpace(said))
		}
		if hash, misfit = hashConf(birdConf); misfit == "" && hash == before {
			return hash, nil
		}
	}
	return "", errors.New("the configuration was written while it was loaded")
}

// settleBIRD has BIRD look again at which neighbors it announces. BIRD 2 forgets to announce one that gets full while
// it floods its own router LSA: where a neighbor still holds what this router announced in an earlier life of a few
// seconds, the flood itself completes the exchange (BIRD's ospf_update_topology clears update_rt_lsa after
// ospf_flood_lsa has set it). Both say "Full" then, and nobody has a route, until something else changes. That can only
// be in the first seconds, 5 (MinLSInterval) after the start or somewhat later where processors are busy. Nothing else
// comes of reading an unchanged file again.
func settleBIRD(pid string) (again bool) {
	ospf := false
	hash, misfit := eachLine(birdConf, func(line []byte) { ospf = ospf || begins(line, "protocol", "ospf") })
	if misfit != "" || !ospf {
		return false
	}
	noted := strings.Fields(told("bird"))
	if len(noted) != 3 || noted[0] != pid || noted[1] != hash {
		return false
	}
	askBIRD("configure") //nolint:errcheck // the next time it does
	return true
}

// reloadBIRD has the running BIRD take its configuration over.
func reloadBIRD() {
	hash, err := configureBIRD()
	if err != nil {
		fail(1, err.Error())
	}
	if err := noteReloaded(hash); err != nil {
		fail(1, err.Error())
	}
	os.Exit(0)
}

// noteReloaded notes that BIRD took a configuration over, also where it had not taken the one before.
func noteReloaded(hash string) error {
	text, err := os.ReadFile(birdPID)
	if err != nil {
		return err
	}
	tellBIRD(strings.TrimSpace(string(text)), hash)
	return nil
}
