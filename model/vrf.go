package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// VRF is a routing table of a router for some of its interfaces (virtual routing and forwarding): packets that come in
// by them are routed by it alone. So several customers of one router may have the same addresses.
type VRF struct {
	// Interfaces are by name. The others of the router are in none.
	Interfaces []string `json:"interfaces,omitempty"`
	// Gateways are the next hops of its default routes (one an address family).
	Gateways []netip.Addr `json:"gateways,omitempty"`
	Routes   []Route      `json:"routes,omitempty"`
	// OSPF and OSPF6 are what is spoken in it; RouterID is what the router is called there, if not as elsewhere.
	OSPF     *OSPF      `json:"ospf,omitempty"`
	OSPF6    *OSPF      `json:"ospf6,omitempty"`
	RouterID netip.Addr `json:"routerID,omitzero"`
}

// MaxVRFs is how many an element may have: each is a device.
const MaxVRFs = 256

// CheckVRF tells why a name is none that a VRF can have: it is a device inside the element, too.
func CheckVRF(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(name) > maxDevice {
		return fmt.Errorf("the VRF %q is a device in Linux, whose name has at most %d characters; rename it", name,
			maxDevice)
	}
	if DeviceName(name) != name {
		return fmt.Errorf("the VRF %q is a device in Linux, which keeps this name for itself; rename it",
			name)
	}
	return nil
}

// VRFNames are those of an element, sorted.
func (e ElementOf[I]) VRFNames() []string { return slices.Sorted(maps.Keys(e.VRFs)) }

// InVRFs is which VRF each interface is in that is in one.
func (e ElementOf[I]) InVRFs() map[string]string {
	in := map[string]string{}
	for _, v := range e.VRFNames() {
		for _, f := range e.VRFs[v].Interfaces {
			if _, twice := in[f]; !twice {
				in[f] = v
			}
		}
	}
	return in
}

// VRFOf is the VRF that an interface is in; empty if it is in none.
func (e ElementOf[I]) VRFOf(name string) string {
	for _, v := range e.VRFNames() {
		if slices.Contains(e.VRFs[v].Interfaces, name) {
			return v
		}
	}
	return ""
}

// Routing are the protocols that are spoken in it.
func (v VRF) Routing() Routing { return Routing{OSPF: v.OSPF, OSPF6: v.OSPF6} }

// InVRF is what an element is in one of its VRFs, as if it were an element by itself; with "" what it is in none.
func InVRF(e ResolvedElement, name string) ResolvedElement {
	if len(e.VRFs) == 0 {
		return e
	}
	e.Interfaces = slices.DeleteFunc(slices.Clone(e.Interfaces),
		func(f ResolvedInterface) bool { return f.VRF != name })
	if name != "" {
		v := e.VRFs[name]
		e.Loopback, e.Gateways, e.Routes, e.Routing = nil, v.Gateways, v.Routes, v.Routing()
		if v.RouterID.IsValid() {
			e.RouterID = v.RouterID
		}
	}
	e.VRFs = nil
	return e
}
