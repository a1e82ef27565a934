// Package fib keeps the fast path's forwarding tables in plain words: memory that the caller hands in (heap, an eBPF
// arena, mmap-able arrays), that this package alone writes, and that any number of readers – Go code here, an eBPF program
// in C there – walk without a lock while it changes. There is no I/O and no clock in it.
//
// # Use
//
// New makes a node's Pool. Each virtual network has a Slice of it with a quota, which makes next hops, groups, and tables;
// a table is Published once under the number by which readers find it, and follows the router's routes by Apply. To take a
// whole new set of routes (a resync), fill a second table and Swap. Where a change is refused because something is full,
// Punt the table, go on telling it the changes, and Resume when there may be room. At intervals longer than any reader's
// search:
//
//	pool.Release(mark); mark = pool.Mark()
//
// After a restart Adopt takes the words over as they are, so that readers go on, until new tables are published.
//
// # Words
//
// There are three arrays. All words are in the machine's byte order; a reader loads each with one aligned load. Bits count
// from the least significant one. What is called reserved is zero.
//
// Chunks hold nodes and blocks. A chunk is 65,536 words of 32 bits (256 KiB); all chunks together are one space of *units*
// of 16 words (64 bytes): unit u lies in chunk u/4096 at word 16·(u mod 4096). Where the chunks are one piece of memory (an
// arena, an array map whose elements are chunks) that is simply byte 64·u. Nothing straddles chunks. A unit number has 28
// bits (16 GiB).
//
// Tables holds one 64-bit word for a table, which is everything a reader needs, so that a table changes as a whole by one
// store:
//
//	bits  0…23  default route: a next hop's number, 0 if there is none
//	bits 24…27  shape: 0 no routes but the default; 3…9 sorted ranges, 2^shape of them; 15 trie
//	bits 28…55  unit of the block or of the trie's root
//	bits 56…63  generation, one more whenever the word changes
//
// An *entry*, 32 bits, is what a search ends at or goes on with:
//
//	0                       no route: the default counts
//	bit 31 = 0: a leaf      bits 0…23 next hop's number (not 0), bits 24…30 the matching prefix's length less one
//	bit 31 = 1: a child     bits 0…27 unit of the child node, bits 28…30 reserved; in tries only
//
// Next hops are four 64-bit words each, number n at words 4n…4n+3. Number 0 is never used: packets without a route are
// punted. Numbers 1 to 6 are Local, Connected, Punt, Blackhole, Unreachable and Prohibit in every pool and need no look at
// the array, though their words are written.
//
//	word 0  bits 0…3 kind (Kind); bits 4…7 reserved; bits 8…31 port; bits 32…47 MTU; bits 48…63 version
//	word 1  bits 0…47 destination MAC, first byte in bits 40…47; bits 48…63 version
//	word 2  bits 0…47 source MAC, likewise; bits 48…63 version
//	word 3  reserved
//	word 0 of a group: bits 0…3 kind 15; bits 4…7 order; bits 8…15 reserved; bits 16…43 unit; bits 44…63 reserved
//
// A next hop's three words belong together if their versions are equal. If not, a change is on its way: load again, and
// punt after the fourth time. A group's unit is a block of 2^order entries of 32 bits, each a next hop's number (never a
// group's): take entry hash mod 2^order, where hash is FlowHash of the packet's flow.
//
// # Sorted ranges
//
// Up to 512 ranges of addresses, with n = 2^shape, in one block. IPv4: n starts of 32 bits (addresses as numbers), then n
// entries. IPv6: n starts of two 64-bit words (high half first; in the machine's byte order, 8-aligned), then n entries.
// starts[0] is 0; what is left over at the end repeats the last entry with the highest address as its start. The search
// has no branch that depends on data:
//
//	i = 0; for (step = n/2; step; step /= 2) i += starts[i+step] <= address ? step : 0; entry = entries[i];
//
// Blocks never change once published.
//
// # Tries
//
// The root is 65,536 entries for the first 16 bits of the address. Nodes for bits 16…23 and 24…31 have 256 entries, nodes
// for every four bits from bit 32 on (IPv6) have 16. Entries are leaf-pushed: the first entry that is not a child is the
// answer, so three loads at most for IPv4 and 27 for IPv6. A node exists exactly while a prefix longer than its depth
// lies in it.
//
//	w = table word; e = word[unit(w)*16 + address[0:16]]
//	for (depth = 16; e & 1<<31; depth += bits) e = word[(e & 0xfffffff)*16 + address[depth:depth+bits]], bits = depth < 32 ? 8 : 4
//	if (e == 0) and the table word is still w: the default in w; if it is another: again, punt after the fourth time
//
// The check for the same word is needed in tries alone: it makes "no route here" and "this is the default" one moment's
// truth.
//
// # What readers may rely on
//
// Every store is one word, and leaves all that is reachable valid. A change of one route changes the answer for each
// address once, from the old to the new. Nodes and blocks are filled before the one store that makes them reachable, and
// what becomes unreachable – nodes, blocks, next hops' numbers – rests until the caller has said, by Release, that every
// reader that could have seen it is done. So an answer is always one that was right at some moment while the search ran.
//
// Writers (every method that changes something) may be called by any goroutine; a lock makes them take turns.
package fib
