package software

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Output is what one command of Asking printed, and its exit status.
type Output struct {
	Text   string
	Status int
}

// Asking are the commands, run inside an element, by which its routing software says what a look asks. They change
// nothing. Whoever runs them bounds how long they take and how much they print: an element's root can put other
// programs in their places.
func Asking(s model.Software, look *model.Look) ([][]string, error) {
	switch s {
	case model.SoftwareFRR:
		return askFRR(look), nil
	case model.SoftwareBIRD:
		switch {
		case look.Protocol == "isis":
			return nil, fmt.Errorf("BIRD speaks no IS-IS")
		case look.What == model.KnownVirtual:
			return nil, fmt.Errorf("BIRD speaks no VRRP")
		}
		return askBIRD(look), nil
	}
	return nil, fmt.Errorf("it runs no routing software that could be asked")
}

// Answer is what the commands of Asking said.
func Answer(s model.Software, look *model.Look, out []Output) model.LookAnswer {
	answer := answerFRR
	if s == model.SoftwareBIRD {
		answer = answerBIRD
	}
	if look.What == model.KnownNeighbour {
		neighbours, _, err := answer(look, out)
		if err != nil {
			return model.LookAnswer{Error: err.Error()}
		}
		return judgeNeighbours(look, neighbours)
	}
	if look.What == model.KnownVirtual {
		virtual, err := frrVirtual(out)
		if err != nil {
			return model.LookAnswer{Error: err.Error()}
		}
		return judgeVirtual(look, virtual)
	}
	_, routes, err := answer(look, out)
	if err != nil {
		return model.LookAnswer{Error: err.Error()}
	}
	return JudgeRoutes(look, routes)
}

// neighbour is one neighbour of one protocol over one interface, or one session. What is not known is empty.
type neighbour struct {
	routerID, address, device, name string
	state                           string // in the words of model.NeighbourStates, where it is one of them
}

// Route is a route to the prefix that is looked for.
type Route struct{ Hops []Hop }

// Hop is a next hop: an address, an interface, or both.
type Hop struct{ Address, Device string }

func (h Hop) String() string {
	switch {
	case h.Address == "":
		return "on " + h.Device
	case h.Device == "":
		return "via " + h.Address
	}
	return "via " + h.Address + " on " + h.Device
}

const (
	// mostSeen is how much of what was seen is told.
	mostSeen     = 6
	mostSeenText = 300
)

func seen(all []string) string {
	if more := len(all) - mostSeen; more > 0 {
		all = append(slices.Clone(all[:mostSeen]), fmt.Sprintf("and %d more", more))
	}
	return Trouble([]byte(model.Shorten(strings.Join(all, ", "), mostSeenText)))
}

// judgeNeighbours looks for the neighbour that is meant. All that there is with it must be as expected: it may have
// several links with the router, or sessions of both families. What must not be must be nowhere.
func judgeNeighbours(look *model.Look, all []neighbour) model.LookAnswer {
	meant := each.That(all, func(n neighbour) bool { return isPeer(look.Peer, n) && ofFamilyOf(look, n) })
	so := len(meant) > 0
	if look.Not {
		so = true
	}
	var told []string
	for _, n := range meant {
		is := strings.EqualFold(n.state, look.State)
		if is == look.Not {
			so = false
		} else {
			continue // as it shall be
		}
		words := model.StateName(n.state)
		if at := firstOf(n.address, n.device); len(meant) > 1 && at != "" {
			words += " at " + at
		}
		told = append(told, words)
	}
	return model.LookAnswer{So: so, Seen: seen(told)}
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// ofFamilyOf tells whether a session is one of the family that is asked for.
func ofFamilyOf(look *model.Look, n neighbour) bool {
	if look.Family == model.AnyFamily {
		return true
	}
	a, err := netip.ParseAddr(n.address)
	v4 := err == nil && a.Is4() // where only an interface is known, it is an address of IPv6 that nobody stated
	return v4 == (look.Family == model.IPv4)
}

// isPeer tells whether it is the element that is looked for. Somebody's router identifier may be configured inside;
// what is alone at the other end of an interface is that element whatever it says of itself.
func isPeer(peer *model.LookedFor, n neighbour) bool {
	if peer == nil {
		return true
	}
	id, err := netip.ParseAddr(n.routerID)
	return err == nil && !id.IsUnspecified() && id == peer.RouterID || isAddressOf(peer, n.address) ||
		n.device != "" && slices.Contains(peer.Devices, n.device) ||
		n.name != "" && (n.name == peer.Name || peer.RouterID.Is4() && n.name == isisSystem(peer.RouterID))
}

func isAddressOf(peer *model.LookedFor, text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && slices.Contains(peer.Addresses, a.WithZone(""))
}

// JudgeRoutes looks for a route that leads by whom it shall.
func JudgeRoutes(look *model.Look, all []Route) model.LookAnswer {
	so := false
	var told []string
	for _, r := range all {
		if len(r.Hops) == 0 {
			told = append(told, "nowhere")
		}
		so = so || look.Peer == nil && !look.Via.IsValid()
		for _, h := range r.Hops {
			if text := h.String(); !slices.Contains(told, text) {
				told = append(told, text)
			}
			a, err := netip.ParseAddr(h.Address)
			switch {
			case look.Via.IsValid():
				so = so || err == nil && a.WithZone("") == look.Via
			case look.Peer != nil:
				so = so || isAddressOf(look.Peer, h.Address) || h.Device != "" &&
					slices.Contains(look.Peer.Devices, h.Device)
			}
		}
	}
	return model.LookAnswer{So: so != look.Not, Seen: seen(told)}
}
