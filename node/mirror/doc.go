// Package mirror follows a network namespace's forwarding tables, whatever software writes them: routes, next-hop
// objects, neighbours, links, addresses and rules. It makes one ordered stream from them: changes to what becomes of a
// packet. It knows the kernel's ways. It does not know the tables that its consumer keeps (node/mirror/feed writes them
// into node/fib).
//
// # Use
//
//	m, err := mirror.Open(namespace, mirror.Options{Limits: mirror.DefaultLimits}) // a file descriptor of the namespace
//	defer m.Close()
//	f, err := feed.New(feed.Config{
//		Slice: slice,                      // *fib.Slice: next hops and tables are counted there
//		IPv4:  table4, IPv6: table6,       // *fib.Table, published before or after the first Synced
//		Port:  func(index int) (slot uint32, ok bool) { … }, // the fabric's slot for an interface index of the namespace
//		Changed: func(s feed.Status) { … }, // in sync, what is punted and why
//	})
//	m.SetNeighbours(peers)  // link peers that the model knows: interface index, address, MAC; at any time
//	err = m.Run(ctx, f.Apply) // until ctx ends; one goroutine
//
//	if f.Retry() {            // now and then while f.Status().Full is not nil
//		m.Restart()
//	}
//	f.PortsChanged()          // when Port would answer otherwise
//	pool.Release(…)           // the pool's owner's, as node/fib says: Apply makes words rest
//
// Run takes a first snapshot, tells it in batches, and goes on with changes as they happen. What it tells is resolved
// already. Each prefix of the effective look-up has one next hop's number. Each number has a kind, or an interface with
// MACs and MTU, or weighted members. When a neighbour, link or next-hop object changes, next hops change, and routes do
// not. Some things cannot be told for certain, or cannot be done without the guest: policy rules, chains of nftables
// that forwarded packets pass, TOS and source-specific routes, encapsulations, several tables that overlap. These are
// Punt, for the prefix or for the whole family: the guest's own stack does what is right.
//
// A View does all of this without the kernel, from messages: recorded ones, or those that a VM's agent streams.
package mirror
