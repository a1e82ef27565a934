/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every measured frame carries, behind its headers; frame.go has the same. Network byte order. */
#ifndef POLYPLANE_MEASURE_TAG_H
#define POLYPLANE_MEASURE_TAG_H

#define TAG_SIZE 18
#define ETH_SIZE 14
#define IP4_SIZE 20
#define IP6_SIZE 40
#define UDP_SIZE 8
#define FRAME_MAX 1514 /* without the frame check sequence */

enum kind { KIND_IP4, KIND_IP6, KIND_RAW };

struct tag {
	__u16 run;
	__u16 stream;
	__u32 seq;
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u16 sum;  /* makes the 16-bit ones' complement sum of tag and filler 0xffff */
}; /* not packed, which would make clang go byte by byte; its real size is TAG_SIZE */

INLINE __u16 fold(__u64 s)
{
	s = (s & 0xffffffff) + (s >> 32);
	s = (s & 0xffff) + ((s >> 16) & 0xffff) + (s >> 32);
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return s;
}

/* The same for sums below 2^32 - 2^16. */
INLINE __u16 fold32(__u32 s)
{
	s = (s & 0xffff) + (s >> 16);
	return s + (s >> 16);
}

#endif
