package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/model"
)

const tcpLab = `network: tcp
routers: {r1: {software: static}}
hosts: [h1, h2]
links:
  - h1 -- r1: 10.0.1.0/24
  - r1 -- h2: 10.0.2.0/24
`

// plainVeth is the same three namespaces joined by plain veth pairs.
var plainVeth = []string{
	"ip netns add ppbench-a", "ip netns add ppbench-r", "ip netns add ppbench-b",
	"ip link add v1 netns ppbench-a type veth peer name v2 netns ppbench-r",
	"ip link add v3 netns ppbench-b type veth peer name v4 netns ppbench-r",
	"ip -n ppbench-a addr add 10.0.1.2/24 dev v1", "ip -n ppbench-r addr add 10.0.1.1/24 dev v2",
	"ip -n ppbench-b addr add 10.0.2.2/24 dev v3", "ip -n ppbench-r addr add 10.0.2.1/24 dev v4",
	"ip -n ppbench-a link set v1 up", "ip -n ppbench-r link set v2 up",
	"ip -n ppbench-b link set v3 up", "ip -n ppbench-r link set v4 up",
	"ip -n ppbench-a route add default via 10.0.1.1", "ip -n ppbench-b route add default via 10.0.2.1",
	"ip netns exec ppbench-r sysctl -qw net.ipv4.ip_forward=1",
}

// tcp compares one TCP stream through a router that forwards in the guest with one through plain veth pairs. The pairs
// are measured without GRO and with it, and the faster counts. Each is measured twice: with sender and receiver on
// cores of their own, and where the scheduler puts them, which makes single runs differ far more.
func tcp(ctx context.Context, o options) ([]table, error) {
	dir, err := os.MkdirTemp("", "ppbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tcp.yaml")
	if err := os.WriteFile(file, []byte(tcpLab), 0o644); err != nil {
		return nil, err
	}
	in, err := start(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer in.stop()
	if _, err := in.run(ctx, "apply", "-f", file); err != nil {
		return nil, err
	}
	defer func() {
		for _, n := range []string{"a", "r", "b"} {
			_ = ip(context.WithoutCancel(ctx), "", "netns", "del", "ppbench-"+n)
		}
	}()
	for _, line := range plainVeth {
		if out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}

	space := func(element string) string {
		return in.dirs.Node(node).Namespace(model.ID{Network: "tcp", Element: element})
	}
	server, err := hostAddress(ctx, space("h2"))
	if err != nil {
		return nil, err
	}
	systems := []struct {
		name             string
		from, to, target string
		gro              bool
		pinned, free     []float64
	}{
		{name: "polyplane", from: space("h1"), to: space("h2"), target: server},
		{name: "plain veth", from: "/run/netns/ppbench-a", to: "/run/netns/ppbench-b", target: "10.0.2.2"},
		{name: "plain veth, GRO on", from: "/run/netns/ppbench-a", to: "/run/netns/ppbench-b",
			target: "10.0.2.2", gro: true},
	}
	for round := range 2*o.rounds + 1 {
		for i := range systems {
			s := &systems[(i+round)%len(systems)]
			if strings.HasPrefix(s.name, "plain") {
				state := "off"
				if s.gro {
					state = "on"
				}
				for _, d := range []string{"a v1", "b v3", "r v2", "r v4"} {
					ns, dev, _ := strings.Cut(d, " ")
					if _, err := inNamespace(ctx, "/run/netns/ppbench-"+ns, "ethtool", "-K", dev, "gro",
						state); err != nil {
						return nil, err
					}
				}
			}
			pinned, err := iperf(ctx, s.from, s.to, s.target, "-A", "0,1")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			free, err := iperf(ctx, s.from, s.to, s.target)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d %s: %.1f Gbit/s pinned, %.1f free\n", round, s.name, pinned, free)
			if round > 0 {
				s.pinned, s.free = append(s.pinned, pinned), append(s.free, free)
			}
		}
	}
	// best compares with the better of the plain pairs.
	best := func(ours, without, with []float64) (string, error) {
		name, base := systems[1].name, without
		if stats.Median(with) > stats.Median(without) {
			name, base = systems[2].name, with
		}
		r, err := stats.PairedRatio(base, ours, stats.BootstrapOptions{Seed: uint64(o.seed)})
		return fmt.Sprintf("**%s** (%s)", ratio(r), name), err
	}
	pinned, err := best(systems[0].pinned, systems[1].pinned, systems[2].pinned)
	if err != nil {
		return nil, err
	}
	free, err := best(systems[0].free, systems[1].free, systems[2].free)
	if err != nil {
		return nil, err
	}
	t := table{
		Name:  "tcp",
		Title: "One TCP stream host → router (guest) → host on one node",
		Columns: []string{"system", "sender on core 0, receiver on core 1: median, Gbit/s",
			"placed by the scheduler: median, Gbit/s"},
		Note: fmt.Sprintf("polyplane / the better plain veth, asked for ≥ 0.9: pinned %s, placed by the scheduler "+
			"%s. %d interleaved runs of "+
			"iperf3 each, 3 s, congestion control cubic; forwarding happens on the cores of sender and receiver.",
			pinned, free, 2*o.rounds),
		Raw: map[string][]float64{},
	}
	for _, s := range systems {
		t.Rows = append(t.Rows, []string{s.name, fmt.Sprintf("%.1f", stats.Median(s.pinned)),
			fmt.Sprintf("%.1f", stats.Median(s.free))})
		t.Raw.(map[string][]float64)[s.name+", pinned"] = s.pinned
		t.Raw.(map[string][]float64)[s.name+", free"] = s.free
	}
	return []table{t}, nil
}

// hostAddress is the first global IPv4 address in the namespace.
func hostAddress(ctx context.Context, space string) (string, error) {
	out, err := inNamespace(ctx, space, "ip", "-o", "-4", "addr", "show", "scope", "global")
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(out, "inet ")
	if !ok {
		return "", fmt.Errorf("no address in %s", space)
	}
	address, _, _ := strings.Cut(rest, "/")
	return address, nil
}

// iperf returns the Gbit/s that one TCP stream of three seconds brought to the receiver.
func iperf(ctx context.Context, from, to, target string, flags ...string) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const port = "5301"
	server := exec.CommandContext(ctx, "nsenter", "--net="+to, "iperf3", "-s", "-1", "-p", port)
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer server.Wait()
	defer cancel()
	for i := 0; ; i++ { // until it listens
		out, err := inNamespace(ctx, to, "ss", "-Hltn", "sport", "=", ":"+port)
		if err == nil && strings.TrimSpace(out) != "" {
			break
		}
		if i == 200 {
			return 0, fmt.Errorf("iperf3 -s does not listen: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	out, err := inNamespace(ctx, from,
		append([]string{"iperf3", "-c", target, "-p", port, "-t", "3", "-O", "1", "-C", "cubic", "-J"}, flags...)...)
	if err != nil {
		return 0, err
	}
	var result struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return 0, err
	}
	if result.End.Received.Rate == 0 {
		return 0, fmt.Errorf("iperf3 received nothing (%s bytes of output)", strconv.Itoa(len(out)))
	}
	return result.End.Received.Rate / 1e9, nil
}
