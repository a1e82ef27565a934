package clab

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/convert/internal/lab"
	"github.com/polyplane/polyplane/each"
)

// node is one of the file's, with what it has of defaults, its kind and its group.
type node struct {
	name, kind string
	line       int
	own        *lab.Node   // what it says itself
	levels     []*lab.Node // and all that it has, the most specific first
}

// get is the value of a key at the most specific level that has it.
func (n *node) get(key string) *lab.Node {
	for _, level := range n.levels {
		if v := level.Get(key); v != nil && v.Kind != lab.Nothing {
			return v
		}
	}
	return nil
}

// all are the entries of a list at all levels, from the least specific one.
func (n *node) all(key string) (items []*lab.Node) {
	for _, level := range slices.Backward(n.levels) {
		for _, item := range level.Get(key).Strings() {
			if !slices.ContainsFunc(items, func(i *lab.Node) bool { return i.Text == item.Text }) {
				items = append(items, item)
			}
		}
	}
	return items
}

// merged is a mapping of all levels.
func (n *node) merged(key string) (pairs []lab.Pair) {
	for _, level := range n.levels {
		if v := level.Get(key); v != nil {
			for _, p := range v.Pairs {
				if !slices.ContainsFunc(pairs, func(q lab.Pair) bool { return q.Key == p.Key }) {
					pairs = append(pairs, p)
				}
			}
		}
	}
	return pairs
}

// The keys of a node that are looked at, and those whose absence changes nothing here.
var (
	taken    = []string{"kind", "group", "image", "exec", "binds", "env", "startup-config", "memory", "cpu", "sysctls"}
	harmless = []string{"labels", "image-pull-policy", "mgmt-ipv4", "mgmt-ipv6", "mgmt_ipv4", "mgmt_ipv6",
		"auto-remove",
		"enforce-startup-config", "suppress-startup-config", "startup-delay", "runtime", "position", "license", "type",
		"restart-policy", "extras"}
)

var (
	frrImage  = regexp.MustCompile(`(^|/)frr(outing)?([/:@-]|$)`)
	birdImage = regexp.MustCompile(`(^|/)bird2?([/:@-]|$)`)
)

// element adds a node as an element, and returns what it is; empty when it cannot be one.
func (r *reader) element(n *node) string {
	is := r.is(n)
	if is == "" {
		return ""
	}
	said := &lab.Map{}
	if is != "switches" {
		for _, level := range n.levels {
			r.notes.Rest(level, "node "+n.name, append(slices.Clone(taken), harmless...)...)
		}
		for _, key := range []string{"exec", "binds"} {
			r.onlyText(n, key)
		}
		r.limits(n, said)
		c := r.commands(n, said)
		if c.Forwards && is == "hosts" {
			is = "routers"
		}
		r.files(n, said, is)
		r.variables(n, said)
	} else {
		r.notes.Rest(n.own, "node "+n.name, append([]string{"kind", "group"}, harmless...)...)
	}
	r.elements[is].Set(n.name, said)
	r.said[n.name] = said
	return is
}

// onlyText notes entries of a list that are no text: a colon and a space in a command make a mapping of it.
func (r *reader) onlyText(n *node, key string) {
	for _, level := range n.levels {
		if v := level.Get(key); v != nil {
			for _, item := range v.Items {
				if item.Kind != lab.Scalar {
					r.notes.Add(item.Line, "node %s: this entry of %s is no text, and is not carried over; put it in "+
						"quotes", n.name, key)
				}
			}
		}
	}
}

// is tells what a node becomes: routers, hosts or switches.
func (r *reader) is(n *node) string {
	image := n.get("image").String()
	switch n.kind {
	case "linux", "":
		switch {
		case frrImage.MatchString(image):
			n.kind = "frr"
			return "routers"
		case birdImage.MatchString(image):
			n.kind = "bird"
			return "routers"
		}
		return "hosts"
	case "frr", "bird":
		return "routers"
	case "bridge", "ovs-bridge":
		r.notes.Add(n.line, "node %s: a bridge of the machine becomes a switch of the network: what else the machine "+
			"has on that bridge is not joined", n.name)
		return "switches"
	case "host", "ext-container", "k8s-kind":
		r.notes.Add(n.line, "node %s: kind %s is not carried over: what is outside of the network is reached by edges "+
			"(docs/edges.md)", n.name, n.kind)
		return ""
	}
	r.notes.Add(n.line, "node %s: there is no %s here; it becomes a router without routing protocols (ospf, bgp and "+
		"others give it FRR)", n.name, n.kind)
	if v := n.get("startup-config"); v != nil {
		r.notes.Add(v.Line, "node %s: a configuration of %s is not carried over", n.name, n.kind)
	}
	n.kind = ""
	return "routers"
}

func (r *reader) limits(n *node, said *lab.Map) {
	if v := n.get("memory"); v != nil {
		if size, ok := memory(v.Text); ok {
			said.Set("memory", lab.Raw(size))
		} else {
			r.notes.Add(v.Line, "node %s: the memory %q is not understood", n.name, v.Text)
		}
	}
	if v := n.get("cpu"); v != nil {
		if f, err := strconv.ParseFloat(v.Text, 64); err == nil && f >= 0.01 && f <= 4096 {
			said.Set("cpu", lab.Raw(strconv.FormatFloat(f, 'f', -1, 64)))
		} else {
			r.notes.Add(v.Line, "node %s: %q is no number of cores", n.name, v.Text)
		}
	}
}

var sizeForm = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*(b|kib|kb|mib|mb|gib|gb)?\s*$`)

// memory is a size as files have it. kb, mb and gb are powers of 1000 there.
func memory(text string) (string, bool) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	number, err := strconv.ParseFloat(m[1], 64)
	factor := map[string]float64{"": 1, "b": 1, "kib": 1 << 10, "kb": 1e3, "mib": 1 << 20, "mb": 1e6, "gib": 1 << 30,
		"gb": 1e9}[strings.ToLower(m[2])]
	if err != nil || number*factor < 8<<20 || number*factor > 64<<40 {
		return "", false
	}
	bytes := int64(number * factor)
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if bytes%unit.size == 0 {
			return strconv.FormatInt(bytes/unit.size, 10) + unit.name, true
		}
	}
	return strconv.FormatInt(bytes>>10, 10) + "KiB", true
}

// commands carries over what is run at the start: addresses and routes become the file's own, the rest is run.
func (r *reader) commands(n *node, said *lab.Map) *lab.Configured {
	c := r.configured[n.name]
	for _, p := range n.merged("sysctls") {
		if !c.Command(p.Line, "sysctl -w "+p.Key+"="+p.Value.String()) {
			r.start(n, said, p.Line, "sysctl -w "+p.Key+"="+p.Value.String())
		}
	}
	for _, line := range n.all("exec") {
		if !c.Command(line.Line, line.Text) {
			r.start(n, said, line.Line, strings.ReplaceAll(line.Text, "$$", "$"))
		}
	}
	if len(c.Gateways) == 1 {
		said.Set("gateway", c.Gateways[0])
	} else if len(c.Gateways) > 1 {
		said.Set("gateway", texts(c.Gateways))
	}
	if len(c.Routes) > 0 {
		said.Set("routes", texts(c.Routes))
	}
	return c
}

func (r *reader) start(n *node, said *lab.Map, line int, command string) {
	if r.words.Start {
		said.Append("start", command)
		return
	}
	r.notes.Add(line, "node %s: the command is not carried over: %s", n.name, command)
}

func texts(all []string) []any {
	return each.Of(all, func(s string) any { return s })
}

// files carries over what is put into the node: routing software's configuration, and other files where they can be.
func (r *reader) files(n *node, said *lab.Map, is string) {
	software := map[string]string{"frr": "/etc/frr/frr.conf", "bird": "/etc/bird/bird.conf"}[n.kind]
	if v := n.get("startup-config"); v != nil && n.kind == "frr" {
		r.config(n, said, v)
	}
	for _, b := range n.all("binds") {
		from, to, _ := strings.Cut(b.Text, ":")
		to, _, _ = strings.Cut(to, ":")
		local := localPath(from)
		switch {
		case to == "":
			r.notes.Add(b.Line, "node %s: the volume %s is not carried over: what is written in an element is kept "+
				"with it", n.name, from)
		case is == "routers" && to == software, is == "routers" && software != "" && to == path.Join(path.Dir(software),
			"/"):
			if to != software {
				local = path.Join(local, path.Base(software))
			}
			if said.Get("config") == nil {
				r.configFile(n, said, b.Line, local)
			}
		case is == "routers" && software != "" && (to == "/etc/frr/daemons" || to == "/etc/frr/vtysh.conf"):
			// Which daemons run follows from the configuration.
		case strings.HasPrefix(from, "__clab"), strings.Contains(from, "$"):
			r.notes.Add(b.Line, "node %s: the bind of %s is not carried over: its path is containerlab's own",
				n.name, from)
		case r.words.Files && isMachines(to):
			r.notes.Add(b.Line, "node %s: the file %s is not put at %s: elements see the machine's own there", n.name,
				from, to)
		case r.words.Files:
			said.Child("files").Set(to, local)
		default:
			r.notes.Add(b.Line, "node %s: the file %s is not put at %s", n.name, from, to)
		}
	}
	switch v := n.get("image"); {
	case v == nil:
	case software != "" && is == "routers":
		or := ""
		if r.words.Image {
			or = "; add image: " + v.Text + " for that"
		}
		r.notes.Add(v.Line, "node %s: it runs the node's own %s, not the image %s%s", n.name,
			strings.ToUpper(n.kind), v.Text, or)
		if n.kind == "bird" {
			said.Set("software", "bird")
		} else if said.Get("config") == nil {
			said.Set("software", "frr")
		}
	case r.words.Image && is == "hosts":
		said.Set("image", v.Text)
	case n.kind != "":
		r.notes.Add(v.Line, "node %s: it has the programs of its node, not the image %s", n.name, v.Text)
	}
}

// isMachines returns whether elements see the machine's files at a path, the kernel's, or what is in memory.
func isMachines(at string) bool {
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/run",
		"/var/run", "/tmp"}, func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") })
}

// localPath is a path of the machine as files have it: relative to the file.
func localPath(from string) string {
	if path.IsAbs(from) || strings.HasPrefix(from, "~") || strings.HasPrefix(from, "./") ||
		strings.HasPrefix(from, "../") {
		return from
	}
	return "./" + from
}

// config carries over a router's configuration, which is text or a file's path.
func (r *reader) config(n *node, said *lab.Map, v *lab.Node) {
	switch {
	case strings.Contains(v.Text, "\n"):
		said.Set("config", v.Text)
		r.readAddresses(n, v.Line, v.Text)
	case strings.Contains(v.Text, "://"):
		r.notes.Add(v.Line, "node %s: the configuration at %s is not fetched", n.name, v.Text)
	default:
		r.configFile(n, said, v.Line, localPath(v.Text))
	}
}

func (r *reader) configFile(n *node, said *lab.Map, line int, file string) {
	m := &lab.Map{}
	m.Set("file", file)
	said.Set("config", m)
	if r.read == nil {
		return
	}
	data, err := r.read(file)
	if err != nil {
		r.notes.Add(line, "node %s: its configuration cannot be read: %v", n.name, err)
		return
	}
	if n.kind == "frr" {
		r.readAddresses(n, line, string(data))
	}
}

// readAddresses takes the interfaces' addresses from FRR's configuration, so that polyplane knows them as well.
func (r *reader) readAddresses(n *node, at int, text string) {
	c, device := r.configured[n.name], ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) >= 2 && words[0] == "interface":
			device = words[1]
		case len(words) == 3 && (words[0] == "ip" || words[0] == "ipv6") && words[1] == "address" && device != "lo" &&
			device != "":
			c.Command(at, "ip address add "+words[2]+" dev "+device)
		case len(words) > 0 && (words[0] == "exit" || words[0] == "router" || words[0] == "!"):
			device = ""
		}
	}
}

func (r *reader) variables(n *node, said *lab.Map) {
	for _, p := range n.merged("env") {
		switch {
		case strings.HasPrefix(p.Key, "__"), strings.Contains(p.Value.String(), "${"):
			r.notes.Add(p.Line, "node %s: the variable %s is not carried over: its value is containerlab's to "+
				"find", n.name, p.Key)
		case r.words.Env:
			said.Child("env").Set(p.Key, p.Value.String())
		default:
			r.notes.Add(p.Line, "node %s: the variable %s is not carried over", n.name, p.Key)
		}
	}
}
