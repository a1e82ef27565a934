// Package each says in one line what a loop over a list makes, where the loop does nothing else.
package each

// Of returns what f makes of each value, in the list's order. For an empty list it returns nil, as a loop that appends
// would.
func Of[E, V any](list []E, f func(E) V) []V {
	if len(list) == 0 {
		return nil
	}
	all := make([]V, len(list))
	for i, v := range list {
		all[i] = f(v)
	}
	return all
}

// That returns the values for which f holds, in the list's order; nil if it holds for none. The list stays as it is.
func That[E any](list []E, f func(E) bool) (some []E) {
	for _, v := range list {
		if f(v) {
			some = append(some, v)
		}
	}
	return some
}

// Set returns the list's values as a set, which may be added to.
func Set[K comparable](list []K) map[K]bool {
	return SetOf(list, func(v K) K { return v })
}

// SetOf returns what f makes of each value as a set, which may be added to.
func SetOf[E any, K comparable](list []E, f func(E) K) map[K]bool {
	set := make(map[K]bool, len(list))
	for _, v := range list {
		set[f(v)] = true
	}
	return set
}

// By returns the values by their keys. Of two with the same key it has the later one.
func By[E any, K comparable](list []E, key func(E) K) map[K]E {
	all := make(map[K]E, len(list))
	for _, v := range list {
		all[key(v)] = v
	}
	return all
}
