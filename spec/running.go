package spec

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// FormatRunning writes a network as it is by now: with the configuration that its routers have, and with the addresses
// that were chosen for it where a new network would get others. What no file of this format holds – files that were
// changed inside – is listed in comments at its end. Notes say what a network made from it would not have.
func FormatRunning(record model.Record, running map[string]model.Running) (text []byte, notes []string, err error) {
	net, differ, err := resolve.Pinned(record)
	if err != nil {
		return nil, nil, fmt.Errorf("work out the network's addresses: %w", err)
	}
	if len(differ) > 0 {
		notes = append(notes, fmt.Sprintf("a network made from this would give %s other addresses, which "+
			"configurations may name", strings.Join(differ, ", ")))
	}
	net.Elements = append([]model.Element(nil), net.Elements...)
	var files []string
	for i := range net.Elements {
		e := &net.Elements[i]
		now := running[e.Name]
		if len(now.Config) > 0 {
			config := maps.Clone(e.Config)
			if config == nil {
				config = map[string]string{}
			}
			maps.Copy(config, now.Config)
			e.Config = config
		}
		for _, f := range now.Files {
			files = append(files, fmt.Sprintf("#   %s:%s  %s", e.Name, commented(f.Path), f.Size.Rounded()))
		}
		if now.More {
			files = append(files, fmt.Sprintf("#   %s:  and more than are listed", e.Name))
		}
	}
	if text, err = Format(net); err != nil {
		return nil, notes, err
	}
	if err := CheckSize(text); err != nil {
		notes = append(notes, fmt.Sprintf("apply will refuse it: %v", err))
	}
	if len(files) > 0 {
		text = append(text, "# Files that were made or changed inside, which are not in this file:\n"...)
		text = append(text, strings.Join(files, "\n")...)
		text = append(text, '\n')
	}
	return text, notes, nil
}

// commented is a file's name as it can stand in a comment: in a name anything may be, also the end of a line.
func commented(name string) string {
	if strings.IndexFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) >= 0 {
		return strconv.Quote(name)
	}
	return name
}
