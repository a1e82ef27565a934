// Package lifecycle starts an instance on this machine, keeps it running, and ends it: `polyplane up` and `down`.
package lifecycle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
)

// Options are what `up` was told. Zero values were not given, and what is remembered counts.
type Options struct {
	Nodes    int                // simulated nodes; -1: this machine is the only node
	Topology substrate.Topology // of simulated nodes
	File     string             // a substrate file
	Etcd     Etcd
	// Listen and Advertise replace what is remembered, also by nothing, unless they are nil.
	Listen, Advertise *[]string
	Underlay          netip.Addr // this machine's address for other nodes
	Hook              model.Hook // of the underlay's devices
	LLDP              string     // on or off: whether nodes announce themselves on the underlay
}

// Etcd is an external cluster to keep the networks in. Without a URL the embedded store keeps them.
type Etcd struct {
	URLs string `json:"etcd,omitempty"` // separated by commas
	// CA, Cert and Key are PEM files: whom we trust, who we are.
	CA   string `json:"etcdCA,omitempty"`
	Cert string `json:"etcdCert,omitempty"`
	Key  string `json:"etcdKey,omitempty"`
}

// args are what a manager is told of it.
func (e Etcd) args() []string {
	var args []string
	for _, f := range [][2]string{{"--etcd", e.URLs}, {"--etcd-cacert", e.CA}, {"--etcd-cert", e.Cert},
		{"--etcd-key", e.Key}} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	return args
}

// HostOnly is Options.Nodes for this machine as the only node.
const HostOnly = -1

// settings are what an instance remembers in its data directory, so that `up` without arguments comes back to it.
type settings struct {
	Nodes    int                `json:"nodes,omitempty"` // as in Options; zero with a file
	Topology substrate.Topology `json:"topology,omitempty"`
	File     string             `json:"file,omitempty"` // the substrate file's text
	FileName string             `json:"fileName,omitempty"`
	Etcd
	// Listen are the addresses at which other machines are served, Advertise those by which they are told to come.
	Listen    []string `json:"listen,omitempty"`
	Advertise []string `json:"advertise,omitempty"`
	// Underlay is this machine's address for other nodes, where it was said.
	Underlay netip.Addr `json:"underlay,omitzero"`
	// Silent has nodes neither announce themselves on the underlay nor listen.
	Silent bool `json:"silent,omitempty"`
	// Joined is the instance that this machine is a node of; nil where the manager is here.
	Joined *Joined `json:"joined,omitempty"`
	// Substrate is what followed from these, with the nodes' addresses.
	Substrate model.Substrate `json:"substrate"`
}

func settingsFile(d instance.Dirs) string { return filepath.Join(d.Data, instance.SettingsFile) }

func readSettings(d instance.Dirs) (settings, bool, error) {
	var s settings
	b, err := os.ReadFile(settingsFile(d))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return settings{}, false, fmt.Errorf("%s is damaged (%w)", settingsFile(d), err)
	}
	return s, true, nil
}

// write replaces the file in one step, and syncs it to the disk.
func (s settings) write(d instance.Dirs) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(settingsFile(d), append(b, '\n'), 0o600)
}

// describe is the substrate in words.
func (s settings) describe() string {
	n := len(s.Substrate.Nodes)
	switch {
	case s.Joined != nil:
		return fmt.Sprintf("node %s of polyplane '%s' at %s", s.Joined.Machine.Name, s.Joined.Instance, s.Joined.Server)
	case s.File != "":
		return fmt.Sprintf("%s from %s", count(n, "simulated node"), s.FileName)
	case s.Nodes == HostOnly:
		return "this machine is the only node"
	case n > 1:
		return fmt.Sprintf("%s, %s", count(n, "simulated node"), s.Topology)
	}
	return count(n, "simulated node")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// given tells whether the options choose a substrate.
func (o Options) given() bool { return o.Nodes != 0 || o.Topology != "" || o.File != "" }

// silent tells whether nodes shall not speak LLDP.
func (o Options) silent(old settings) bool { return o.LLDP == "off" || o.LLDP == "" && old.Silent }

// OptionError is a choice of options that makes no sense, or a substrate file that cannot be used.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// RefusedError is a change that would take something away from under networks.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// decide works out the instance's new settings from what was given and what is remembered.
func decide(o Options, old settings, remembered bool, m substrate.Machine) (settings, error) {
	s, err := decideSubstrate(o, old, remembered, m)
	s.Substrate.Hook = cmp.Or(o.Hook, old.Substrate.Hook)
	s.Silent = o.silent(old)
	return s, err
}

func decideSubstrate(o Options, old settings, remembered bool, m substrate.Machine) (settings, error) {
	s := old
	var err error
	if s.Etcd, err = o.Etcd.over(old.Etcd); err != nil {
		return s, err
	}
	if m, err = s.reach(o, m); err != nil {
		return s, err
	}
	if !o.given() {
		if remembered {
			s.Substrate = seenAs(s.Substrate, m)
			return s, nil
		}
		o.Nodes = HostOnly
	}
	switch {
	case o.File != "" && (o.Nodes != 0 || o.Topology != ""):
		return s, errors.New("--substrate excludes --nodes and --topology: the file says what there is")
	case o.File != "":
		b, rerr := os.ReadFile(o.File)
		if rerr != nil {
			return s, fmt.Errorf("read the substrate file: %w", rerr)
		}
		s.Nodes, s.Topology, s.File, s.FileName = 0, "", string(b), filepath.Base(o.File)
		if s.Substrate, err = substrate.Parse(o.File, b, m); err == nil {
			err = checkAmounts(o.File, s.Substrate)
		}
	case o.Nodes == HostOnly && o.Topology != "":
		return s, errors.New("--topology needs --nodes: this machine alone has no links")
	case o.Nodes == HostOnly:
		s.Nodes, s.Topology, s.File, s.FileName = HostOnly, "", "", ""
		s.Substrate = substrate.Real(m)
		return s, nil
	default:
		if o.Nodes == 0 { // only the topology was given
			if o.Nodes = old.Nodes; o.Nodes < 1 {
				return s, errors.New("--topology needs --nodes: how many are to be joined?")
			}
		}
		if o.Topology == "" {
			if o.Topology = old.Topology; o.Topology == "" {
				o.Topology = substrate.Topologies[0]
			}
		}
		s.Nodes, s.Topology, s.File, s.FileName = o.Nodes, o.Topology, "", ""
		s.Substrate, err = substrate.Simulated(o.Nodes, o.Topology, m)
	}
	if err != nil {
		return s, err
	}
	s.Substrate, err = substrate.Number(s.Substrate, old.Substrate)
	return s, err
}

// over returns what was given, and for the rest what is remembered. Certificates belong to their cluster: they are
// remembered only with it.
func (e Etcd) over(old Etcd) (Etcd, error) {
	for _, path := range []*string{&e.CA, &e.Cert, &e.Key} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // the manager runs elsewhere
		if err != nil {
			return e, err
		}
		*path = absolute
	}
	if e.URLs != "" {
		return e, nil
	}
	given := e
	if e = old; given == (Etcd{}) {
		return e, nil
	}
	if e.URLs == "" {
		return e, errors.New("--etcd-cacert, --etcd-cert and --etcd-key need --etcd: which cluster are they for?")
	}
	e.CA, e.Cert, e.Key = cmp.Or(given.CA, e.CA), cmp.Or(given.Cert, e.Cert), cmp.Or(given.Key, e.Key)
	return e, nil
}

// checkAmounts refuses nodes that are too small for any element that asks for an amount.
func checkAmounts(file string, s model.Substrate) error {
	for _, n := range s.Nodes {
		switch {
		case n.CPU < model.MinCPU:
			return fmt.Errorf("%s: node %s has %s cores; state at least %s, or leave cpu out for its share of this "+
				"machine's", file, n.Name, n.CPU, model.MinCPU)
		case n.Memory < model.MinMemory:
			return fmt.Errorf("%s: node %s has %s of memory; state at least %s, or leave memory out for its share of "+
				"this machine's", file, n.Name, n.Memory, model.MinMemory)
		}
	}
	return nil
}

// simulated tells whether the nodes are namespaces.
func (s settings) simulated() bool {
	return len(s.Substrate.Nodes) > 0 && s.Substrate.Nodes[0].Simulated
}

// checkChange refuses to take away what existing networks stand on. Nodes and links may be added at any time. While
// there is no network, everything may change.
func checkChange(d instance.Dirs, old, next settings) error {
	if reflect.DeepEqual(old.Substrate, next.Substrate) && old.URLs == next.URLs {
		return nil
	}
	networks := map[string]bool{}
	on := map[string]int{}
	for _, n := range old.Substrate.Nodes {
		s, err := instance.NewDesired(d.Node(n.Name)).Read()
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		for _, w := range s.Networks {
			networks[w.Name] = true
			on[n.Name] += len(w.Elements)
		}
	}
	if len(networks) == 0 {
		return nil
	}
	problem := ""
	var lost []string
	for _, n := range old.Substrate.Nodes {
		if !slices.ContainsFunc(next.Substrate.Nodes, func(x model.SubstrateNode) bool {
			return x.Name == n.Name && x.Simulated == n.Simulated
		}) && on[n.Name] > 0 {
			lost = append(lost, fmt.Sprintf("%s with %s", n.Name, count(on[n.Name], "element")))
		}
	}
	for _, l := range old.Substrate.Links {
		if !slices.ContainsFunc(next.Substrate.Links, func(x model.SubstrateLink) bool {
			return x.A == l.A && x.B == l.B || x.A == l.B && x.B == l.A
		}) && problem == "" {
			problem = fmt.Sprintf("the link %s -- %s would go", l.A, l.B)
		}
	}
	switch {
	case old.URLs != next.URLs:
		problem = "another store would be used"
	case len(lost) > 0:
		problem = "node " + strings.Join(lost, ", node ") + " would go"
	}
	if problem == "" {
		return nil
	}
	names := make([]string, 0, len(networks))
	for n := range networks {
		names = append(names, n)
	}
	slices.Sort(names)
	shown := strings.Join(names, ", ")
	if len(names) > 5 {
		shown = fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), len(names)-5)
	}
	return &RefusedError{fmt.Sprintf("polyplane '%s' was %s, and networks stand on it (%s): with what you ask for, "+
		"%s. Run `%s` to come back to what was, and delete the networks before changing it; or start anew with `%s`",
		d.Name, old.describe(), shown, problem, instance.Command(d.Name, "up"),
		instance.Command(d.Name, "down --purge"))}
}

var instanceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// CheckName returns what is wrong with an instance's name.
func CheckName(name string) error {
	if !instanceName.MatchString(name) {
		return &OptionError{fmt.Errorf("%q cannot be an instance's name: use lower-case letters, digits and '-', at "+
			"most 32", name)}
	}
	return nil
}
