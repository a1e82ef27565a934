package pipeline

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type port -type peer -type edge_key -type identity_key -type identity -type traffic_count -type drop_count -type copy tc c/tc.c -- -O2 -mcpu=v3 -Wall -Werror
