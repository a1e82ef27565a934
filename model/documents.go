package model

// Document is one of the networks that are applied together: all of them or none.
type Document struct {
	Network Network `json:"network"`
	// Base is the revision that the document was made from; the apply is refused when the network has moved on. Zero
	// means any, BaseNew that there must be no such network.
	Base int64 `json:"base,omitempty"`
}
