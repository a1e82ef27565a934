package model

// Placing is how a network's elements are to be placed on the nodes.
type Placing struct {
	Policy   PlacingPolicy `json:"policy,omitempty"`
	Distinct bool          `json:"distinct,omitempty"` // no two of its elements on one node
	Spread   PlacingSpread `json:"spread,omitempty"`
}

// PlacingPolicy is what placing weighs.
type PlacingPolicy string

const (
	Balance PlacingPolicy = "balance" // the default: nodes equally loaded, neighbours together
	Pack    PlacingPolicy = "pack"    // as few nodes as will do
)

// Words are the policies.
func (PlacingPolicy) Words() []string { return []string{string(Balance), string(Pack)} }

// PlacingSpread is what a network's elements are spread over; empty for nothing.
type PlacingSpread string

// SpreadLocation spreads them equally over the locations of the nodes.
const SpreadLocation PlacingSpread = "location"

// Words are what elements can be spread over.
func (PlacingSpread) Words() []string { return []string{string(SpreadLocation)} }

// Keys are what a file may say of how a network is placed.
func (Placing) Keys() []Key[Placing] { return placingKeys }

var placingKeys = []Key[Placing]{
	newWord("policy", func(p *Placing) *PlacingPolicy { return &p.Policy }, about[PlacingPolicy]{example: "pack",
		meaning: "{usual} when left out: nodes become equally loaded for their size, and neighbours are together as " +
			"far as that allows; or pack: as few nodes as will do.",
		usual: Balance}),
	newFlag("distinct", func(p *Placing) *bool { return &p.Distinct }, about[string]{example: "true",
		meaning: "Whether each of its elements is on a node of its own, where no other of its elements is; false " +
			"when left out. It is refused where two are pinned to one node, or are on one already."}),
	newWord("spread", func(p *Placing) *PlacingSpread { return &p.Spread }, about[PlacingSpread]{example: "location",
		meaning: "location: no location has more of its elements than there are for each, rounded up, and nodes " +
			"without a location have none; nothing is spread when left out. Elements that are pinned count, and are " +
			"where they are pinned to."}),
}
