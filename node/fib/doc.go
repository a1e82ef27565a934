// Package fib keeps the fast path's forwarding tables in plain words. The caller hands in the memory: heap, an eBPF
// arena, or mmap-able arrays. Only this package writes it. Any number of readers walk it without a lock while it
// changes: Go code here, an eBPF program in C there. The package does no I/O and reads no clock.
//
// # Use
//
// New makes a node's Pool. Each virtual network has a Slice of it with a quota. The slice makes next hops, groups, and
// tables. Publish a table once, under the number by which readers find it; Apply then makes it follow the router's
// routes. To take a whole new set of routes (a resync), fill a second table and Swap. If a change is refused because
// something is full, Punt the table, go on telling it the changes, and Resume when there may be room. At intervals
// longer than any reader's search, free what readers can no longer see:
//
//	pool.Release(mark); mark = pool.Mark()
//
// After a restart Adopt takes over the words as they are. Readers go on with them until new tables are published.
//
// # Words
//
// There are three arrays: chunks, tables and next hops. All words are in the machine's byte order, and a reader loads
// each with one aligned load. Bits are counted from the least significant one. Reserved bits are zero.
//
// Chunks hold nodes and blocks. A chunk is 65,536 words of 32 bits (256 KiB); all chunks together are one space of
// *units* of 16 words (64 bytes): unit u lies in chunk u/4096 at word 16·(u mod 4096). Where the chunks are one piece
// of memory (an arena, an array map whose elements are chunks) that is simply byte 64·u. Nothing straddles chunks. A
// unit number has 28 bits (16 GiB).
//
// Tables holds one 64-bit word for each table. This word is everything that a reader needs, so one store changes the
// table as a whole:
//
//	bits  0…23  default route: a next hop's number, 0 if there is none
//	bits 24…27  shape: 0 no routes but the default; 3…9 sorted ranges, 2^shape of them; 15 trie
//	bits 28…55  unit of the block or of the trie's root
//	bits 56…63  generation, one more whenever the word changes
//
// An *entry* has 32 bits. A search ends at an entry, or goes on with the node that it names:
//
//	0                       no route: the default counts
//	bit 31 = 0: a leaf      bits 0…23 next hop's number (not 0), bits 24…30 the matching prefix's length less one
//	bit 31 = 1: a child     bits 0…27 unit of the child node, bits 28…30 reserved; in tries only
//
// A next hop is four 64-bit words; number n has the words 4n…4n+3. Number 0 is never used: packets without a route are
// punted. Numbers 1 to 6 are Local, Connected, Punt, Blackhole, Unreachable and Prohibit in every pool. Readers need
// not look at the array for these, though their words are written.
//
//	word 0  bits 0…3 kind (Kind); bits 4…7 reserved; bits 8…31 port; bits 32…47 MTU; bits 48…63 version
//	word 1  bits 0…47 destination MAC, first byte in bits 40…47; bits 48…63 version
//	word 2  bits 0…47 source MAC, likewise; bits 48…63 version
//	word 3  reserved
//	word 0 of a group: bits 0…3 kind 15; bits 4…7 order; bits 8…15 reserved; bits 16…43 unit; bits 44…63 reserved
//
// A next hop has three words and no lock, so a reader may see a part of a change. The words belong together if their
// versions are equal. If they are not, a change is under way: load again, and punt after the fourth time.
//
// A group's unit is a block of 2^order entries of 32 bits, each a next hop's number (never a group's). A reader takes
// entry hash mod 2^order, where hash is FlowHash of the packet's flow.
//
// # Sorted ranges
//
// A router with few routes has up to 512 ranges of addresses in one block, with n = 2^shape. IPv4: n starts of 32 bits
// (addresses as numbers), then n entries. IPv6: n starts of two 64-bit words (high half first; in the machine's byte
// order, 8-aligned), then n entries. starts[0] is 0. Unused places at the end repeat the last entry, with the highest
// address as their start. The search has no branch that depends on data, since the eBPF verifier would follow each of
// them:
//
//	i = 0; for (step = n/2; step; step /= 2) i += starts[i+step] <= address ? step : 0; entry = entries[i];
//
// Blocks never change once published.
//
// # Tries
//
// The root is 65,536 entries for the first 16 bits of the address. Nodes for bits 16…23 and 24…31 have 256 entries,
// nodes for every four bits from bit 32 on (IPv6) have 16. Entries are leaf-pushed: the first entry that is not a child
// is the answer. So a search takes at most three loads for IPv4, and 27 for IPv6. A node exists exactly while a prefix
// longer than its depth lies in it.
//
//	w = table word; e = word[unit(w)*16 + address[0:16]]
//	for (depth = 16; e & 1<<31; depth += bits) e = word[(e & 0xfffffff)*16 + address[depth:depth+bits]], bits = depth < 32 ? 8 : 4
//	if (e == 0) and the table word is still w: the default in w; if it is another: again, punt after the fourth time
//
// Only tries need the check for the same word. Without it a reader could find "no route here" at one moment and take
// the default of another; together they might never have been true.
//
// # What readers may rely on
//
// Every store is one word, and leaves all that is reachable valid. A change of one route changes the answer for each
// address once, from the old to the new. Nodes and blocks are filled before the one store that makes them reachable,
// and what becomes unreachable – nodes, blocks, next hops' numbers – rests until the caller says, by Release, that
// every reader that could have seen it is done. So every answer was right at some moment while the search ran.
//
// Any goroutine may call writers, that is every method that changes something; a lock makes them take turns.
package fib
