package software

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// frrVRRP says in which virtual routers an element takes part at an interface. FRR finds the device that has a virtual
// router's addresses by its MAC address: the node makes it (package node/control/netns).
func frrVRRP(b *writer, p port) {
	for _, v := range p.vrrp {
		b.line(" vrrp %d version 3", v.ID)
		b.line(" vrrp %d priority %d", v.ID, v.Priority)
		b.line(" vrrp %d advertisement-interval %d", v.ID, milliseconds(v.Interval))
		b.line(" vrrp %d ip %s", v.ID, v.Address)
		if !v.Preempt {
			b.line(" no vrrp %d preempt", v.ID)
		}
	}
}

// virtual is a router's part in a virtual router, as FRR says it.
type virtual struct {
	Status    string
	Addresses []netip.Addr
}

// frrVirtual reads the answer to `show vrrp json`.
func frrVirtual(out []Output) (all []virtual, err error) {
	if out[0].Status != 0 {
		return nil, fmt.Errorf("vtysh ended with status %d: %s", out[0].Status,
			model.Shorten(Trouble([]byte(out[0].Text)), mostSeenText))
	}
	var said []struct{ V4 virtual }
	if text := []byte(out[0].Text); json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	for _, s := range said {
		if len(s.V4.Addresses) > 0 {
			all = append(all, s.V4)
		}
	}
	return all, nil
}

// judgeVirtual looks for the virtual router that is meant. All of them must be as expected where none is named.
func judgeVirtual(look *model.Look, all []virtual) model.LookAnswer {
	so, found := true, false
	var told []string
	for _, v := range all {
		if look.Via.IsValid() && !slices.Contains(v.Addresses, look.Via) {
			continue
		}
		found = true
		if strings.EqualFold(v.Status, look.State) == look.Not {
			so = false
			told = append(told, fmt.Sprintf("%s of %s", strings.ToLower(v.Status), v.Addresses[0]))
		}
	}
	if !found {
		return model.LookAnswer{So: look.Not, Seen: "no part in it"}
	}
	return model.LookAnswer{So: so, Seen: seen(told)}
}
