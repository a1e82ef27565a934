/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which modules an element may have the kernel load. Whoever asks for a protocol, a kind of network device or a part of
 * netfilter that is in a module has the kernel load it, for the whole machine and for as long as it runs, whoever asks
 * (kernel/module/kmod.c). Modules are what few people use, and so what few have looked for errors. This program runs
 * when the kernel asks its security modules about that, in the process that has caused it; where the kernel was started
 * without the security module of eBPF programs, before the function that asks all security modules. An element is known
 * as in sockets.c. The agent, too, works in elements' namespaces: who is there from outside has a user namespace
 * above that of the network namespace.
 */
#include "../../../../linux/bpf/kernel.h"

#define RELOCATED __attribute__((preserve_access_index))

/* The part of the kernel's types that is used. Where its members lie is looked up when the program is loaded (BTF). */
struct user_namespace {
	int level;
} RELOCATED;

struct cred {
	struct user_namespace *user_ns;
} RELOCATED;

struct net {
	__u64 net_cookie;
	struct user_namespace *user_ns;
} RELOCATED;

struct nsproxy {
	struct net *net_ns;
} RELOCATED;

struct task_struct {
	struct cred *cred;
	struct nsproxy *nsproxy;
} RELOCATED;

enum {
	NOT_PERMITTED = 1, /* EPERM */
	REFUSED = 128,     /* how many names are kept */
};

struct allowance { /* as in sockets.c */
	__u64 rings;
	__u64 filters;
	__u64 rings_back;
	__u64 filters_back;
};

struct name {
	char text[64]; /* the kernel's own are shorter (MODULE_NAME_LEN) */
};

FLAGGED_MAP(NO_PREALLOC, HASH, limits, __u64, struct allowance, 1 << 17);

/* What elements may ask for. */
FLAGGED_MAP(NO_PREALLOC, HASH, allowed, struct name, __u8, 2048);

/* How often the program ran, whoever asked, which shows whether the kernel runs it; and how often it refused. */
MAP(ARRAY, counts, __u32, __u64, 2);

/* What was refused. */
MAP(HASH, refused, struct name, __u8, REFUSED);

INLINE void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

INLINE int look(__u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct net *net = task->nsproxy->net_ns;
	__u64 cookie = net->net_cookie;
	struct name name = {};
	__u8 one = 1;

	count(0);
	if (!bpf_map_lookup_elem(&limits, &cookie) || task->cred->user_ns->level < net->user_ns->level)
		return 0;
	if (bpf_probe_read_kernel_str(&name, sizeof(name), (void *)ctx[0]) < 0)
		return -NOT_PERMITTED;
	if (bpf_map_lookup_elem(&allowed, &name))
		return 0;
	bpf_map_update_elem(&refused, &name, &one, 0); /* if there is room */
	count(1);
	return -NOT_PERMITTED;
}

SEC("lsm/kernel_module_request") int loads(__u64 *ctx)
{
	return look(ctx);
}

/* Whatever it returns but zero, the kernel's function returns without doing anything. */
SEC("fmod_ret/security_kernel_module_request") int loads_before(__u64 *ctx)
{
	return look(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL"; /* the kernel takes only programs under the GPL at such hooks */
