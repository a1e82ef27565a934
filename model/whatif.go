package model

// WhatIf asks what would become of what runs if nodes went and others came. Nothing is changed.
type WhatIf struct {
	// Down are the nodes that would be down.
	Down []string `json:"down,omitempty"`
	// Add are the nodes that would be there beside the others.
	Add []NodeToCome `json:"add,omitempty"`
}

// MaxWhatIf is how many nodes may go and come.
const MaxWhatIf = 64

// NodeToCome is a node that is not there.
type NodeToCome struct {
	Name string `json:"name"`
	// Like is the node that it is like in all that is not stated here; its neighbours are that one's. Without it, it is
	// joined to all nodes. Where Name is a node that is there, it is one more like that.
	Like      string    `json:"like,omitempty"`
	CPU       CPU       `json:"cpu,omitempty"`
	Memory    Bytes     `json:"memory,omitempty"`
	Bandwidth Bandwidth `json:"bandwidth,omitempty"` // of each of its links
	Location  string    `json:"location,omitempty"`
}

// WhatIfResult is the answer.
type WhatIfResult struct {
	// Added are the nodes that would come, as they were understood.
	Added []SubstrateNode `json:"added,omitempty"`
	// Networks are those that would be other than they are. An owner is told of the own ones.
	Networks []WouldBe `json:"networks,omitempty"`
	// Moves are what would be worth moving once nodes have come: networks with the elements and links concerned.
	Moves []WouldBe `json:"moves,omitempty"`
	// Others sums up the networks that whoever asks may not see.
	Others WouldBeOthers `json:"others,omitzero"`
	// Nodes and Links are what would be left, and is left now.
	Nodes []NodeRoom `json:"nodes"`
	Links []LinkRoom `json:"links,omitempty"`
	// Spent tells that the question was too large to be worked out whole: networks are Unknown, or Moves are not all.
	Spent bool `json:"spent,omitempty"`
	// Notes are what is strange about the question.
	Notes []string `json:"notes,omitempty"`
}

// WouldBe is what would be other about a network.
type WouldBe struct {
	Network string `json:"network"`
	// Elements go elsewhere, links take other paths, and what is lost has no place by itself.
	Elements []WouldMove  `json:"elements,omitempty"`
	Links    []WouldRoute `json:"links,omitempty"`
	Lost     []WouldLose  `json:"lost,omitempty"`
	// Refused is why the rest of it does not fit; then none of its elements goes anywhere.
	Refused []string `json:"refused,omitempty"`
	// Unknown tells that nothing was worked out about what is on the nodes that go.
	Unknown bool `json:"unknown,omitempty"`
}

// WouldMove is an element that would go to another node.
type WouldMove struct {
	Element string `json:"element"`
	From    string `json:"from,omitempty"`
	To      string `json:"to"`
}

// WouldRoute is a link that would take another path; without nodes it is within a node.
type WouldRoute struct {
	Link  string   `json:"link"`
	Nodes []string `json:"nodes,omitempty"`
}

// WouldLose is an element that would have no place, and why.
type WouldLose struct {
	Element string `json:"element"`
	Why     string `json:"why"`
}

// WouldBeOthers counts what would become of networks that are not told of.
type WouldBeOthers struct {
	Networks int `json:"networks,omitempty"` // that would be other than they are
	Elements int `json:"elements,omitempty"` // of theirs that would be on another node
	Links    int `json:"links,omitempty"`    // of theirs that would take another path
	Lost     int `json:"lost,omitempty"`     // elements that would have no place by themselves
	Refused  int `json:"refused,omitempty"`  // networks that would not fit
	Unknown  int `json:"unknown,omitempty"`  // networks of which nothing was worked out
}

// Add counts a network.
func (o *WouldBeOthers) Add(w *WouldBe) {
	o.Networks++
	o.Elements += len(w.Elements)
	o.Links += len(w.Links)
	o.Lost += len(w.Lost)
	if len(w.Refused) > 0 {
		o.Refused++
	}
	if w.Unknown {
		o.Unknown++
	}
}

// NodeRoom is what a node would have left, and what it has left now: nothing where it is not there.
type NodeRoom struct {
	Name       string `json:"name"`
	CPU        CPU    `json:"cpu"`
	Memory     Bytes  `json:"memory"`
	CPULeft    CPU    `json:"cpuLeft"`
	MemoryLeft Bytes  `json:"memoryLeft"`
	CPUNow     CPU    `json:"cpuNow"`
	MemoryNow  Bytes  `json:"memoryNow"`
}

// LinkRoom is the same of a substrate link with a stated bandwidth, in each direction.
type LinkRoom struct {
	A         string    `json:"a"`
	B         string    `json:"b"`
	Bandwidth Bandwidth `json:"bandwidth"`
	Left      Bandwidth `json:"left"`
	Now       Bandwidth `json:"now"`
}
