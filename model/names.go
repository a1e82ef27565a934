package model

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net"
	"strings"
)

// MaxName limits the length of the names of networks, elements, interfaces and edges. MaxLinkName does so for links,
// whose default names are made of two.
const (
	MaxName     = 63
	MaxLinkName = 2*MaxName + 8
)

// CheckName tells what is wrong with a network's, an element's or an edge's name; nil when it is valid: letters,
// digits, "_", "." and "-", beginning with a letter or a digit, at most MaxName of them, and not lo, all or default,
// which Linux keeps for itself where interfaces are named after elements.
func CheckName(name string) error {
	if err := checkChars(name, MaxName, "_.-"); err != nil {
		return err
	}
	switch name {
	case "lo", "all", "default":
		return fmt.Errorf("the name %q is Linux's own; choose another", name)
	}
	return nil
}

// CheckLinkName is CheckName for links.
func CheckLinkName(name string) error { return checkChars(name, MaxLinkName, "_.-") }

// CheckInterfaceName is CheckName for interfaces, which may also have "/" and ":" in them (ge-0/0/1, et-0/0/1:0).
func CheckInterfaceName(name string) error {
	if err := checkChars(name, MaxName, "_.-/:"); err != nil {
		return err
	}
	switch last := name[len(name)-1]; {
	case name == "lo", name == "all", name == "default":
		return fmt.Errorf("the interface name %q is Linux's own; choose another", name)
	case last == '/' || last == ':':
		return fmt.Errorf("the interface name %q ends with %q; interface names end with a letter or a digit", name,
			last)
	}
	return nil
}

func checkChars(name string, limit int, marks string) error {
	if name == "" {
		return fmt.Errorf("the name is empty")
	}
	if len(name) > limit {
		return fmt.Errorf("the name %q is %d characters long, %d are allowed", name[:20]+"…", len(name), limit)
	}
	for i, c := range name {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case alnum, i > 0 && strings.ContainsRune(marks, c):
		case i == 0:
			return fmt.Errorf("the name %q begins with %q; names begin with a letter or a digit", name, c)
		default:
			return fmt.Errorf("the name %q has %q in it; letters, digits and %s are allowed", name, c,
				strings.Join(strings.Split(marks, ""), " "))
		}
	}
	return nil
}

// linuxDevices are names that some other thing may already have: a new network namespace's own devices (fallback
// tunnels), or files of sysfs and /proc/sys/net.
var linuxDevices = map[string]bool{
	"lo": true, "all": true, "default": true, "bonding_masters": true, "tunl0": true, "sit0": true, "ip6tnl0": true,
	"gre0": true, "gretap0": true, "erspan0": true, "ip6gre0": true, "ip_vti0": true, "ip6_vti0": true,
}

// maxDevice is what fits into IFNAMSIZ (16) with its NUL.
const maxDevice = 15

// DeviceName is what Linux calls the interface inside its element: the name itself where Linux takes it (at most 15
// characters, no "/" or ":"), else an alias that only depends on the name: its beginning, with "-" for what Linux
// refuses, and five characters of a hash ("ge-0/0/1" is "ge-0-0-1-hnxqk"). Validate refuses the unlikely element of
// which two interfaces would have the same.
func DeviceName(name string) string {
	if len(name) <= maxDevice && !strings.ContainsAny(name, "/: \t\n%") && !linuxDevices[name] &&
		strings.Trim(name, ".") != "" {
		return name
	}
	h := sha256.Sum256([]byte(name))
	tail := "-" + strings.ToLower(base32.StdEncoding.EncodeToString(h[:])[:5])
	head := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, name)
	return head[:min(len(head), maxDevice-len(tail))] + tail
}

// MAC derives an interface's address from its names: always the same, unicast and locally administered.
func MAC(p PortID) string {
	h := sha256.Sum256([]byte(p.Network + "\x00" + p.Element + "\x00" + p.Interface))
	h[0] = h[0]&^1 | 2
	return net.HardwareAddr(h[:6]).String()
}
