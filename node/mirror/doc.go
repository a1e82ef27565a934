// Package mirror follows a network namespace's forwarding tables, whatever software writes them: routes, next-hop objects,
// neighbours, links, addresses and rules, as one ordered stream of changes to what becomes of a packet. It knows the
// kernel's ways; it knows nothing of the tables that its consumer keeps (node/mirror/feed writes them into node/fib).
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
// Run takes a first snapshot, tells it in batches, and goes on with changes as they happen. What is told is already
// resolved: each prefix of the effective look-up has one next hop's number, each number a kind, or an interface with MACs
// and MTU, or weighted members. A neighbour, link or next-hop object that changes changes next hops, not routes.
//
// What can't be told for certain, or can't be done without the guest – policy rules, chains of nftables that forwarded packets
// pass, TOS and source-specific routes, encapsulations, several tables that overlap –, is Punt, for the prefix or for the whole family: the guest does what is
// right.
//
// A View does all of this without the kernel, from messages: recorded ones, or those that a VM's agent streams.
package mirror
