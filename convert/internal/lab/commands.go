package lab

import (
	"net/netip"
	"slices"
	"strings"
)

// Configured is what commands at an element's start say of its interfaces and routes, in the form that files have.
type Configured struct {
	Addresses map[string][]string // by interface
	Routes    []string
	Gateways  []string
	Forwards  bool // packets of others: it is a router
	// Lines are where interfaces' addresses were said first.
	Lines map[string]int
}

// Command takes in one command, and tells whether it is understood: the ip and sysctl of the usual labs. A line with
// more than one command in it is not. at is where it stands.
func (c *Configured) Command(at int, line string) bool {
	if strings.ContainsAny(line, "|&;<>$`'\"\\*") {
		return false
	}
	words := strings.Fields(line)
	switch {
	case len(words) > 1 && words[0] == "sysctl":
		return c.sysctl(words[1:])
	case len(words) > 2 && words[0] == "ip":
		return c.ip(at, words[1:])
	case len(words) == 3 && words[0] == "ifconfig" && words[2] == "up":
		return true
	}
	return false
}

func (c *Configured) sysctl(words []string) bool {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "-w" || w == "-q" })
	joined := strings.ReplaceAll(strings.Join(words, ""), "/", ".")
	switch joined {
	case "net.ipv4.ip_forward=1", "net.ipv4.conf.all.forwarding=1", "net.ipv6.conf.all.forwarding=1":
		c.Forwards = true
		return true
	case "net.ipv6.conf.all.disable_ipv6=0":
		return true
	}
	return false
}

func (c *Configured) ip(at int, words []string) bool {
	for len(words) > 0 && (words[0] == "-4" || words[0] == "-6") {
		words = words[1:]
	}
	if len(words) < 3 {
		return false
	}
	object, action, rest := words[0], words[1], words[2:]
	switch {
	case isWord(object, "link") && action == "set":
		if rest[0] == "dev" {
			rest = rest[1:]
		}
		return len(rest) == 2 && rest[1] == "up"
	case isWord(object, "address") && slices.Contains([]string{"add", "a", "replace"}, action):
		return c.address(at, rest)
	case isWord(object, "route") && slices.Contains([]string{"add", "a", "replace", "r"}, action):
		return c.route(rest)
	}
	return false
}

// isWord tells whether ip takes a word for another: it may be cut.
func isWord(given, word string) bool { return given != "" && strings.HasPrefix(word, given) }

func (c *Configured) address(at int, words []string) bool {
	if len(words) != 3 || words[1] != "dev" {
		return false
	}
	address, err := netip.ParsePrefix(words[0])
	if err != nil {
		return false
	}
	if words[2] == "lo" {
		return false
	}
	if c.Addresses == nil {
		c.Addresses, c.Lines = map[string][]string{}, map[string]int{}
	}
	if device := words[2]; !slices.Contains(c.Addresses[device], address.String()) {
		c.Addresses[device] = append(c.Addresses[device], address.String())
		c.Lines[device] = at
	}
	return true
}

func (c *Configured) route(words []string) bool {
	to := words[0]
	device, via := "", ""
	for i := 1; i < len(words); i += 2 {
		if i+1 >= len(words) {
			return false
		}
		switch words[i] {
		case "via":
			via = words[i+1]
		case "dev":
			device = words[i+1]
		default:
			return false
		}
	}
	hop, err := netip.ParseAddr(via)
	if err != nil || hop.Zone() != "" {
		return false
	}
	if to == "default" || to == "0.0.0.0/0" || to == "::/0" {
		if slices.ContainsFunc(c.Gateways, func(g string) bool { return strings.Contains(g, ":") == hop.Is6() }) {
			return false // a second one
		}
		c.Gateways = append(c.Gateways, hop.String())
		return true
	}
	if a, err := netip.ParseAddr(to); err == nil {
		to = netip.PrefixFrom(a, a.BitLen()).String()
	}
	prefix, err := netip.ParsePrefix(to)
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4() != hop.Is4() {
		return false
	}
	text := prefix.String() + " via " + hop.String()
	if device != "" && hop.IsLinkLocalUnicast() {
		text += " dev " + device
	}
	c.Routes = append(c.Routes, text)
	return true
}
