package virne

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
)

const mostRequests = 100_000

// Settings are what a data set is made by.
type Settings struct {
	Topology string  // waxman, or the name of one that Topologies has
	Requests int     // how many
	Rate     float64 // arrivals in a unit of time, on average
	Seed     uint64
	// Process makes arrivals a Poisson process. Otherwise the times between them are Poisson distributed, which is more
	// even: so the simulator does it.
	Process bool
}

// Generate makes a data set by the settings that the simulator's authors publish (Virne, arXiv 2507.19234, section 4.1,
// and the settings/ of its repository): nodes and links have 50 to 100 of processor and bandwidth; a request has 2 to
// 10 nodes of 0 to 20, any two of which are joined with a probability of one half by a link of 0 to 50, anew until all
// hang together; requests stay 500 units of time on average. What arrivals are, Settings.Process says.
//
// The same settings make the same data set. They are not the same numbers as the simulator's, whose generator is
// another.
func Generate(s Settings) (*DataSet, error) {
	r := rand.New(rand.NewPCG(s.Seed, 0x706f6c79))
	uniform := func(low, high int) float64 { return float64(low + r.IntN(high-low+1)) }
	d := &DataSet{}
	nodes, pairs := 100, [][2]int(nil)
	switch s.Topology {
	case "waxman":
		pairs = waxman(r, nodes, 0.5, 0.2)
	case "geant":
		nodes, pairs = pairsOf(geant)
	case "brain":
		nodes, pairs = pairsOf(brain)
	default:
		return nil, fmt.Errorf("topology %q is unknown; there are %s", s.Topology, strings.Join(Topologies(), ", "))
	}
	if s.Requests < 1 || s.Requests > mostRequests {
		return nil, fmt.Errorf("%d requests cannot be made; 1 to %d can", s.Requests, mostRequests)
	}
	if !(s.Rate >= 1e-6 && s.Rate <= 1e3) {
		return nil, fmt.Errorf("rate %g cannot be made; 0.000001 to 1000 arrivals a unit of time can", s.Rate)
	}
	for range nodes {
		d.Physical.Nodes = append(d.Physical.Nodes, uniform(50, 100))
	}
	for _, p := range pairs {
		d.Physical.Links = append(d.Physical.Links, Link{p[0], p[1], uniform(50, 100)})
	}
	now := 0.0
	for k := range s.Requests {
		if s.Process {
			now += r.ExpFloat64() / s.Rate
		} else {
			now += float64(poisson(r, 1/s.Rate))
		}
		var g Graph
		size := int(uniform(2, 10))
		for range size {
			g.Nodes = append(g.Nodes, uniform(0, 20))
		}
		for ok := false; !ok; {
			pairs = pairs[:0]
			for a := range size {
				for b := a + 1; b < size; b++ {
					if r.IntN(2) == 0 {
						pairs = append(pairs, [2]int{a, b})
					}
				}
			}
			ok = connected(size, pairs)
		}
		g.Links = append(g.Links, each.Of(pairs, func(p [2]int) Link { return Link{p[0], p[1], uniform(0, 50)} })...)
		d.Requests = append(d.Requests, g)
		d.Events = append(d.Events, Event{now, k, true}, Event{now + 500*r.ExpFloat64(), k, false})
	}
	slices.SortStableFunc(d.Events, byTime)
	return d, nil
}

// waxman draws a connected graph on the unit square: two nodes are joined with a probability of beta·e^(-d/(alpha·L)),
// where d is their distance and L the largest of all. The names of the parameters are those of the simulator, which
// hands 0.5 and 0.2 on to a function that calls the first one beta.
func waxman(r *rand.Rand, n int, beta, alpha float64) [][2]int {
	for {
		x, y := make([]float64, n), make([]float64, n)
		for i := range n {
			x[i], y[i] = r.Float64(), r.Float64()
		}
		longest := 0.0
		distance := func(a, b int) float64 { return math.Hypot(x[a]-x[b], y[a]-y[b]) }
		for a := range n {
			for b := range a {
				longest = max(longest, distance(a, b))
			}
		}
		var pairs [][2]int
		for a := range n {
			for b := a + 1; b < n; b++ {
				if r.Float64() < beta*math.Exp(-distance(a, b)/(alpha*longest)) {
					pairs = append(pairs, [2]int{a, b})
				}
			}
		}
		if connected(n, pairs) {
			return pairs
		}
	}
}

func connected(n int, pairs [][2]int) bool {
	group := make([]int, n)
	for i := range group {
		group[i] = i
	}
	find := func(i int) int {
		for group[i] != i {
			i = group[i]
		}
		return i
	}
	for _, p := range pairs {
		group[find(p[0])] = find(p[1])
	}
	for i := range group {
		if find(i) != find(0) {
			return false
		}
	}
	return true
}

// poisson draws a number whose mean is given, by multiplying (Knuth).
func poisson(r *rand.Rand, mean float64) (n int) {
	if mean > 500 { // in parts, for which e^-mean is not nothing
		return poisson(r, mean/2) + poisson(r, mean/2)
	}
	for product, least := r.Float64(), math.Exp(-mean); product > least; n++ {
		product *= r.Float64()
	}
	return n
}
