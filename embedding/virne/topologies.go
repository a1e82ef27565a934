package virne

import (
	"fmt"
	"strings"
)

// Who is joined to whom in two real networks, by the numbers that their nodes have in the simulator's files: a node and
// its neighbours with greater numbers each.
//
// GÉANT is the European research network of March 2012, as the Internet Topology Zoo has it (Geant2012; 40 nodes, 61
// links). BRAIN is Berlin's research network, as SNDlib has it (161 nodes, 166 links).
const (
	geant = `0 1 2 4 30 34; 1 33; 2 4 31 32 35 36 38; 3 4 5 10 19 30; 4 5 6 8 16 17 29 31; 5 23; 6 7; 7 8 25 34;
8 9 25; 9 15 18 25 29; 11 13; 12 13 14 15 20 22; 13 14 22; 15 29; 16 34; 17 30; 21 27; 22 23 26 27; 23 29; 24 25 34;
27 28; 28 29; 30 39; 32 34; 33 34; 35 36; 36 37; 38 39`
	brain = `0 1-13 33 66 127; 14 15-32 47 85; 33 34-47 115; 47 48-65 85 115; 66 67-84 115 127; 85 86-104 127;
104 105-114 127; 115 116-126; 127 128-160`
)

// Topologies are those that data sets can be made on.
func Topologies() []string { return []string{"waxman", "geant", "brain"} }

// pairsOf reads neighbours.
func pairsOf(text string) (nodes int, pairs [][2]int) {
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		from := 0
		for i, w := range words {
			first, last := 0, 0
			if n, _ := fmt.Sscanf(w, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			if i == 0 {
				from = first
			}
			for to := first; to <= last; to++ {
				nodes = max(nodes, to+1)
				if i > 0 {
					pairs = append(pairs, [2]int{from, to})
				}
			}
		}
	}
	return nodes, pairs
}
