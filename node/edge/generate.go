package edge

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type way -type service program c/way.c -- -O2 -mcpu=v3 -Wall -Werror
