package model

import (
	"maps"
	"slices"
	"strings"
)

// Feature is something that a node may have a driver for, in the words of a document: "control: netns", "forwarding:
// xdp", "software: frr", "delay". The part before the colon is its field.
type Feature string

// Features that are not the value of a field.
const (
	FeatureDelay    Feature = "delay"    // of links, with jitter
	FeatureInternet Feature = "internet" // of edges
	FeatureRun      Feature = "run"      // what people have run in elements
	FeatureFiles    Feature = "files"    // that are put into elements
	FeatureRoutes   Feature = "routes"   // of elements, which planes of forwarding can follow
	FeatureEnter    Feature = "enter"    // elements' network namespaces, by planes of forwarding
	FeatureTrees    Feature = "trees"    // files that are put into them, and are kept apart from the document
	FeatureImage    Feature = "image"    // that elements are made from
	FeatureVRRP     Feature = "vrrp"     // by routers
	FeatureVLANs    Feature = "vlans"    // at switches' ports, and interfaces of routers and hosts for them
	FeatureMPLS     Feature = "mpls"     // of routers
	FeatureVRF      Feature = "vrfs"     // of routers
)

func (c Control) Feature() Feature    { return Feature("control: " + c) }
func (f Forwarding) Feature() Feature { return Feature("forwarding: " + f) }
func (h Hook) Feature() Feature       { return Feature("hook: " + h) }
func (s Software) Feature() Feature   { return Feature("software: " + s) }

// Field is the field of a document that asks for the feature.
func (f Feature) Field() string {
	field, _, _ := strings.Cut(string(f), ":")
	return field
}

// Value is the feature within its field.
func (f Feature) Value() string { return strings.TrimPrefix(string(f), f.Field()+": ") }

// Offer is what one driver of a node makes, and what it lacks for the rest.
type Offer struct {
	// Driver is the feature that chooses the driver.
	Driver Feature `json:"driver"`
	// Kinds are those of the elements that the driver is for; all when empty.
	Kinds []Kind `json:"kinds,omitempty"`
	// Makes are the features that it has besides, such as the software that runs in its elements.
	Makes []Feature `json:"makes,omitempty"`
	// Lacks are the features that the driver could have and this machine does not let it have, and why, in words. With
	// Driver among them it makes nothing.
	Lacks map[Feature]string `json:"lacks,omitempty"`
}

// OfferOf is the offer of a driver that makes one thing. err is what the machine lacks for it.
func OfferOf(driver Feature, err error, kinds ...Kind) Offers {
	o := Offer{Driver: driver, Kinds: kinds}
	if err != nil {
		o.Lacks = map[Feature]string{driver: err.Error()}
	}
	return Offers{o}
}

func (o *Offer) isFor(k Kind) bool { return len(o.Kinds) == 0 || slices.Contains(o.Kinds, k) }

// Offers are those of a node's drivers. If they say nothing at all about a field, whether the node has it is not known,
// and it may: an agent of another version may not know the field.
type Offers []Offer

// Lack says, in words, why a node with these offers cannot meet a want. It is empty when the node can, or does not
// tell.
func (all Offers) Lack(w Want) string {
	var beside []string // what there is instead
	told := false
	for i := range all {
		o := &all[i]
		switch {
		case o.Driver.Field() != w.Driver.Field():
			continue
		case o.Driver == w.Driver && o.isFor(w.Kind):
			return o.lack(w.Feature)
		case o.isFor(w.Kind) && o.Lacks[o.Driver] == "":
			beside = append(beside, o.Driver.Value())
		}
		told = true
	}
	return instead(w.Driver, told, beside)
}

// lack says why the driver does not have the feature.
func (o *Offer) lack(f Feature) string {
	if why := o.Lacks[o.Driver]; why != "" {
		return why
	}
	if f == o.Driver || slices.Contains(o.Makes, f) {
		return ""
	}
	if why := o.Lacks[f]; why != "" {
		return why
	}
	var beside []string
	told := false
	for _, m := range o.Makes {
		if m.Field() == f.Field() {
			told, beside = true, append(beside, m.Value())
		}
	}
	for l := range o.Lacks {
		told = told || l.Field() == f.Field()
	}
	return instead(f, told, beside)
}

// instead says what else there is of a feature's field where the feature is missing.
func instead(f Feature, told bool, beside []string) string {
	switch {
	case !told:
		return ""
	case len(beside) == 0:
		return "there is no " + f.Field() + " there"
	}
	slices.Sort(beside)
	return "there is " + f.Field() + ": " + strings.Join(slices.Compact(beside), ", ")
}

// Lacks are all features that drivers cannot have on the machine, and why.
func (all Offers) Lacks() map[Feature]string {
	lacks := map[Feature]string{}
	for _, o := range all {
		for f, why := range o.Lacks {
			if f != o.Driver {
				f += " with " + o.Driver
			}
			lacks[f] = why
		}
	}
	return lacks
}

// Barren says why a node with these offers can make no element at all. It is empty when the node can make some, or does
// not tell.
func (all Offers) Barren() string {
	why := ""
	for _, o := range all {
		if o.Driver.Field() != ControlNetns.Feature().Field() {
			continue
		}
		if o.Lacks[o.Driver] == "" {
			return ""
		}
		why = "it can make no elements: " + string(o.Driver) + ": " + o.Lacks[o.Driver]
	}
	return why
}

// Want is a feature that a network asks of the node that an element is on.
type Want struct {
	Feature Feature
	// Driver is the feature that chooses the driver which must have it.
	Driver Feature
	Kind   Kind // of the element
	// About and Name say what asks for it: the element itself, or one of its links or edges.
	About Subject
	Name  string
}

// Wants are what each element's node must offer, in the order of the elements.
func Wants(net *Resolved) [][]Want {
	wants, index := make([][]Want, len(net.Elements)), make(map[string]int, len(net.Elements))
	for i := range net.Elements {
		e := &net.Elements[i]
		index[e.Name] = i
		ask := func(driver, f Feature) {
			wants[i] = append(wants[i], Want{f, driver, e.Kind, AboutElement, e.Name})
		}
		if e.Control != "" {
			ask(e.Control.Feature(), e.Control.Feature())
		}
		if e.Forwarding != "" {
			ask(e.Forwarding.Feature(), e.Forwarding.Feature())
		}
		switch {
		case e.Kind == Router && slices.Contains([]Forwarding{ForwardXDP, ForwardRouter, ForwardBridge}, e.Forwarding):
			ask(e.Control.Feature(), FeatureRoutes)
		case e.Kind == Switch && e.Forwarding == ForwardBridge:
			ask(e.Control.Feature(), FeatureEnter)
		}
		if e.RunsRouting() && e.Image == "" { // else it is the image's
			ask(e.Control.Feature(), e.Software.Feature())
		}
		if e.IsServed() {
			ask(e.Control.Feature(), FeatureRun)
		}
		if len(e.Contents) > 0 {
			ask(e.Control.Feature(), FeatureFiles)
		}
		if e.HasTrees() {
			ask(e.Control.Feature(), FeatureTrees)
		}
		if e.Image != "" {
			ask(e.Control.Feature(), FeatureImage)
		}
		if slices.ContainsFunc(e.Interfaces, func(f ResolvedInterface) bool { return len(f.VRRP) > 0 }) {
			ask(e.Control.Feature(), FeatureVRRP)
		}
		switch {
		case !hasVLANs(e):
		case e.Kind == Switch:
			ask(e.Forwarding.Feature(), FeatureVLANs)
		default:
			ask(e.Control.Feature(), FeatureVLANs)
		}
		if len(e.MPLS) > 0 {
			ask(e.Control.Feature(), FeatureMPLS)
		}
		if len(e.VRFs) > 0 {
			ask(e.Control.Feature(), FeatureVRF)
		}
		if e.Forwarding == ForwardXDP && (e.Hook == HookTC || e.Hook == HookXDP) {
			ask(e.Forwarding.Feature(), e.Hook.Feature())
		}
	}
	besides := func(element string, f Feature, about Subject, name string) {
		if i, ok := index[element]; ok {
			wants[i] = append(wants[i], Want{f, f, net.Elements[i].Kind, about, name})
		}
	}
	for i := range net.Links {
		l := &net.Links[i]
		for _, end := range l.Ends { // each direction's delay is made where it ends
			if l.Delay != 0 || l.Jitter != 0 {
				besides(end.Element, FeatureDelay, AboutLink, l.Name)
			}
		}
	}
	for i := range net.Edges {
		if e := &net.Edges[i]; e.Internet != nil {
			besides(e.End.Element, FeatureInternet, AboutEdge, e.Name)
		}
	}
	return wants
}

// BareOffers is how agents told what their nodes offer before there were Offers. Such an agent may still run when the
// manager is new.
type BareOffers struct {
	Controls    []Control    `json:"controls,omitempty"`
	Forwardings []Forwarding `json:"forwardings,omitempty"`
	NoDelay     string       `json:"noDelay,omitempty"`    // why packets cannot be delayed
	NoInternet  string       `json:"noInternet,omitempty"` // why there can be no internet edges
}

// Offers are what the older words mean.
func (b *BareOffers) Offers() (all Offers) {
	kinds := map[Forwarding][]Kind{ForwardGuest: {Router, Host}, ForwardBridge: {Router, Switch},
		ForwardRouter: {Router}, ForwardXDP: {Router}}
	for _, c := range b.Controls {
		all = append(all, Offer{Driver: c.Feature()})
	}
	for _, f := range b.Forwardings {
		all = append(all, Offer{Driver: f.Feature(), Kinds: kinds[f]})
	}
	for f, why := range map[Feature]string{FeatureDelay: b.NoDelay, FeatureInternet: b.NoInternet} {
		if why != "" {
			all = append(all, Offer{Driver: f, Lacks: map[Feature]string{f: why}})
		}
	}
	return all
}

// Bounded leaves the first most items of each list, and the first length bytes of each text.
func (all Offers) Bounded(most, name, text int) Offers {
	all = slices.Clone(all[:min(len(all), most)])
	short := func(f Feature) Feature { return Feature(Shorten(string(f), name)) }
	for i := range all {
		o := &all[i]
		o.Driver, o.Kinds = short(o.Driver), o.Kinds[:min(len(o.Kinds), most)]
		o.Makes = slices.Clone(o.Makes[:min(len(o.Makes), most)])
		for k := range o.Makes {
			o.Makes[k] = short(o.Makes[k])
		}
		lacks := o.Lacks
		o.Lacks = nil
		for _, f := range slices.Sorted(maps.Keys(lacks)) {
			if why := Shorten(lacks[f], text); why != "" && len(o.Lacks) < most {
				if o.Lacks == nil {
					o.Lacks = map[Feature]string{}
				}
				o.Lacks[short(f)] = why
			}
		}
	}
	return all
}
