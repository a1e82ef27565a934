package model

import (
	"fmt"
	"net/netip"
	"regexp"
	"time"
)

// Role is what a user may do.
type Role string

const (
	RoleAdmin  Role = "admin"  // everything
	RoleOwner  Role = "owner"  // everything with networks of their own, which are all that they see
	RoleViewer Role = "viewer" // see everything, change nothing, and look into no element
)

// Roles are the known ones.
var Roles = []Role{RoleAdmin, RoleOwner, RoleViewer}

// Token is what is told of a token. A host's token lets it join as a node, once. A user's token may be used until it
// expires.
type Token struct {
	ID string `json:"id"`
	// User and Role say whose token it is; a host's has neither.
	User string `json:"user,omitempty"`
	Role Role   `json:"role,omitempty"`
	// Node is the only node that the host may join as, even where there is one of that name already. Without it the
	// host may join under any new name.
	Node    string    `json:"node,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // never when zero
	Used    time.Time `json:"used,omitzero"`    // a host's: it has joined
	UsedBy  string    `json:"usedBy,omitempty"` // the node that it joined as
	Revoked time.Time `json:"revoked,omitzero"`
}

// Unusable says, in words, why the token no longer opens anything. It is empty while the token does.
func (t *Token) Unusable(now time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "was revoked at " + stamp(t.Revoked)
	case !t.Used.IsZero():
		return fmt.Sprintf("was used at %s, by node %s; it is good for one joining", stamp(t.Used), t.UsedBy)
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return "expired at " + stamp(t.Expires)
	}
	return ""
}

// Ended is when the token ceased to open anything; zero while it does.
func (t *Token) Ended(now time.Time) time.Time {
	switch {
	case !t.Revoked.IsZero():
		return t.Revoked
	case !t.Used.IsZero():
		return t.Used
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return t.Expires
	}
	return time.Time{}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// TokenRequest asks for a token. Without User it is a host's.
type TokenRequest struct {
	User string `json:"user,omitempty"`
	Role Role   `json:"role,omitempty"`
	Node string `json:"node,omitempty"`
	// TTL is how long the token is good for: DefaultHostTTL or DefaultUserTTL when zero, for ever when negative (users'
	// only).
	TTL time.Duration `json:"ttl,omitempty"`
}

// How long tokens are good for where nobody says it. MaxHostTTL is the most for hosts' tokens.
const (
	DefaultHostTTL = time.Hour
	MaxHostTTL     = 30 * 24 * time.Hour
	DefaultUserTTL = 365 * 24 * time.Hour
)

// TokenResult is a new token. Text is told this once only.
type TokenResult struct {
	Token
	Text string `json:"text"`
	// Servers are the addresses of the manager, HOST:PORT, the best one first.
	Servers []string `json:"servers"`
}

// Machine is what a host says of itself.
type Machine struct {
	Name    string     `json:"name"`
	CPU     CPU        `json:"cpu"`
	Memory  Bytes      `json:"memory"`
	Address netip.Addr `json:"address"` // in the underlay
	MTU     int        `json:"mtu"`     // of the underlay
	// Bandwidth is what the host can send into the underlay, and receive from it. Zero says that it is not known.
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
	Location  string    `json:"location,omitempty"`
}

var machineWord = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckNodeName tells what is wrong with a node's name: it is a DNS label (RFC 1123) in lower case.
func CheckNodeName(name string) error {
	if !machineWord.MatchString(name) {
		return fmt.Errorf("%q cannot be a node's name: use lower-case letters, digits and '-', at most 63, such as "+
			"rio-1", name)
	}
	return nil
}

// MaxMachine bounds what a host may claim to be: cores, bits a second, memory in bytes, and the MTU of IPv4 (RFC 791).
const (
	MaxMachineCPU       CPU       = 65_536_000
	MaxMachineBandwidth Bandwidth = 1e15
	MaxMachineMemory    Bytes     = 1 << 50

	minMachineMTU = 1280
	maxMachineMTU = 65535
)

// Validate tells what cannot be true of a host's account of itself.
func (m Machine) Validate() error {
	if err := CheckNodeName(m.Name); err != nil {
		return err
	}
	switch {
	case m.CPU < MinCPU:
		return fmt.Errorf("node %s has %s cores; at least %s are needed", m.Name, m.CPU, MinCPU)
	case m.CPU > MaxMachineCPU:
		return fmt.Errorf("node %s says that it has %s cores; no machine has more than %s", m.Name, m.CPU,
			MaxMachineCPU)
	case m.Bandwidth > MaxMachineBandwidth:
		return fmt.Errorf("node %s says that it sends %s; nothing sends more than %s", m.Name, m.Bandwidth,
			MaxMachineBandwidth)
	case m.Memory < MinMemory || m.Memory > MaxMachineMemory:
		return fmt.Errorf("node %s has %s of memory; at least %s are needed", m.Name, m.Memory, MinMemory)
	case !m.Address.Is4() || m.Address.IsLoopback() || m.Address.IsUnspecified() || m.Address.IsMulticast():
		return fmt.Errorf("node %s: %s is no address that other nodes could reach it at; an IPv4 address of one of "+
			"its devices was expected (--underlay)", m.Name, m.Address)
	case m.MTU < minMachineMTU || m.MTU > maxMachineMTU:
		return fmt.Errorf("node %s: its underlay's MTU is %d; from %d to %d were expected", m.Name, m.MTU,
			minMachineMTU, maxMachineMTU)
	case m.Location != "" && !machineWord.MatchString(m.Location):
		return fmt.Errorf("node %s: %q cannot be a location: use lower-case letters, digits and '-'", m.Name,
			m.Location)
	}
	return nil
}

// Node is the machine as a node of the substrate.
func (m Machine) Node() SubstrateNode {
	return SubstrateNode{Name: m.Name, Location: m.Location, CPU: m.CPU, Memory: m.Memory, Address: m.Address,
		MTU: m.MTU, Joined: true}
}

// JoinRequest is how a host asks to be a node. Token is the text of the token, and Request is its certificate request
// (PKCS #10). The name in Machine counts unless the token names the node.
type JoinRequest struct {
	Token   string  `json:"token"`
	Request []byte  `json:"request"`
	Machine Machine `json:"machine"`
}

// JoinResult is what a host gets.
type JoinResult struct {
	Instance string `json:"instance"` // the manager's
	Node     string `json:"node"`     // the host's name as a node
	// Certificate is the node's, followed by the authority's, in PEM.
	Certificate []byte `json:"certificate"`
}

// RenewRequest asks for a new certificate for the node that asks.
type RenewRequest struct {
	Request []byte `json:"request"`
}

// Member is a node that joined.
type Member struct {
	Machine
	Membership string    `json:"membership"` // given with each joining
	Joined     time.Time `json:"joined"`
}

// StoredToken is a token as it is kept: of its secret only the hash.
type StoredToken struct {
	Token
	Hash string `json:"hash"` // SHA-256, in hexadecimal digits
}

// Access is who may come in: what the store keeps of tokens and of the nodes that joined.
type Access struct {
	Tokens  []StoredToken `json:"tokens,omitempty"`
	Members []Member      `json:"members,omitempty"`
}

// Extend adds the nodes that joined to a substrate whose own nodes are real machines. All machines reach each other by
// the network that is there, so there is a link between every two. It has the bandwidth of the weaker end, and no limit
// where neither end states one. Links of one machine count one by one, although they share its device.
func Extend(s Substrate, members []Member) Substrate {
	if len(members) == 0 {
		return s
	}
	uplinks := map[string]Bandwidth{}
	nodes := append([]SubstrateNode(nil), s.Nodes...)
	for _, m := range members {
		nodes = append(nodes, m.Node())
		uplinks[m.Name] = m.Bandwidth
	}
	links := append([]SubstrateLink(nil), s.Links...)
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			links = append(links, SubstrateLink{A: a.Name, B: b.Name,
				Bandwidth: weaker(uplinks[a.Name], uplinks[b.Name])})
		}
	}
	return Substrate{Nodes: nodes, Links: links, Hook: s.Hook}
}

// weaker is the smaller of two bandwidths. Zero is a bandwidth that is not known.
func weaker(a, b Bandwidth) Bandwidth {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// NameList are the networks that a caller may name, as the caller calls them.
type NameList struct {
	// User is whose own networks come first, Only that there are no others for the caller.
	User     string          `json:"user,omitempty"`
	Only     bool            `json:"only,omitempty"`
	Networks []CalledNetwork `json:"networks"`
}

// CalledNetwork is what a network is called.
type CalledNetwork struct {
	Name  string `json:"name"` // what the caller calls it, and what answers call it
	Owner string `json:"owner,omitempty"`
	Title string `json:"title"`
	// Key is its name within the instance: that of directories, devices and metrics. Owners are not told it.
	Key string `json:"key,omitempty"`
}

// Whoami is who the manager takes a caller for.
type Whoami struct {
	Instance string `json:"instance"`
	User     string `json:"user,omitempty"` // empty for root on the manager's machine
	Role     Role   `json:"role"`
}
