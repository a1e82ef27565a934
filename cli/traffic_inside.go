package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	frames "github.com/polyplane/polyplane/measure/frame"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/tools"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Users without root on the machine measure from inside: two processes, one in each element. These may do what any
// command there may do, and count towards the elements' limits. What they send is metered like everything else that the
// elements send.

const (
	// maxInside bounds how long such a measurement lasts.
	maxInside = 10 * time.Minute
	// insideSlack is how long the two processes may take beyond that to begin and to end.
	insideSlack = 30 * time.Second
	// maxInsideOutput bounds, in bytes, what is read of them: an element's root decides what they say.
	maxInsideOutput = 1 << 20
	// insidePort is where the receiver listens: iperf3's own.
	insidePort = "5201"
)

// insideFlags are the flags of traffic that such a measurement knows.
var insideFlags = []string{"inside", "rate", "size", "duration", "streams", "ipv6", "tcp", "output", "out"}

// insideReport is what was measured, for -o json.
type insideReport struct {
	Format      int        `json:"format"`
	From        model.ID   `json:"from"`
	To          model.ID   `json:"to"`
	Destination netip.Addr `json:"destination"`
	Sizes       string     `json:"sizes,omitempty"` // bytes of a frame, its check sequence included
	Rate        float64    `json:"rate,omitempty"`  // asked for, frames/s
	Streams     int        `json:"streams"`
	UDP         *tools.UDP `json:"udp,omitempty"`
	TCP         *tools.TCP `json:"tcp,omitempty"`
}

// checkInside refuses what cannot be had from inside.
func checkInside(p *trafficPlan) error {
	for _, flag := range p.given {
		local := slices.Contains([]string{"instance", "server", "token-file", "name"}, flag)
		if !local && !slices.Contains(insideFlags, flag) {
			return fmt.Errorf("--%s needs root on the machine that has the elements; from inside them there are --%s",
				flag, strings.Join(insideFlags[1:], ", --"))
		}
	}
	switch {
	case len(p.pairs) != 1:
		return fmt.Errorf("from inside its elements, traffic measures one pair at a time, not %d", len(p.pairs))
	case p.duration < time.Second || p.duration > maxInside:
		return fmt.Errorf("from inside elements --duration must be 1s to %v, not %v", maxInside, p.duration)
	case p.mode == modeTCP:
	case p.fps == 0:
		return errors.New("--rate max: from inside a rate is needed, like --rate 10kpps; the slice's bounds hold as " +
			"well")
	case p.sizes.Mean() != math.Trunc(p.sizes.Mean()) || len(p.sizes.Of) > 1 || strings.Contains(p.size, "-") ||
		p.size == "imix" || p.size == "random":
		return fmt.Errorf("--size %s: from inside, all frames are of one size", p.size)
	}
	if filepath.Ext(p.out) == ".csv" || p.output.format == formatCSV {
		return errors.New("from inside there is no CSV; take -o json, or --out FILE.json")
	}
	return nil
}

// trafficInside measures by iperf3 in both elements.
func (c *CLI) trafficInside(ctx context.Context, p *trafficPlan) error {
	if err := checkInside(p); err != nil {
		return &Error{Code: ExitUsage, Err: err}
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	if err := p.resolve(c.refs(ctx)); err != nil {
		return err
	}
	pair := p.pairs[0]
	r := insideReport{Format: results.Format, From: pair.from.id(), To: pair.to.id(), Streams: p.streams}
	if r.Destination, err = c.insideAddress(ctx, cl, p); err != nil {
		return err
	}
	seconds := strconv.Itoa(int(math.Ceil(p.duration.Seconds())))
	args := []string{"--client", r.Destination.String(), "--port", insidePort, "--json", "--time", seconds,
		"--parallel", strconv.Itoa(p.streams)}
	if p.mode != modeTCP {
		r.Sizes, r.Rate = p.sizes.String(), p.fps
		length := int(p.sizes.Mean()) - p.kind.HeaderSize() - frames.FCS
		bits := p.fps / float64(p.streams) * float64(length) * 8
		args = append(args, "--udp", "--length", strconv.Itoa(length), "--bitrate",
			strconv.FormatFloat(bits, 'f', 0, 64))
	}
	out, err := c.iperfInside(ctx, cl, r.From, r.To, r.Destination, args, p.duration)
	if err != nil {
		return err
	}
	if p.mode == modeTCP {
		t, err := tools.ParseIperf(out)
		if err != nil {
			return failed("measure from %s to %s: %s", r.From, r.To, oneLine(err.Error()))
		}
		r.TCP = &t
	} else {
		u, err := tools.ParseIperfUDP(out)
		if err != nil {
			return failed("measure from %s to %s: %s", r.From, r.To, oneLine(err.Error()))
		}
		r.UDP = &u
	}
	return c.printInside(p, &r)
}

// insideAddress is where B is reached: at the interface that was named, or as `ping` would.
func (c *CLI) insideAddress(ctx context.Context, cl Client, p *trafficPlan) (netip.Addr, error) {
	from, to := p.pairs[0].from, p.pairs[0].to
	elements, err := cl.Elements(ctx, from.network)
	if err != nil {
		return netip.Addr{}, wrap(ctx, cl, err, ref{network: from.network})
	}
	if len(elements) == 0 {
		if err := lookUp(ctx, cl, ref{network: from.network}); err != nil {
			return netip.Addr{}, err
		}
	}
	var found [2]*model.ElementView
	for i, of := range []ref{from, to} {
		if found[i], err = findElement(elements, of.id()); err != nil {
			return netip.Addr{}, err
		}
		if e := found[i]; e.Phase != model.PhaseRunning {
			return netip.Addr{}, failed("%s is %s; it must run to be measured", of.id(), e.Phase)
		}
	}
	family := model.IPv4
	if p.ipv6 {
		family = model.IPv6
	}
	target := found[1].Element
	if to.iface != "" {
		at := slices.IndexFunc(target.Interfaces, func(f model.ResolvedInterface) bool { return f.Name == to.iface })
		if at < 0 {
			return netip.Addr{}, notFound("%s has no interface %s", to.id(), to.iface)
		}
		target.Interfaces, target.Loopback = target.Interfaces[at:at+1], nil
	}
	return pickAddress(&found[0].Element, &target, to.id(), family)
}

// iperfInside starts iperf3 as a server in one element, and runs it as a client in the other. Both end by themselves
// soon after the time that the measurement takes, whatever becomes of this command.
func (c *CLI) iperfInside(ctx context.Context, cl Client, from, to model.ID, at netip.Addr, args []string,
	duration time.Duration) ([]byte, error) {
	within := []string{"timeout", strconv.Itoa(int((duration + insideSlack).Seconds())), "iperf3"}
	ctx, cancel := context.WithTimeout(ctx, duration+2*insideSlack)
	defer cancel()
	server := &heard{phrase: "Server listening", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		command := control.Command{Args: append(slices.Clone(within), "--server", "--one-off", "--forceflush", "--bind",
			at.String(), "--port", insidePort)}
		code, err := cl.Exec(ctx, to, command, control.Stdio{Out: server, Err: server})
		if err == nil {
			err = insideEnd(to, code, server.String())
		}
		ended <- err
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case <-server.seen:
	case err := <-ended:
		ended <- nil
		if err == nil {
			err = failed("iperf3 in %s ended at once: %s", to, server)
		}
		return nil, wrap(ctx, cl, err, ref{})
	case <-ctx.Done():
		return nil, failed("iperf3 in %s has not begun to listen: %s", to, server)
	}
	out, problem := &heard{}, &heard{}
	code, err := cl.Exec(ctx, from, control.Command{Args: append(slices.Clone(within), args...)},
		control.Stdio{Out: out, Err: problem})
	switch {
	case err != nil:
		return nil, wrap(ctx, cl, err, ref{})
	case code != 0 && out.text.Len() == 0:
		return nil, insideEnd(from, code, problem.String())
	case out.over:
		return nil, failed("iperf3 in %s says more than %d bytes", from, maxInsideOutput)
	}
	return out.text.Bytes(), nil
}

// insideEnd explains why iperf3 inside an element ended.
func insideEnd(id model.ID, code int, said string) error {
	switch {
	case code == 0:
		return nil
	case code == 127 || code == 126:
		return failed("iperf3 cannot be run in %s: its node's machine needs Debian's package iperf3", id)
	case strings.Contains(said, "Address already in use"):
		return failed("something in %s listens on port %s already: another measurement of it may be under way", id,
			insidePort)
	}
	return failed("iperf3 in %s ended with status %d: %s", id, code, oneLine(said))
}

// heard is what a process inside says, up to a bound. seen is closed once the phrase was in it.
type heard struct {
	phrase string
	seen   chan struct{}

	mu         sync.Mutex
	text       bytes.Buffer
	done, over bool
}

// Write implements io.Writer.
func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := maxInsideOutput - h.text.Len(); len(b) > left {
		h.text.Write(b[:left])
		h.over = true
	} else {
		h.text.Write(b)
	}
	if h.seen != nil && !h.done && bytes.Contains(h.text.Bytes(), []byte(h.phrase)) {
		h.done = true
		close(h.seen)
	}
	return len(b), nil
}

// String is what was said, for people: one line, and not more than one.
func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return model.Shorten(oneLine(h.text.String()), 300)
}

// printInside prints what was measured, and writes it to a file besides.
func (c *CLI) printInside(p *trafficPlan, r *insideReport) error {
	if p.out != "" {
		var b bytes.Buffer
		if err := writeValue(&b, formatJSON, r); err != nil {
			return err
		}
		if err := writeWhole(p.out, b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	if p.output.format != formatTable {
		return writeValue(c.Out, p.output.format, r)
	}
	fmt.Fprintf(c.Out, "%s → %s: to %s, from inside, by iperf3\n", r.From, r.To, r.Destination)
	if t := r.TCP; t != nil {
		_, err := fmt.Fprintf(c.Out, "TCP, %s, %s: %s, %s, round trip %s\n", plural(r.Streams, "connection"),
			seconds(p.duration), bitRate(t.BitRate), plural(t.Retransmits, "retransmission"),
			nanoseconds(uint64(t.MeanRTT)))
		return err
	}
	u, share := r.UDP, 0.0
	if u.Sent > 0 {
		share = 100 * float64(u.Lost) / float64(u.Sent)
	}
	fmt.Fprintf(c.Out, "UDP, frames of %s bytes, %s, %s asked for, for %s\n", r.Sizes, plural(r.Streams, "stream"),
		packetRate(r.Rate), seconds(p.duration))
	if _, err := fmt.Fprintf(c.Out, "sent %d, lost %d (%.3g %%), reordered %d, jitter %s, %s of payload arrived\n",
		u.Sent, u.Lost, share, u.Reordered, nanoseconds(uint64(u.Jitter)), bitRate(u.BitRate)); err != nil {
		return err
	}
	if asked := r.Rate * u.Seconds; float64(u.Sent) < 0.99*asked {
		_, err := fmt.Fprintf(c.Out, "warning: the source fell short: %d of %.0f frames were sent; processes inside "+
			"%s have no more time, or its limits are reached\n", u.Sent, asked, r.From)
		return err
	}
	return nil
}
