package model

import "strings"

// ID names one element of one network: "net/element". Where people call the network OWNER/TITLE, that is its name here.
type ID struct {
	Network string
	Element string
}

func (id ID) String() string {
	if id.Element == "" {
		return id.Network // the network as a whole
	}
	return id.Network + "/" + id.Element
}

// MarshalText makes an ID one word in JSON, as a value and as a key.
func (id ID) MarshalText() ([]byte, error) {
	s := id.String()
	if id.Element == "" && strings.Contains(s, "/") {
		s += "/" // else it would be an element
	}
	return []byte(s), nil
}

// UnmarshalText reads what MarshalText wrote. Elements' names have no slash in them.
func (id *ID) UnmarshalText(b []byte) error {
	*id = ID{Network: string(b)}
	if at := strings.LastIndexByte(id.Network, '/'); at >= 0 {
		id.Network, id.Element = id.Network[:at], id.Network[at+1:]
	}
	return nil
}

// PortID names one interface of one element: "net/element:interface".
type PortID struct {
	ID
	Interface string
}

func (p PortID) String() string { return p.ID.String() + ":" + p.Interface }

// MarshalText makes a PortID one word in JSON, as a value and as a key.
func (p PortID) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *PortID) UnmarshalText(b []byte) error {
	id, ifc, _ := strings.Cut(string(b), ":")
	p.Interface = ifc
	return p.ID.UnmarshalText([]byte(id))
}
