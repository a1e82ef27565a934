package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// AttackPolicy is what is done to an element that the node's watch finds attacking.
type AttackPolicy string

const (
	AttackTell       AttackPolicy = "tell"       // an event, and nothing else
	AttackQuarantine AttackPolicy = "quarantine" // its links are cut; it and its state are kept
	AttackStop       AttackPolicy = "stop"       // it is stopped, its files are kept
	AttackDelete     AttackPolicy = "delete"     // it is taken out of its network; its disk goes to the trash
)

// AttackPolicies are all of them, the mildest first.
var AttackPolicies = []AttackPolicy{AttackTell, AttackQuarantine, AttackStop, AttackDelete}

// Check tells what is wrong with the policy. It may be empty.
func (p AttackPolicy) Check() error {
	if p == "" || slices.Contains(AttackPolicies, p) {
		return nil
	}
	return fmt.Errorf("%q is no policy: %s was expected", string(p), Either(AttackPolicies))
}

// Policies are what administrators have set: by element, and under "" for the network. They come before what the file
// says.
type Policies map[string]AttackPolicy

// AttackPolicyOf tells which policy counts for an element, and who has set it. An administrator's comes before the
// file's, and the element's before the network's.
func AttackPolicyOf(network AttackPolicy, element string, own AttackPolicy, set Policies) (p AttackPolicy,
	administrator bool) {
	if p := cmp.Or(set[element], set[""]); p != "" {
		return p, true
	}
	return cmp.Or(own, network, AttackTell), false
}

// Incident is an attack that a node has answered at once, by cutting the element's links. What becomes of it is the
// manager's to decide: until it has (Override.Decided), the node keeps the links cut, also while the manager is away.
type Incident struct {
	At     time.Time    `json:"at"`
	Signal string       `json:"signal"`
	What   string       `json:"what"` // in words
	Policy AttackPolicy `json:"policy"`
}

// Restraint is what an administrator has decided about an element that its owner has since deleted or, without an
// element, about a whole network. It counts again when the owner makes the same again.
type Restraint struct {
	Owner       string       `json:"owner"`
	ID          ID           `json:"id"`
	Quarantined bool         `json:"quarantined,omitempty"`
	Reason      string       `json:"reason,omitempty"`
	Attack      AttackPolicy `json:"attack,omitempty"`
}

// PolicyRequest sets, or with an empty policy takes back, an administrator's policy of a network or one element of it.
type PolicyRequest struct {
	Element string       `json:"element,omitempty"`
	Attack  AttackPolicy `json:"attack"`
}

// PolicyView tells which policy counts for an element.
type PolicyView struct {
	ID            ID           `json:"id"`
	Owner         string       `json:"owner,omitempty"` // the network's, as Title is
	Title         string       `json:"title,omitempty"`
	Attack        AttackPolicy `json:"attack"`
	Administrator bool         `json:"administrator,omitempty"` // it was set by one; else the file's, or the default
	Quarantined   bool         `json:"quarantined,omitempty"`
	Reason        string       `json:"reason,omitempty"` // of the quarantine
}
