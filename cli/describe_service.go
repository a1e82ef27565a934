package cli

import (
	"fmt"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// service shows what an element's owner has run in it.
func (s *sheet) service(is *model.Service) {
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
	for _, path := range sortedKeys(is.Contents) {
		s.line("File", path+", "+is.Contents[path].String())
	}
	for _, path := range sortedKeys(is.Tmpfs) {
		s.line("In memory", path+", "+is.Tmpfs[path].String())
	}
}
