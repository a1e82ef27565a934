//go:build deps

// Package polyplane pins the modules the packages below use while the tree is young.
package polyplane

import (
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/cmd/bpf2go/gen"
	_ "github.com/creack/pty"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/gaissmai/bart"
	_ "github.com/goccy/go-yaml"
	_ "github.com/gopacket/gopacket"
	_ "github.com/gopacket/gopacket/pcapgo"
	_ "github.com/invopop/jsonschema"
	_ "github.com/opencontainers/runtime-spec/specs-go"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/safchain/ethtool"
	_ "github.com/spf13/cobra"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gonum.org/v1/gonum/stat"
	_ "gonum.org/v1/plot"
	_ "pgregory.net/rapid"
)
