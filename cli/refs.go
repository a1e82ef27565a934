package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// ref names an object: a network, an element of it or an element's interface. The network is called as the manager
// calls it: the title of one's own, OWNER/TITLE of others'.
type ref struct {
	network, element, iface string
}

func (r ref) id() model.ID         { return model.ID{Network: r.network, Element: r.element} }
func (r ref) portID() model.PortID { return model.PortID{ID: r.id(), Interface: r.iface} }

// refs reads what users type: [OWNER/]NET, [OWNER/]NET/ELEMENT or [OWNER/]NET/ELEMENT:IF. Names of interfaces may
// contain slashes and dots ("ge-0/0/1"), so the parts are split from the left. Which networks there are only the
// manager can tell; it is asked once. If it does not answer, what was typed is taken as it is: the command that follows
// will say that there is no manager.
type refs struct {
	c     *CLI
	ctx   context.Context
	cl    Client
	names *model.Names
	user  string            // whose own networks are called by their titles
	keys  map[string]string // the networks' names within the instance, by what they are called
}

func (c *CLI) refs(ctx context.Context) *refs { return &refs{c: c, ctx: ctx} }

// asTyped reads what users type without asking anybody.
func asTyped() *refs { return &refs{names: model.Asker{}.Among(nil)} }

// known are the networks that there are, by what they are called.
func (r *refs) known() *model.Names {
	if r.names != nil {
		return r.names
	}
	r.names, r.keys = model.Asker{}.Among(nil), map[string]string{}
	cl, err := r.c.connect()
	if err != nil {
		return r.names
	}
	list, err := cl.NetworkNames(r.ctx)
	if err != nil {
		return r.names
	}
	r.cl = cl
	all := make([]model.NetworkName, len(list.Networks))
	for i, n := range list.Networks {
		all[i] = model.NetworkName{Key: n.Name, Owner: n.Owner, Title: n.Title}
		r.keys[n.Name] = n.Key
	}
	r.user = list.User
	r.names = model.Asker{Name: list.User, Only: list.Only}.Among(all)
	return r.names
}

// network reads [OWNER/]NET. If there is no such network, it returns what was typed: the look-up that follows says
// which networks there are.
func (r *refs) network(s string) (string, error) {
	switch parts := strings.Split(s, "/"); {
	case strings.Contains(s, ":"), len(parts) > 2, parts[len(parts)-1] == "":
		return s, usageError(nil, "%q is not a network: NET or OWNER/NET is expected, such as lab or ann/lab", s)
	}
	is, err := r.known().Find(s)
	if _, ok := errors.AsType[*model.SeveralError](err); ok {
		return s, refused(err)
	}
	if err != nil {
		return s, nil
	}
	return is.Key, nil
}

// key is the network's name within the instance, as directories are named.
func (r *refs) key(network string) string {
	r.known()
	return cmp.Or(r.keys[network], network)
}

// networks does what network does, for several.
func (r *refs) networks(all []string) ([]string, error) {
	out := make([]string, len(all))
	for i, s := range all {
		var err error
		if out[i], err = r.network(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// split splits what was typed into the names before the colon and the interface behind it.
func split(s string) (names []string, iface string, err error) {
	before, iface, hasInterface := strings.Cut(s, ":")
	names = strings.Split(before, "/")
	bad := len(names) > 3 || hasInterface && iface == ""
	for i, name := range names {
		bad = bad || name == "" && (i > 0 || len(names) == 1) // /NET is a network that nobody owns
	}
	switch {
	case len(names) == 1 && (bad || hasInterface):
		return nil, "", fmt.Errorf("%q names nothing: NET, NET/ELEMENT or NET/ELEMENT:IF is expected", s)
	case bad:
		return nil, "", fmt.Errorf("%q names nothing: NET/ELEMENT or NET/ELEMENT:IF is expected, such as lab/r1 or "+
			"lab/r1:eth0; of another owner's network OWNER/NET/ELEMENT", s)
	}
	return names, iface, nil
}

// any reads the name of any object. A/B may be the element or link B of network A, and also network B of an owner A:
// then it is refused.
func (r *refs) any(s string) (ref, error) {
	names, iface, err := split(s)
	if err != nil || names[0] == nodeWord && len(names) == 2 {
		return ref{names0(names), last(names, 1), iface}, err
	}
	switch {
	case len(names) == 1:
		network, err := r.network(names[0])
		return ref{network: network}, err
	case len(names) == 3 || iface != "":
		return r.below(names, iface)
	}
	owned, wrong := r.known().Find(s)
	of, err := r.below(names, "")
	if wrong != nil {
		return of, err
	}
	if err == nil && r.has(of) {
		return ref{}, refused(fmt.Errorf("%s may be element or link %s of network %s, or %s's network %s: say %s, or "+
			"rename one of them", s, names[1], of.network, names[0], names[1], r.fully(of)))
	}
	return ref{network: owned.Key}, nil
}

// fully returns an element's name with the owner of its network in front.
func (r *refs) fully(of ref) string {
	is, err := r.known().Find(of.network)
	if err != nil || is.Owner == "" {
		return of.id().String()
	}
	return is.Owner + "/" + is.Title + "/" + of.element
}

// has tells whether a network has such an element or link.
func (r *refs) has(of ref) bool {
	if r.cl == nil {
		return false
	}
	if _, err := r.known().Find(of.network); err != nil {
		return false
	}
	all, err := objects(r.ctx, r.cl, of.network)
	return err == nil && slices.Contains(all, of.element)
}

// below reads the names of an element: its network, perhaps with an owner before it, and itself.
func (r *refs) below(names []string, iface string) (ref, error) {
	element := names[len(names)-1]
	network, err := r.network(strings.Join(names[:len(names)-1], "/"))
	return ref{network, element, iface}, err
}

func names0(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func last(names []string, at int) string {
	if len(names) <= at {
		return ""
	}
	return names[at]
}

// element reads [OWNER/]NET/ELEMENT.
func (r *refs) element(s string) (model.ID, error) {
	names, iface, err := split(s)
	if err != nil || len(names) == 1 || iface != "" {
		return model.ID{}, usageError(nil, "%q is not an element: NET/ELEMENT is expected, such as lab/r1", s)
	}
	of, err := r.below(names, "")
	return of.id(), err
}

// elementOrPort reads [OWNER/]NET/ELEMENT[:IF].
func (r *refs) elementOrPort(s string) (ref, error) {
	names, iface, err := split(s)
	if err == nil && len(names) == 1 {
		err = fmt.Errorf("%q is a network", s)
	}
	if err != nil {
		return ref{}, err
	}
	return r.below(names, iface)
}

// port reads [OWNER/]NET/ELEMENT:IF.
func (r *refs) port(s string) (model.PortID, error) {
	names, iface, err := split(s)
	if err != nil || iface == "" {
		return model.PortID{}, usageError(nil,
			"%q is not an interface: NET/ELEMENT:IF is expected, such as lab/r1:eth0", s)
	}
	of, err := r.below(names, iface)
	return of.portID(), err
}
