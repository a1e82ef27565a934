package model

// String is the sentence that files have: "h1 reaches h2", "h1 does not reach h2 over ipv6".
func (x Expectation) String() string {
	s := x.From + " reaches " + x.To
	if x.Not {
		s = x.From + " does not reach " + x.To
	}
	if x.Family != AnyFamily {
		s += " over " + string(x.Family)
	}
	return s
}
