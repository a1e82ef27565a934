package pipeline

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type port -type peer -type edge_key -type identity_key -type identity -type traffic_count -type drop_count -type copy -type fib_hop -type router -type router_count -type meter -type pace -type driver -type mirror -type node_key -type tunnel_end -type relay_way -type relay tc c/tc.c -- -O2 -mcpu=v3 -Wall -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -output-suffix _test -type query walk c/walk.c -- -O2 -mcpu=v3 -Wall -Werror
