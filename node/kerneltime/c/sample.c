/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells whose packets the kernel is working on. The kernel does most of its work for packets in soft interrupts, which
 * it charges to nobody, or to whoever happened to run. So a timer looks, a few thousand times a second, what a
 * processor is doing, and charges the namespace of the device that the packet in hand is on. All of this is attached
 * for a small part of the time only: that packets cost more meanwhile does not matter.
 */
#include "../../../linux/bpf/kernel.h"

/*
 * The part of the kernel's own structures that is read. Where the members are on the running kernel follows from its
 * BTF.
 */
#define KERNEL __attribute__((preserve_access_index))
struct ns_common { __u32 inum; } KERNEL;
struct net { struct ns_common ns; } KERNEL;
typedef struct { struct net *net; } KERNEL possible_net_t;
struct net_device { int ifindex; possible_net_t nd_net; } KERNEL;
struct sk_buff { struct net_device *dev; } KERNEL;
struct nsproxy { struct net *net_ns; } KERNEL;
struct sock_common { possible_net_t skc_net; } KERNEL;
struct sock { struct sock_common __sk_common; } KERNEL;
struct task_struct { __u32 flags; struct nsproxy *nsproxy; } KERNEL;

#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

enum { PF_KTHREAD = 0x00200000 }; /* linux/sched.h */

/* where is what one processor has in hand. */
struct where {
	__u64 packet; /* the sk_buff; 0 for one that is being sent, which may be gone by now */
	__u64 task;
	__u32 space, device;
	__u32 soft; /* in a soft interrupt */
	__u32 pad;
	__u64 looked; /* when its timer looked last, in nanoseconds */
};

MAP(PERCPU_ARRAY, now_at, __u32, struct where, 1);

struct owner {
	__u32 space, device; /* a network namespace by its inode, and a device's index there */
};

/*
 * charge is how long somebody's packets were in hand, in nanoseconds. Each look stands for the time since the one
 * before: where timers come late, or not all of them come, there are fewer looks, and each stands for more.
 */
struct charge {
	__u64 taken; /* in time that is nobody's */
	__u64 own;   /* while a process of the same namespace was running, whose time the scheduler counts */
};

MAP(PERCPU_HASH, charges, struct owner, struct charge, 8192);

/*
 * A namespace's inode → packets that began or ended there. They were sent by a process, or by an XDP program that a
 * process runs, or were taken by a TCP connection, which answers in soft interrupts. All other packets come from these.
 * Packets that only go round come from none.
 */
MAP(PERCPU_HASH, origins, __u32, __u64, 8192);

/* LONGEST is the longest time that one look stands for, and FIRST what the first one does. */
enum { LONGEST = 10000000, FIRST = 200000 };

INLINE struct where *where(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&now_at, &zero);
}

/* locate says which device it is, of which namespace. */
INLINE void locate(struct net_device *dev, __u32 *space, __u32 *device)
{
	struct net *net = 0;

	*space = *device = 0;
	if (!dev || READ(net, dev->nd_net.net) || !net || READ(*space, net->ns.inum))
		*space = 0;
	else
		READ(*device, dev->ifindex);
}

INLINE void originate(__u32 space, __u64 packets)
{
	__u64 *sum = bpf_map_lookup_elem(&origins, &space);

	if (sum)
		*sum += packets;
	else if (space)
		bpf_map_update_elem(&origins, &space, &packets, 1);
}

/* by_process tells whether a process runs, and works for itself. */
INLINE int by_process(struct where *w)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 flags = PF_KTHREAD;

	if (w->soft)
		return 0;
	READ(flags, task->flags);
	return !(flags & PF_KTHREAD);
}

INLINE void take(struct sk_buff *skb, int received)
{
	struct where *w = where();
	struct net_device *dev = 0;

	if (!w || READ(dev, skb->dev))
		return;
	w->packet = received ? (__u64)skb : 0;
	w->task = bpf_get_current_task();
	locate(dev, &w->space, &w->device);
	if (!received && by_process(w))
		originate(w->space, 1);
}

SEC("raw_tp/netif_receive_skb")
int received(__u64 *args)
{
	take((struct sk_buff *)args[0], 1);
	return 0;
}

SEC("raw_tp/net_dev_start_xmit")
int sending(__u64 *args)
{
	take((struct sk_buff *)args[0], 0);
	return 0;
}

SEC("raw_tp/xdp_devmap_xmit")
int sending_xdp(__u64 *args)
{
	struct where *w = where();
	__u32 space, device;

	if (w && by_process(w) && (int)args[2] > 0) {
		locate((struct net_device *)args[1], &space, &device);
		originate(space, (int)args[2]);
	}
	return 0;
}

SEC("raw_tp/tcp_probe")
int taken(__u64 *args)
{
	struct sock *sk = (struct sock *)args[0];
	struct net *net = 0;
	__u32 space = 0;

	if (!READ(net, sk->__sk_common.skc_net.net) && net && !READ(space, net->ns.inum))
		originate(space, 1);
	return 0;
}

SEC("raw_tp/softirq_entry")
int soft_begins(__u64 *args)
{
	struct where *w = where();

	if (w) {
		w->soft = 1;
		w->packet = w->space = 0;
	}
	return 0;
}

SEC("raw_tp/softirq_exit")
int soft_ends(__u64 *args)
{
	struct where *w = where();

	if (w) {
		w->soft = 0;
		w->packet = w->space = 0;
	}
	return 0;
}

SEC("perf_event")
int sample(void *ctx)
{
	struct where *w = where();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct nsproxy *proxy = 0;
	struct net *net = 0;
	struct charge first = {}, *c;
	struct owner o;
	__u32 flags = 0, mine = 0;
	__u64 now = bpf_ktime_get_ns(), span;

	if (!w)
		return 0;
	span = w->looked ? now - w->looked : FIRST;
	if (span > LONGEST)
		span = LONGEST;
	w->looked = now;
	if (!w->space)
		return 0;
	READ(flags, task->flags);
	/* A thread of the kernel that polls devices does so without a soft interrupt. */
	if (!w->soft && (!(flags & PF_KTHREAD) || w->task != (__u64)task))
		return 0;
	o.space = w->space;
	o.device = w->device;
	if (w->packet) { /* the fabric may have handed it to another device since it came in */
		struct sk_buff *skb = (struct sk_buff *)w->packet;
		struct net_device *dev = 0;
		__u32 space, device;

		READ(dev, skb->dev);
		locate(dev, &space, &device);
		if (space) {
			o.space = space;
			o.device = device;
		}
	}
	if (!(flags & PF_KTHREAD) && !READ(proxy, task->nsproxy) && proxy && !READ(net, proxy->net_ns) && net)
		READ(mine, net->ns.inum);
	c = bpf_map_lookup_elem(&charges, &o);
	if (!c) {
		bpf_map_update_elem(&charges, &o, &first, 1);
		c = bpf_map_lookup_elem(&charges, &o);
		if (!c)
			return 0;
	}
	if (mine == o.space)
		c->own += span;
	else
		c->taken += span;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
