package kernelmemory

import (
	"runtime"

	"github.com/cilium/ebpf"
)

// size is how many bytes the kernel takes for something. Of some things it has a part for each processor that the
// machine could have, even if it has few (cpu_possible_mask).
type size struct{ fixed, each int64 }

func (s size) of(processors int) int64 { return s.fixed + s.each*int64(processors) }

func (s size) bytes() int64 {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		n = runtime.NumCPU()
	}
	return s.of(n)
}

// What was measured with different numbers of processors (Linux 6.1, amd64), rounded up.
var (
	// vlanSize is a VLAN of a bridge, or of a port: most of it is for its multicast routers.
	vlanSize = size{1216, 32}
	// peerSize is a peer of WireGuard without addresses.
	peerSize = size{1968, 40}
	// encapSize is what an encapsulation takes beside its labels, addresses or segments (struct lwtunnel_state, struct
	// dst_cache).
	encapSize = size{432, 40}
)

// What object caches had (Linux 6.18, amd64), rounded up, and what the kernel's structures have for each processor.
var (
	nextHopSize = size{400, 8} // nhc_pcpu_rth_output
	memberSize  = size{64, 8}  // struct nh_grp_entry_stats
	filterSize  = size{512, 32}
	actionSize  = size{1024, 64} // struct gnet_stats_basic_sync twice, and gnet_stats_queue
	queueSize   = size{1024, 48} // the same once, of the smallest discipline
)
