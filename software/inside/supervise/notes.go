package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// notesDir is where routing software is noted: a file for each daemon says "PID HASH COUNT" once it has read the
// configuration with this hash (SHA-256), having been started COUNT times; "trouble" says in words what is wrong.
// It is a variable for tests.
var notesDir = "/run/polyplane/state/"

// tell replaces a note as a whole: it is read at any moment.
func tell(name, words string) {
	if os.WriteFile(notesDir+"."+name, []byte(words+"\n"), 0o644) == nil {
		os.Rename(notesDir+"."+name, notesDir+name) //nolint:errcheck // what is not there is not believed
	}
}

func untell(name string) { remove(notesDir + name) }

func told(name string) string {
	text, _ := os.ReadFile(notesDir + name)
	return string(text)
}

func remove(path string) { syscall.Unlink(path) } //nolint:errcheck // there may be none

// mostConf is how many bytes of a configuration are read.
const mostConf = 64 << 20

const orOverwrite = "or have the network's by `polyplane apply --overwrite`"

// longest is how many bytes of a line are looked at, and one more than of any that is understood.
const longest = 4096

// eachLine visits the lines of a configuration, without their ends and at most their first bytes, and returns the hash
// of all of it. Where it is none that can be read to its end, it says why: who opened a pipe or a device would wait, or
// read, for ever. It keeps nothing: a configuration may be larger than what an element may use.
func eachLine(path string, do func(line []byte)) (hash, misfit string) {
	is := func(words string) (string, string) {
		return "", path + " is " + words + ": it must be a file with the configuration"
	}
	fit := func(info fs.FileInfo, err error) string {
		switch {
		case err != nil:
			return "not there, or a link that leads nowhere"
		case !info.Mode().IsRegular():
			return "a " + kindOf(info.Mode())
		case info.Size() > mostConf:
			return "a file of " + strconv.FormatInt(info.Size(), 10) + " bytes, and at most " + strconv.Itoa(mostConf) +
				" are read"
		}
		return ""
	}
	if words := fit(os.Stat(path)); words != "" {
		return is(words)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return is("not to be opened (" + err.Error() + ")")
	}
	defer f.Close()
	if words := fit(f.Stat()); words != "" { // it may have been replaced meanwhile
		return is(words)
	}
	sum := sha256.New()
	r := bufio.NewReaderSize(io.LimitReader(f, mostConf), longest)
	for begins := true; ; {
		part, err := r.ReadSlice('\n')
		sum.Write(part)
		if begins && do != nil && (err == nil || len(part) > 0) {
			do(bytes.TrimSuffix(part, []byte{'\n'}))
		}
		switch begins = err == nil; err {
		case nil, bufio.ErrBufferFull:
		case io.EOF:
			return hex.EncodeToString(sum.Sum(nil)), ""
		default:
			return is("not to be read (" + err.Error() + ")")
		}
	}
}

// hashConf is the hash of a configuration.
func hashConf(path string) (hash, misfit string) { return eachLine(path, nil) }

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeCharDevice != 0:
		return "character special file"
	}
	return "block special file"
}

// mostOutput is how much is kept of what a program prints.
const mostOutput = 1 << 16

// output runs a program to its end, and returns what it printed.
func (p *processes) output(c *command) (said string, status int) {
	r, w, err := os.Pipe()
	if err != nil {
		return err.Error() + "\n", 126
	}
	defer r.Close()
	c.out = w
	child := p.start(c)
	w.Close()
	var b strings.Builder
	_, err = io.Copy(&b, io.LimitReader(r, mostOutput))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	<-child.ended
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error() + "\n", 126
	}
	return b.String(), child.status
}
