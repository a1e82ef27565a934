package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// bareKernel makes, by two runs of `ip -batch`, n namespaces and n-1 veth pairs with both ends up and an address each.
// Any such system has to make at least this. The pairs stay in one namespace of our own: moving them, which a real
// network needs, would take longer. So this is the hardest baseline that we know.
func bareKernel(ctx context.Context, n int) (made, removed time.Duration, err error) {
	const home = "ppbench-bare"
	if err := ip(ctx, "", "netns", "add", home); err != nil {
		return 0, 0, err
	}
	var spaces, links, gone strings.Builder
	for i := range n {
		fmt.Fprintf(&spaces, "netns add ppbench-%d\n", i)
		fmt.Fprintf(&gone, "netns del ppbench-%d\n", i)
	}
	for i := range n - 1 {
		a := fmt.Sprintf("10.%d.%d", i>>6&255, 0)
		fmt.Fprintf(&links, "link add a%d up group 7 type veth peer name b%d\nlink set b%d up\n", i, i, i)
		base := (i & 63) * 4
		fmt.Fprintf(&links, "addr add %s.%d/30 dev a%d\naddr add %s.%d/30 dev b%d\n", a, base+1, i, a, base+2, i)
	}
	defer func() {
		// Nothing may stay, whatever happened. So the deadline of ctx must not stop this.
		_ = ip(context.WithoutCancel(ctx), gone.String(), "-force", "-batch", "-")
		_ = ip(context.WithoutCancel(ctx), "", "netns", "del", home)
	}()
	start := time.Now()
	if err := ip(ctx, spaces.String(), "-batch", "-"); err != nil {
		return 0, 0, err
	}
	if err := ip(ctx, links.String(), "-n", home, "-batch", "-"); err != nil {
		return 0, 0, err
	}
	made = time.Since(start)

	start = time.Now()
	// One deletion by group waits for the kernel once. 999 single ones take 23 s.
	if err := ip(ctx, "", "-n", home, "link", "del", "group", "7"); err != nil {
		return 0, 0, err
	}
	if err := ip(ctx, gone.String(), "-batch", "-"); err != nil {
		return 0, 0, err
	}
	return made, time.Since(start), nil
}

func ip(ctx context.Context, input string, args ...string) error {
	c := exec.CommandContext(ctx, "ip", args...)
	c.Stdin = strings.NewReader(input)
	var out strings.Builder
	c.Stderr = &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, firstLine(out.String()))
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// mininetLine is the same line in Mininet 2.3: hosts joined by plain veth pairs (its cheapest link) with addresses;
// forwarding is left off, which spares it a command a router.
const mininetLine = `
import sys, time
from mininet.net import Mininet
from mininet.log import setLogLevel
setLogLevel('error')
n = int(sys.argv[1])
t = time.time()
net = Mininet(build=False)
routers = [net.addHost('r%d' % i, ip=None) for i in range(n)]
for i in range(n - 1):
    a = '10.%d.%d' % (i >> 6 & 255, 0)
    base = (i & 63) * 4
    net.addLink(routers[i], routers[i + 1],
                params1={'ip': '%s.%d/30' % (a, base + 1)}, params2={'ip': '%s.%d/30' % (a, base + 2)})
net.build()
made = time.time() - t
t = time.time()
net.stop()
print(made, time.time() - t)
`

// mininet returns how long the Debian package's Mininet takes for the line.
func mininet(ctx context.Context, n int) (made, removed time.Duration, err error) {
	script, err := os.CreateTemp("", "ppbench-*.py")
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(script.Name())
	if _, err := script.WriteString(mininetLine); err != nil {
		return 0, 0, err
	}
	if err := script.Close(); err != nil {
		return 0, 0, err
	}
	// Mininet gets a namespace of its own, so that its devices are not the host's. PATH leads to Debian's Python, where
	// Debian's packages live.
	const home = "ppbench-mininet"
	if err := ip(ctx, "", "netns", "add", home); err != nil {
		return 0, 0, err
	}
	defer func() { _ = ip(context.WithoutCancel(ctx), "", "netns", "del", home) }()
	c := exec.CommandContext(ctx, "ip", "netns", "exec", home, "/usr/bin/python3", script.Name(), fmt.Sprint(n))
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("mininet: %w: %s", err, lastLine(stderr.String()))
	}
	var up, down float64
	if _, err := fmt.Sscan(string(out), &up, &down); err != nil {
		return 0, 0, fmt.Errorf("mininet printed %q", firstLine(string(out)))
	}
	return time.Duration(up * 1e9), time.Duration(down * 1e9), nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
