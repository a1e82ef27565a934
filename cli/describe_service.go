package cli

import (
	"fmt"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// mostFiles is how many of the files that are put into an element are told one by one.
const mostFiles = 20

// service shows what an element's owner has run in it.
func (s *sheet) service(is *model.Service) {
	s.line("Image", model.ShortImage(is.Image))
	for _, command := range is.Start {
		s.line("Start", oneLine(command))
	}
	if is.Run != "" {
		s.line("Run", oneLine(is.Run)+" (restart: "+string(is.RestartsOn())+")")
	}
	for _, command := range is.Stop {
		s.line("Stop", oneLine(command))
	}
	if r := is.Ready; r != nil {
		var signs []string
		if r.TCP != 0 {
			signs = append(signs, fmt.Sprintf("something listens on TCP port %d", r.TCP))
		}
		if r.Command != "" {
			signs = append(signs, oneLine(r.Command)+" succeeds")
		}
		s.line("Ready when", strings.Join(signs, ", and "))
	}
	for _, name := range sortedKeys(is.Env) {
		s.line("Env", name+"="+oneLine(is.Env[name]))
	}
	for i, path := range sortedKeys(is.Contents) {
		if i == mostFiles && len(is.Contents) > mostFiles+1 {
			s.line("Files", fmt.Sprintf("and %d others", len(is.Contents)-mostFiles))
			break
		}
		s.line("File", path+", "+is.Contents[path].String())
	}
	for _, path := range sortedKeys(is.Tmpfs) {
		s.line("In memory", path+", "+is.Tmpfs[path].String())
	}
}
