package model

import (
	"fmt"
	"slices"
	"strings"
)

// Controls, Forwardings, Softwares, Hooks, RouteTypes, LinkStates, Addressings and SliceModes are the known values, in
// the order in which people are told of them.
var (
	Controls    = []Control{ControlNetns, ControlVM, ControlController}
	Forwardings = []Forwarding{ForwardGuest, ForwardRouter, ForwardBridge, ForwardOpenFlow, ForwardXDP}
	Softwares   = []Software{SoftwareFRR, SoftwareBIRD, SoftwareStatic, SoftwareNone}
	Hooks       = []Hook{HookAuto, HookTC, HookXDP}
	RouteTypes  = []RouteType{RouteUnicast, RouteBlackhole, RouteUnreachable, RouteProhibit}
	LinkStates  = []LinkState{LinkUp, LinkDown}
	Addressings = []Addressing{AddressingAuto, AddressingNone}
	SliceModes  = []SliceMode{Shared, Strict}
)

// Word is a type whose values are a few words. The reader of files, the JSON Schema and the completion of `set` have
// them from here.
type Word interface{ Words() []string }

func (Control) Words() []string       { return words(Controls) }
func (Forwarding) Words() []string    { return words(Forwardings) }
func (Software) Words() []string      { return words(Softwares) }
func (Hook) Words() []string          { return words(Hooks) }
func (AttackPolicy) Words() []string  { return words(AttackPolicies) }
func (RouteType) Words() []string     { return words(RouteTypes) }
func (LinkState) Words() []string     { return words(LinkStates) }
func (Addressing) Words() []string    { return words(Addressings) }
func (SliceMode) Words() []string     { return words(SliceModes) }
func (RestartPolicy) Words() []string { return words(RestartPolicies) }

func words[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// ForwardingsOf tells what may forward the packets of an element of this kind and control plane: the two axes' table.
func ForwardingsOf(k Kind, c Control) []Forwarding {
	switch {
	case k == Host && c == ControlController:
		return nil
	case k == Host:
		return []Forwarding{ForwardGuest}
	case c == ControlController:
		return []Forwarding{ForwardOpenFlow}
	case k == Switch:
		return []Forwarding{ForwardBridge, ForwardOpenFlow, ForwardXDP}
	default:
		return Forwardings
	}
}

// CheckAxes tells why an element of this kind cannot have this control and forwarding together, and what it can have.
func CheckAxes(k Kind, c Control, f Forwarding) error {
	if !slices.Contains(Controls, c) {
		return fmt.Errorf("control: %s is unknown; there are %s", c, Either(Controls))
	}
	if !slices.Contains(Forwardings, f) {
		return fmt.Errorf("forwarding: %s is unknown; there are %s", f, Either(Forwardings))
	}
	fit := ForwardingsOf(k, c)
	if slices.Contains(fit, f) {
		return nil
	}
	if len(fit) == 0 {
		return fmt.Errorf("a %s cannot have control: %s; it goes with netns or vm", k, c)
	}
	if k == Host {
		return fmt.Errorf("a host forwards nothing for others, so its forwarding is guest, not %s", f)
	}
	return fmt.Errorf("a %s with control: %s cannot have forwarding: %s; it goes with %s", k, c, f, Either(fit))
}

// Either reads "a, b or c".
func Either[T ~string](values []T) string {
	all := words(values)
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// ConfigFiles are the names of the configuration files that the software reads.
func ConfigFiles(s Software) []string {
	switch s {
	case SoftwareFRR:
		return []string{"daemons", "frr.conf", "vtysh.conf"}
	case SoftwareBIRD:
		return []string{"bird.conf"}
	}
	return nil
}
