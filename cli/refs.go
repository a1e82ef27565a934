package cli

import (
	"fmt"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// ref names an object as users type it: NET, NET/ELEMENT or NET/ELEMENT:IF. Names of interfaces may contain slashes and
// dots ("ge-0/0/1"), so the parts are split from the left.
type ref struct {
	network, element, iface string
}

func (r ref) id() model.ID         { return model.ID{Network: r.network, Element: r.element} }
func (r ref) portID() model.PortID { return model.PortID{ID: r.id(), Interface: r.iface} }

func parseRef(s string) (ref, error) {
	var r ref
	network, rest, hasElement := strings.Cut(s, "/")
	r.network = network
	if network == "" || strings.Contains(network, ":") {
		return r, fmt.Errorf("%q names nothing: NET, NET/ELEMENT or NET/ELEMENT:IF is expected", s)
	}
	if !hasElement {
		return r, nil
	}
	element, iface, hasInterface := strings.Cut(rest, ":")
	r.element, r.iface = element, iface
	if element == "" || strings.Contains(element, "/") || hasInterface && iface == "" {
		return r, fmt.Errorf("%q names nothing: NET/ELEMENT or NET/ELEMENT:IF is expected, such as lab/r1 or "+
			"lab/r1:eth0", s)
	}
	return r, nil
}

// elementRef reads NET/ELEMENT.
func elementRef(s string) (model.ID, error) {
	r, err := parseRef(s)
	if err != nil || r.element == "" || r.iface != "" {
		return model.ID{}, usageError(nil, "%q is not an element: NET/ELEMENT is expected, such as lab/r1", s)
	}
	return r.id(), nil
}

// portRef reads NET/ELEMENT:IF.
func portRef(s string) (model.PortID, error) {
	r, err := parseRef(s)
	if err != nil || r.iface == "" {
		return model.PortID{}, usageError(nil,
			"%q is not an interface: NET/ELEMENT:IF is expected, such as lab/r1:eth0", s)
	}
	return r.portID(), nil
}
