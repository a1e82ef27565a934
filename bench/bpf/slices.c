// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A source and a sink of frames with VLAN tags, one for each slice.
#include "../../linux/bpf/kernel.h"

enum {
	SLICES = 1000,
	DESTINATIONS = 4096, /* in a row */
	ARRIVES = 63,        /* the TTL of what was at one router */
	WORDS = 60 / 4, /* of a frame without its check sequence */
	/* Of a frame with a tag: */
	TAG = 14,
	TTL = 26,
	CHECKSUM = 28,
	DESTINATION = 34,
	COPY = 46, /* of the tag, in the payload */
};

/* How a slice's frames begin. */
struct way {
	__u64 mac; /* the router's, as a number */
	__u16 tag;
	__u16 spare[3];
};

/* Set by the loader. */
/* All are drawn; of fewer slices each has several: what is read here is always as much */
struct way ways[SLICES];
__u32 header[WORDS];                   /* all that does not differ */
__u32 sum;                             /* of the IP header, without the address's lower half, not folded */

__u64 rng = 1;
__u64 right, wrong; /* frames that arrived */

MAP(DEVMAP, slices_out, __u32, __u32, 1);

SEC("xdp.frags")
int slices_source(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data;
	__u32 check, pick, to;
	struct way *w;
	__u64 x;

	if (frame + WORDS * 4 > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	x = rng * 6364136223846793005ull + 1442695040888963407ull; /* Knuth's; the upper bits are the good ones */
	rng = x;
	pick = (x >> 32) * SLICES >> 32;
	if (pick >= SLICES)
		return XDP_ABORTED;
	w = &ways[pick];
	to = (x >> 22 & 0xffffffff) * DESTINATIONS >> 32;
	check = sum + to;
	check = (check & 0xffff) + (check >> 16);
	check = (check & 0xffff) + (check >> 16);
	for (int i = 2; i < WORDS; i++)
		((__u32 *)frame)[i] = header[i];
	*(__u32 *)frame = w->mac;
	*(__u16 *)(frame + 4) = w->mac >> 32;
	*(__u16 *)(frame + 6) = header[1] >> 16;
	*(__u16 *)(frame + TAG) = w->tag;
	*(__u16 *)(frame + CHECKSUM) = be16((__u16)~check);
	*(__u16 *)(frame + DESTINATION + 2) = be16(to);
	*(__u16 *)(frame + COPY) = w->tag;
	return bpf_redirect_map(&slices_out, 0, XDP_ABORTED);
}

/* A frame is right that has the tag of its slice and was at one router. */
SEC("xdp.frags")
int slices_sink(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data;

	if (frame + WORDS * 4 <= (__u8 *)(long)ctx->data_end && *(__u16 *)(frame + TAG - 2) == be16(0x8100) &&
	    *(__u16 *)(frame + TAG) == *(__u16 *)(frame + COPY) && frame[TTL] == ARRIVES)
		right++;
	else
		wrong++;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
