package sockets

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type allowance -type account program c/sockets.c -- -O2 -mcpu=v3 -Wall -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel netfilter c/netfilter.c -- -O2 -mcpu=v3 -Wall -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type name modules c/modules.c -- -O2 -mcpu=v3 -Wall -Werror
