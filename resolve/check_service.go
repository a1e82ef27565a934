package resolve

import (
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
)

// checkService checks what an element is to run.
func (ps *problems) checkService(i int) {
	e := &ps.net.Elements[i]
	s := &e.Service
	if e.Kind == model.Switch {
		if s.Runs() || s.Image != "" || s.Restart != "" || s.Ready != nil || len(s.Env) > 0 || len(s.Tmpfs) > 0 ||
			len(s.Contents) > 0 {
			ps.element(i, "run", "a switch runs nothing: image, start, stop, run, restart, env, ready, tmpfs and "+
				"files are for hosts and routers")
		}
		return
	}
	ps.checkImage(i)
	for field, list := range map[string][]string{"start": s.Start, "stop": s.Stop} {
		for _, command := range list {
			ps.checkCommand(i, field, command)
		}
	}
	if s.Run != "" {
		ps.checkCommand(i, "run", s.Run)
	}
	switch {
	case s.Restart != "" && !slices.Contains(model.RestartPolicies, s.Restart):
		ps.element(i, "restart", "restart: %q is unknown; there are %s", s.Restart, model.Either(model.RestartPolicies))
	case s.Restart != "" && s.Run == "" && s.Image == "":
		ps.element(i, "restart", "restart says what is done when what it runs has ended, and there is no run")
	}
	ps.checkReadiness(i)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name]
		switch {
		case !isVariable(name):
			ps.element(i, "env/"+name,
				"env: %q is no name of a variable: it has letters, digits and _, and no digit first",
				model.Shorten(name, model.MaxName))
		case !utf8.ValidString(value) || strings.Contains(value, "\x00"):
			ps.element(i, "env/"+name, "env: the value of %s is not UTF-8 text", name)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(s.Tmpfs)) {
		ps.checkTmpfs(i, at, s.Tmpfs[at])
	}
	ps.checkContents(i)
}

// checkImage checks the name of an element's image. Which image that is, and whether there is one, the manager knows.
func (ps *problems) checkImage(i int) {
	e := &ps.net.Elements[i]
	name, _ := model.SplitImage(e.Image)
	switch {
	case e.Image == "":
	case !utf8.ValidString(name) || len(name) > model.MaxImageName || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}):
		ps.element(i, "image", "image: %q is no name of an image, like nginx:1.27, ./web.tar or sha256:…",
			model.Shorten(name, model.MaxName))
	}
}

func (ps *problems) checkCommand(i int, field, command string) {
	switch {
	case strings.TrimSpace(command) == "":
		ps.element(i, field, "%s: there is an empty command", field)
	case !utf8.ValidString(command) || strings.Contains(command, "\x00"):
		ps.element(i, field, "%s: a command is not UTF-8 text", field)
	}
}

func (ps *problems) checkReadiness(i int) {
	s := &ps.net.Elements[i].Service
	switch r := s.Ready; {
	case r == nil:
	case s.Run == "" && len(s.Start) == 0 && s.Image == "":
		ps.element(i, "ready", "ready says when what it runs is ready, and there is neither start nor run")
	case r.TCP == 0 && r.Command == "":
		ps.element(i, "ready", "ready says nothing; write {tcp: 80} or {command: COMMAND}")
	case r.TCP < 0 || r.TCP > 65535:
		ps.element(i, "ready/tcp", "ready: %d is no TCP port; there are 1 to 65535", r.TCP)
	case r.Command != "":
		ps.checkCommand(i, "ready/command", r.Command)
	}
}

// kept are directories that nothing can be mounted on, since elements need what is there; and those in which nothing
// can be mounted at all, since they are the machine's or the kernel's.
var (
	kept = []string{"/", "/etc", "/var", "/run"}
	held = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys", "/dev",
		"/run/polyplane", "/etc/polyplane", "/var/lib/polyplane"}
)

// checkTmpfs looks at a file system in memory. Its path becomes an option of a mount, in which a comma or a colon would
// end it.
func (ps *problems) checkTmpfs(i int, at string, size model.Bytes) {
	in := func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }
	field := "tmpfs"
	switch {
	case !utf8.ValidString(at) || strings.ContainsAny(at, "\x00\n,:") || len(at) > 255:
		ps.element(i, field, "tmpfs: %q is no path that a file system can be at", model.Shorten(at, model.MaxName))
	case !strings.HasPrefix(at, "/") || path.Clean(at) != at:
		ps.element(i, field, "tmpfs: %q is not a whole path in its shortest form, like /data", at)
	case slices.Contains(kept, at) || slices.ContainsFunc(held, in):
		ps.element(i, field, "tmpfs: the element needs what is at %s; take another path, like /data", at)
	case size < model.MinTmpfs:
		ps.element(i, field, "tmpfs: %s is less than the %s that a file system in memory has at least", size,
			model.MinTmpfs)
	case size > model.MaxMemory:
		ps.element(i, field, "tmpfs: %s is more than any machine has (at most %s)", size, model.MaxMemory)
	}
}

func isVariable(name string) bool {
	for k, c := range name {
		switch {
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && k > 0:
		default:
			return false
		}
	}
	return name != ""
}
