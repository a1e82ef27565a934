package source

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type address program bpf/source.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable
