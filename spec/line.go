package spec

import (
	"bytes"
	"fmt"
	"net/netip"
)

// MaxLine is the longest line that Line makes: the prefixes of its links fill 10.0.0.0/8, except for what loopbacks
// have of it.
const MaxLine = 80_000

// Line is the file of n static routers r1…rN in a line (1…MaxLine), each link with a /30 of its own: what the
// benchmarks instantiate.
func Line(n int) []byte {
	var b bytes.Buffer
	b.Grow(64 + 40*n)
	fmt.Fprintf(&b, "# %d static routers in a line.\n%s\nnetwork: line\nsoftware: static\nrouters:\n", n, schemaComment)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "  - r%d\n", i)
	}
	if n > 1 {
		b.WriteString("links:\n")
	}
	for i := 1; i < n; i++ {
		subnet := uint32(10<<24 + (i-1)*4)
		a := netip.AddrFrom4([4]byte{byte(subnet >> 24), byte(subnet >> 16), byte(subnet >> 8), byte(subnet)})
		fmt.Fprintf(&b, "  - r%d -- r%d: %s/30\n", i, i+1, a)
	}
	return b.Bytes()
}

// schemaComment makes editors complete and check an example.
const schemaComment = "# yaml-language-server: $schema=../schema/polyplane.schema.json"
