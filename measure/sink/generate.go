package sink

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type flow -type histogram program bpf/sink.c -- -idirafter /usr/include/x86_64-linux-gnu -O2 -mcpu=v3 -Wall -Werror
