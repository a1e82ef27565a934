// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The least that live frames over a veth can cost: one redirect, one drop.
#include "../../../linux/bpf/kernel.h"

MAP(DEVMAP, bare_out, __u32, __u32, 1);

SEC("xdp.frags")
int bare_source(struct xdp_md *ctx)
{
	return bpf_redirect_map(&bare_out, 0, XDP_ABORTED);
}

__u16 sizes[64]; /* without check sequences */
__u32 turn;
volatile const __u32 room;

/* The same where frames are of several sizes: all pages are of the largest, and each frame has to be cut. */
SEC("xdp.frags")
int bare_sizes(struct xdp_md *ctx)
{
	int cut = (int)sizes[turn++ & 63] - (int)room;

	if (cut && bpf_xdp_adjust_tail(ctx, cut))
		return XDP_ABORTED;
	return bpf_redirect_map(&bare_out, 0, XDP_ABORTED);
}

SEC("xdp.frags")
int bare_sink(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
