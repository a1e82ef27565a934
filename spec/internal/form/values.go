package form

import (
	"net/netip"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
)

// The types below take short forms: the decoder knows each of them.

// Prefixes is one prefix or several, as a list or with commas between.
type Prefixes []netip.Prefix

// Loopbacks is one address or several, with or without a prefix length.
type Loopbacks []netip.Prefix

// Addrs is one address or several, as a list or with commas between.
type Addrs []netip.Addr

// Words is one word or several, as a list or with commas between.
type Words []string

// Forwards are forwarded ports, as a list or with commas between.
type Forwards []model.Forward

// Area is an OSPF area in dotted form; a number is read as well.
type Area string

// RouteTo is a route's destination; an invalid prefix stands for "default", whose family the next hop tells.
type RouteTo struct {
	Prefix  netip.Prefix
	Default bool
}

// Item is one named thing with its place in the file.
type Item[T any] struct {
	Name  string
	Said  string // the name as it is written: a range, where this is one of many
	Value T
	Key   ast.Node
	Node  ast.Node // nil in the short form
}

// Routers are a list of names or a mapping.
type Routers []Item[Router]

// Hosts are a list of names or a mapping.
type Hosts []Item[Host]

// Switches are a list of names or a mapping.
type Switches []Item[Switch]

// VRFs are a mapping.
type VRFs []Item[VRF]

// Interfaces are a mapping.
type Interfaces []Item[Interface]

// Edges are a mapping.
type Edges []Item[Edge]

// Links are a list, or one shape.
type Links []Link

// Link is one entry of the list of links.
type Link struct {
	A, B  End
	Entry int      // which entry of the list it is, or comes of
	Text  string   // the ends, or the shape, as they are written
	Shape []string // the words of a shape, which stands for many links
	Value LinkValue
	Key   ast.Node
	Node  ast.Node // what stands behind the ends; nil where nothing does
}

// End is an element and perhaps its interface.
type End struct{ Element, Interface string }

// Expect is one expectation.
type Expect struct {
	Value model.Expectation
	Node  ast.Node
}

// VRRPs is one virtual router, or a list of them.
type VRRPs []VRRP

// Priorities are a mapping: priorities by the names of routers.
type Priorities map[string]int

// Labels is one label or several, as a list or with commas between.
type Labels []int

// Neighbors are a list of sessions, or a mapping of what is said of those that follow from links.
type Neighbors struct {
	List []Neighbor
	By   []Item[Toward]
}

// None tells whether nothing is said.
func (n Neighbors) None() bool { return n.List == nil && n.By == nil }

// PrefixLists are a mapping: prefixes with their lengths, by the name of the list.
type PrefixLists map[string][]string

// VLANs are a mapping: prefixes, by the VLAN's number.
type VLANs map[string]Prefixes

// Policies are a mapping.
type Policies map[string][]PolicyRule

// Communities is one community or several, as a list or with commas between.
type Communities []string

// Config is the software's configuration by file name; "" stands for the software's main file.
type Config []Item[ConfigText]

// ConfigText is text, or where to read it.
type ConfigText struct {
	Text string
	File string
}
