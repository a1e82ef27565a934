package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// wanted is what a definition says: a word and a Go string in each line.
type wanted struct {
	hash        string
	start, stop []string
	run         string   // a shell's command; where it is empty, the image's own
	own         []string // the image's command, in words
	env         []string
	user, dir   string
	files       string // a hash of those that were put into the element
	restart     string
	tcp         int
	ready       string
	signal      syscall.Signal // that ends the service
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func readDefinition() (*wanted, error) {
	text, err := os.ReadFile(definition)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) (*wanted, error) {
	w := &wanted{hash: hashOf(text), signal: syscall.SIGTERM, restart: "always"}
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		key, quoted, _ := strings.Cut(line, " ")
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, errors.New("a line of what is to be run is not as polyplane writes it: " + line)
		}
		switch key {
		case "start":
			w.start = append(w.start, value)
		case "stop":
			w.stop = append(w.stop, value)
		case "run":
			w.run = value
		case "own":
			w.own = append(w.own, value)
		case "env":
			w.env = append(w.env, value)
		case "user":
			w.user = value
		case "files":
			w.files = value
		case "dir":
			w.dir = value
		case "restart":
			w.restart = value
		case "tcp":
			w.tcp, err = strconv.Atoi(value)
		case "ready":
			w.ready = value
		case "signal":
			var n int
			if n, err = strconv.Atoi(value); err == nil {
				w.signal = syscall.Signal(n)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// service is what is started as the service; no words where there is nothing.
func (w *wanted) service() []string {
	if w.run != "" {
		return []string{shell, "-c", w.run}
	}
	return w.own
}

// another tells whether the service must be restarted for what is wanted now.
func (w *wanted) another(was *wanted) bool {
	same := func(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }
	return !same(w.service(), was.service()) || !same(w.env, was.env) || w.user != was.user || w.dir != was.dir ||
		w.files != was.files
}
