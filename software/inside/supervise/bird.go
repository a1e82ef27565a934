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
	birdConf    = "/etc/bird/bird.conf"
	birdSockets = "/run/bird"
	birdControl = birdSockets + "/bird.ctl"
	birdProgram = "/usr/sbin/bird"
)

const birdMisfit = ". Put one there, " + orOverwrite

// runBIRD runs BIRD until it ends, and notes that it has its configuration.
func runBIRD() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	p := newProcesses()
	err := errors.Join(os.MkdirAll(birdSockets, 0o755), os.RemoveAll(notesDir), os.MkdirAll(notesDir, 0o755))
	if err != nil {
		say(err.Error())
	}
	remove(birdControl)
	text := awaitConf(signals)
	// Of this BIRD says nothing where it is looked for, and ends.
	if !hasLine(text, "router", "id") && !hasAddress() {
		os.Stderr.WriteString("BIRD has no router ID, and no IPv4 address to take one from: its " + //nolint:errcheck // as in fail
			"configuration needs a line like \"router id 10.255.0.1;\"\n")
	}
	loaded := hashOf(text)
	bird := p.start(&command{words: []string{birdProgram, "-f", "-c", birdConf, "-s", birdControl}, env: os.Environ(),
		dir: "/"})
	ready := false
	var settle []time.Duration
	soon := firstPause
	for {
		select {
		case <-bird.ended:
			os.Exit(bird.status)
		case <-signals:
			bird.signal(syscall.SIGTERM) // it ends by itself
			<-bird.ended
			os.Exit(bird.status)
		case <-time.After(soon):
		}
		switch {
		case !ready && !isUp():
			soon = min(2*soon, 300*time.Millisecond)
		case !ready:
			ready, soon = true, time.Hour
			if text, misfit := readConf(birdConf); misfit != "" || hashOf(text) != loaded {
				if loaded, err = configureBIRD(); err != nil {
					say(err.Error())
					tell("trouble", "BIRD does not take its configuration")
					continue
				}
			}
			tellBIRD(bird.pid, loaded)
			settle = []time.Duration{8 * time.Second, 32 * time.Second}
			soon = settle[0]
		case len(settle) > 0:
			if settle = settle[1:]; !settleBIRD(bird.pid) {
				settle = nil
			}
			if soon = time.Hour; len(settle) > 0 {
				soon = settle[0]
			}
		}
	}
}

func tellBIRD(pid int, hash string) { tell("bird", strconv.Itoa(pid)+" "+hash+" 1") }

// awaitConf waits for a configuration: BIRD starts with one or not at all.
func awaitConf(signals chan os.Signal) []byte {
	for was := ""; ; {
		text, misfit := readConf(birdConf)
		if misfit == "" {
			untell("trouble")
			return text
		}
		if misfit != was {
			was = misfit
			tell("trouble", misfit+birdMisfit)
			os.Stdout.WriteString(misfit + birdMisfit + "\n") //nolint:errcheck // it is noted
		}
		select {
		case <-signals:
			os.Exit(0)
		case <-time.After(time.Second):
		}
	}
}

// hasLine tells whether a line begins with a word, and a second one that begins so.
func hasLine(text []byte, first, second string) bool {
	for _, l := range strings.Split(string(text), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == first && strings.HasPrefix(f[1], second) {
			return true
		}
	}
	return false
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
	v, err := openVTY(birdControl, 0)
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
		text, misfit := readConf(birdConf)
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
		hash = hashOf(text)
		if text, misfit = readConf(birdConf); misfit == "" && hashOf(text) == hash {
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
func settleBIRD(pid int) (again bool) {
	text, misfit := readConf(birdConf)
	if misfit != "" || !hasLine(text, "protocol", "ospf") {
		return false
	}
	noted := strings.Fields(told("bird"))
	if len(noted) != 3 || noted[0] != strconv.Itoa(pid) || noted[1] != hashOf(text) {
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
	if noted := strings.Fields(told("bird")); len(noted) == 3 {
		tell("bird", noted[0]+" "+hash+" 1")
	}
	os.Exit(0)
}
