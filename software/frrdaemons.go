package software

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
)

// frrSettings is what a daemons file says. FRR itself runs that file as shell. polyplane reads it as plain KEY=VALUE
// lines, and never runs anything of it.
type frrSettings struct {
	on        map[string]bool
	options   map[string][]string // of a daemon
	instances map[string][]string // numbers of a daemon's instances
	all       []string            // options of every daemon
	profile   string
	files     int // that a daemon may have open
}

// defaultFiles is how many files a daemon may have open if the daemons file does not say.
const defaultFiles = 1024

// parseDaemonsFile reads a daemons file and refuses what it does not know.
func parseDaemonsFile(text string) (*frrSettings, error) {
	s := &frrSettings{on: map[string]bool{"zebra": true, "staticd": true}, options: map[string][]string{},
		instances: map[string][]string{}, profile: "traditional", files: defaultFiles}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if err := s.line(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("daemons, line %d: %w", number, err)
		}
	}
	return s, nil
}

func (s *frrSettings) line(line string) error {
	if line == "" || line[0] == '#' {
		return nil
	}
	key, value, ok := strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" || strings.ContainsFunc(key, func(r rune) bool { return !plainLetter(r) }) {
		return fmt.Errorf("%.60q is no KEY=VALUE: the file is not run as shell, but read line by line", line)
	}
	value, err := plainValue(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	daemon := func(suffix string) string {
		if d, ok := strings.CutSuffix(key, suffix); ok && slices.Contains(frrKnown, d) {
			return d
		}
		return ""
	}
	switch {
	case slices.Contains(frrKnown, key):
		if s.on[key] = value != "" && value != "no" && value != "0"; s.on[key] &&
			!slices.Contains([]string{"yes", "1", "true"}, value) {
			return fmt.Errorf("%s is yes or no, not %.40q", key, value)
		}
		if s.on["sharpd"] {
			return fmt.Errorf("sharpd is for FRR's own tests, and is not run here")
		}
		s.on["zebra"], s.on["staticd"] = true, true // always
	case daemon("_options") != "":
		s.options[daemon("_options")], err = frrOptions(value)
	case daemon("_instances") != "":
		s.instances[daemon("_instances")], err = frrInstances(daemon("_instances"), value)
	case key == "frr_global_options":
		s.all, err = frrOptions(value)
	case key == "frr_profile":
		if s.profile = value; value != "traditional" && value != "datacenter" {
			return fmt.Errorf("frr_profile is traditional or datacenter, not %.40q", value)
		}
	case key == "MAX_FDS":
		if s.files, err = strconv.Atoi(value); err != nil || s.files < 64 || s.files > 1<<20 {
			return fmt.Errorf("MAX_FDS is a number of files, 64…%d, not %.40q", 1<<20, value)
		}
	case key == "vtysh_enable", key == "watchfrr_enable": // FRR itself no longer heeds them
	case key == "watchfrr_options":
		return fmt.Errorf("watchfrr is started by polyplane, with options of its own: leave watchfrr_options out")
	case key == "all_wrap", daemon("_wrap") != "":
		return fmt.Errorf("daemons are started as they are: leave %s out", key)
	default:
		return fmt.Errorf("unknown key %.40q; known are DAEMON=yes|no, DAEMON_options and DAEMON_instances, with the "+
			"daemons %s, and frr_global_options, frr_profile, MAX_FDS, vtysh_enable", key, strings.Join(frrOrder, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// plainValue takes quotes and a comment off a value, and refuses what a shell would not take literally.
func plainValue(value string) (string, error) {
	value = strings.TrimSpace(value)
	if q := value; q != "" && (q[0] == '"' || q[0] == '\'') {
		end := strings.IndexByte(q[1:], q[0])
		if end < 0 {
			return "", fmt.Errorf("the quote %c is not closed on its line", q[0])
		}
		rest := strings.TrimSpace(q[end+2:])
		if rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("%.40q follows the value", rest)
		}
		value = q[1 : end+1]
	} else {
		value, _, _ = strings.Cut(value, " #")
		value = strings.TrimSpace(value)
		if strings.ContainsAny(value, " \t") {
			return "", fmt.Errorf("a value of several words is written in quotes: %.60q", value)
		}
	}
	if strings.ContainsFunc(value,
		func(r rune) bool { return !plainLetter(r) && !strings.ContainsRune(" \t.,:/=+-%@", r) }) {
		return "", fmt.Errorf("%.60q is more than plain words: the file is not run as shell", value)
	}
	return value, nil
}

func plainLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// frrTaken are options that a user may not set, since they would keep a daemon from being watched and configured, each
// with the reason.
var frrTaken = map[string]string{
	"-d":       "daemons stay in the foreground, where they are watched",
	"--daemon": "daemons stay in the foreground, where they are watched",
	"-i":       "where its process is noted is fixed", "--pid_file": "where its process is noted is fixed",
	"-z": "where zebra listens is fixed", "--socket": "where zebra listens is fixed",
	"--vty_socket": "where it takes its configuration is fixed",
	"-N":           "there is one FRR in an element", "--pathspace": "there is one FRR in an element",
	"-u": "it runs as the user frr", "--user": "it runs as the user frr", "-g": "it runs as the group frr",
	"--group":     "it runs as the group frr",
	"-n":          "instances are named by DAEMON_instances, and VRFs are those of the kernel, not namespaces",
	"--instance":  "instances are named by DAEMON_instances",
	"--vrfwnetns": "VRFs are those of the kernel: elements make no namespaces",
	"-C":          "it would end at once", "--dryrun": "it would end at once", "-h": "it would end at once",
	"--help": "it would end at once",
	"-v":     "it would end at once", "--version": "it would end at once", "-t": "it has no terminal",
	"--terminal": "it has no terminal",
	"-b":         "it would end at once", "--batch": "it would end at once",
}

// frrValued are the letters of options with a value, which may follow without a space (getopt(3)). What follows them is
// then a value, and no further option.
const frrValued = "AFIKMPeflops"

func frrOptions(value string) ([]string, error) {
	words := strings.Fields(value)
	for _, w := range words {
		if w == "--" {
			return nil, fmt.Errorf("leave -- out")
		}
		if name, why := frrTakenIn(w); why != "" {
			return nil, fmt.Errorf("leave %s out: %s", name, why)
		}
	}
	return words, nil
}

// frrTakenIn finds an option of frrTaken in a word, in every form that getopt_long(3) allows: several letters in one
// word, with their value behind them, or the beginning of a long name.
func frrTakenIn(word string) (name, why string) {
	if strings.HasPrefix(word, "--") {
		begin, _, _ := strings.Cut(word, "=")
		for _, taken := range slices.Sorted(maps.Keys(frrTaken)) {
			if len(begin) > 2 && strings.HasPrefix(taken, begin) {
				return taken, frrTaken[taken]
			}
		}
		return "", ""
	}
	for i := 1; i < len(word) && word[0] == '-'; i++ {
		if name = "-" + word[i:i+1]; frrTaken[name] != "" {
			return name, frrTaken[name]
		}
		if strings.IndexByte(frrValued, word[i]) >= 0 {
			break
		}
	}
	return "", ""
}

func frrInstances(daemon, value string) ([]string, error) {
	if daemon == "zebra" || daemon == "staticd" || daemon == "mgmtd" {
		return nil, fmt.Errorf("there is one %s", daemon)
	}
	numbers := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	for _, n := range numbers {
		if i, err := strconv.Atoi(n); err != nil || i < 1 || i > 65535 || strconv.Itoa(i) != n {
			return nil, fmt.Errorf("instances are numbers, 1…65535, not %.40q", n)
		}
	}
	return numbers, nil
}

// names are the daemons that run, by the names of their instances.
func (s *frrSettings) names() []string {
	var names []string
	for _, d := range frrOrder {
		if !s.on[d] {
			continue
		}
		if len(s.instances[d]) == 0 {
			names = append(names, d)
		}
		names = append(names, each.Of(s.instances[d], func(n string) string { return d + "-" + n })...)
	}
	return names
}

// command starts the daemons; see inside/supervise.
func (s *frrSettings) command() []string {
	common := append(slices.Clone(s.all), "-F", s.profile)
	// FRR 10 has one more daemon, which all the others need; whether it is there the program sees.
	words := []string{superviseProgram.Path, "frr", "start", strconv.Itoa(s.files),
		strings.Join(append(slices.Clone(common), s.options["mgmtd"]...), " ")}
	for i, name := range s.names() {
		if i > 0 {
			words = append(words, "--")
		}
		words = append(append(words, name), common...)
		d, n, instance := strings.Cut(name, "-")
		if instance {
			words = append(words, "-n", n)
		}
		words = append(words, s.options[d]...)
	}
	return words
}
