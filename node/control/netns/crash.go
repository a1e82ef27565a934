package netns

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/polyplane/polyplane/model"
)

// crashed is the error of an element whose processes end again and again. It stays the same while they are being
// started anew, until they end once more.
func (d *Driver) crashed(w *work, times int) error {
	p := w.p
	said := p.said
	if !p.running() {
		said = d.lastWords(w.job.ID, p.logFrom)
	}
	if said != "" {
		said = fmt.Sprintf(", lastly with %q", said)
	}
	word := "times"
	if times == 1 {
		word = "time"
	}
	return fmt.Errorf("its processes ended %d %s soon after their start%s; they are started again, ever more slowly: "+
		"`polyplane logs %s` tells more, and `polyplane exec %s -- sh` lets you mend its files", times, word,
		said, w.job.ID, w.job.ID)
}

// Bounds of what is told of an element's log: how many bytes of its end are read, and how many letters of the last line
// are told.
const (
	logEnd    = 4096
	lineLimit = 200
)

// lastWords is the last line that an element's processes printed after the log had this length.
func (d *Driver) lastWords(id model.ID, from int64) string {
	f, err := os.Open(d.logPath(id))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from = max(from, info.Size()-logEnd)
	data, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return ""
	}
	last := ""
	for line := range strings.Lines(string(data)) {
		if words := strings.Join(strings.Fields(line), " "); words != "" {
			last = words
		}
	}
	last = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, last)
	if letters := []rune(last); len(letters) > lineLimit {
		last = string(letters[:lineLimit]) + "…"
	}
	return last
}
