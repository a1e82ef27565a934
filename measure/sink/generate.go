package sink

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type flow -type histogram program bpf/sink.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable
