package model

// Validate tells everything that is wrong with the network.
func (n Network) Validate() []Problem {
	n = Complete(n)
	ps := problems{net: &n}
	return ps.list
}
