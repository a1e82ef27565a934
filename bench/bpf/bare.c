// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What routers are compared with: a redirect that looks nothing up, and one by the kernel's own tables.
#include "../../linux/bpf/kernel.h"

MAP(DEVMAP, out, __u32, __u32, 1);

SEC("xdp.frags")
int bare_redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

/* What the kernel's own example of XDP forwarding does: headers checked, TTL, checksum and MAC addresses written. */
SEC("xdp.frags")
int kernel_lookup(struct xdp_md *ctx)
{
	__u16 *ethernet = (void *)(long)ctx->data;
	__u8 *ip = (void *)(ethernet + 7);
	struct fib_lookup f = { .family = FAMILY_INET, .ifindex = ctx->ingress_ifindex };
	__u32 sum;

	if ((void *)(ip + 20) > (void *)(long)ctx->data_end || ethernet[6] != be16(0x0800) || ip[0] != 0x45 || ip[8] <= 1)
		return XDP_PASS;
	f.protocol = ip[9];
	f.length = be16(*(__u16 *)(ip + 2));
	f.tos = ip[1];
	f.source[0] = *(__u32 *)(ip + 12);
	f.destination[0] = *(__u32 *)(ip + 16);
	if (bpf_fib_lookup(ctx, &f, sizeof(f), 0))
		return XDP_PASS;
	sum = *(__u16 *)(ip + 10) + be16(0x100);
	*(__u16 *)(ip + 10) = sum + (sum >= 0xffff);
	ip[8]--;
	for (int i = 0; i < 3; i++) {
		ethernet[i] = f.destination_mac[i];
		ethernet[3 + i] = f.source_mac[i];
	}
	return bpf_redirect_map(&out, 0, XDP_ABORTED); /* all ways lead there */
}

char _license[] SEC("license") = "Dual BSD/GPL";
