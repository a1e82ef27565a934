package software

import (
	_ "embed"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"unicode"
)

//go:generate ./inside/generate

// Program is a file that every element with this software sees, and none can change.
type Program struct {
	Path    string
	Content []byte
	Mode    fs.FileMode
}

const (
	// insideDir is where an element sees what polyplane puts into it.
	insideDir = "/run/polyplane"
	// NotesDir is where the programs write notes: a Note for each daemon that runs with its configuration, and one that
	// says what is wrong.
	NotesDir = insideDir + "/state"
	// TroubleNote is the name of the note that says, for people, what is wrong.
	TroubleNote = "trouble"
)

//go:embed inside/preload_amd64.so
var preloadAMD64 []byte

//go:embed inside/preload_arm64.so
var preloadARM64 []byte

var (
	// See inside/preload.c.
	frrPreloadProgram = Program{Path: insideDir + "/frr-preload.so", Mode: 0o755,
		Content: map[string][]byte{"amd64": preloadAMD64, "arm64": preloadARM64}[runtime.GOARCH]}
)

// Programs are all there are.
func Programs() []Program {
	return []Program{frrPreloadProgram, superviseProgram}
}

// Note is the evidence that a daemon runs and has read its configuration. The agent compares it before it calls the
// element ready (docs/decisions/0024-ready.md).
type Note struct {
	PID    int    // in the element's own PID namespace
	Config string // the SHA-256 hash of what it has read, in hexadecimal digits
	Starts int    // how often it was started
}

// MaxNote is the longest note in bytes.
const MaxNote = 512

// ParseNote reads a note. Root in the element may have written anything there.
func ParseNote(data []byte) (Note, error) {
	words := strings.Fields(string(data[:min(len(data), MaxNote)]))
	if len(words) != 3 {
		return Note{}, fmt.Errorf("a note has three words, not %d", len(words))
	}
	pid, err := strconv.ParseUint(words[0], 10, 31)
	if err != nil || pid == 0 {
		return Note{}, fmt.Errorf("%.20q is no process", words[0])
	}
	starts, err := strconv.ParseUint(words[2], 10, 31)
	if err != nil {
		return Note{}, fmt.Errorf("%.20q is no number of starts", words[2])
	}
	if len(words[1]) != 64 || strings.Trim(words[1], "0123456789abcdef") != "" {
		return Note{}, fmt.Errorf("%.20q is no hash of a configuration", words[1])
	}
	return Note{PID: int(pid), Config: words[1], Starts: int(starts)}, nil
}

// Trouble makes one line for people from a note that says what is wrong.
func Trouble(data []byte) string {
	text := strings.Join(strings.Fields(string(data[:min(len(data), MaxNote)])), " ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text)
}
