package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// An intrusion detection system inside an element may have been taken over, and what it reports are addresses, which
// senders make up. So nobody believes its alerts as they are. They are read strictly and not too fast. They can name
// only elements of their own network. Nothing is done to an element before its own port has been seen to send what the
// alert is about.
const (
	// maxAlert is the longest line that is read, and alertsPerSecond how many alerts are looked at. Once something was
	// done about a source, nothing more is done about it for alertPause: one attack makes many alerts.
	maxAlert        = 64 << 10
	alertsPerSecond = 5
	alertPause      = time.Minute
	// alertConfirm is how long the named element's ports are listened to.
	alertConfirm = 10 * time.Second
)

// alert is one of Suricata's alerts, as its eve.json has it. Source is who attacks, and Target who is attacked.
type alert struct {
	Source, Target netip.Addr
	Signature      string
	Severity       int
}

// party is one of the two ends that a rule with a target names.
type party struct {
	IP netip.Addr `json:"ip"`
}

// parseAlert reads a line; ok is false if the line is no alert.
func parseAlert(line []byte) (a alert, ok bool) {
	var raw struct {
		Event  string     `json:"event_type"`
		Source netip.Addr `json:"src_ip"`
		Target netip.Addr `json:"dest_ip"`
		Alert  struct {
			Signature string `json:"signature"`
			Severity  int    `json:"severity"`
			Source    *party `json:"source"`
			Target    *party `json:"target"`
		} `json:"alert"`
	}
	if json.Unmarshal(line, &raw) != nil || raw.Event != "alert" {
		return a, false
	}
	// A rule may match the answer that betrays an attack. Then the packet's sender is the victim. Only the rule's
	// author knows, and says so by `target`.
	if raw.Alert.Source != nil && raw.Alert.Target != nil {
		raw.Source, raw.Target = raw.Alert.Source.IP, raw.Alert.Target.IP
	}
	if !raw.Source.IsValid() || !raw.Target.IsValid() || raw.Source.Zone() != "" || raw.Target.Zone() != "" {
		return a, false
	}
	words := strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(raw.Alert.Signature, ""))
	if len(words) > 200 {
		words = strings.ToValidUTF8(words[:200], "") + "…"
	}
	return alert{raw.Source.Unmap(), raw.Target.Unmap(), words, raw.Alert.Severity}, words != ""
}

// is tells whether a frame belongs to the flow that the alert is about.
func (a alert) is(frame []byte) bool {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	var from, to netip.Addr
	switch l := p.NetworkLayer().(type) {
	case *layers.IPv4:
		from, _ = netip.AddrFromSlice(l.SrcIP.To4())
		to, _ = netip.AddrFromSlice(l.DstIP.To4())
	case *layers.IPv6:
		from, _ = netip.AddrFromSlice(l.SrcIP)
		to, _ = netip.AddrFromSlice(l.DstIP)
	}
	return from == a.Source && to == a.Target
}

func (c *CLI) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "watch",
		Short:   "Follow what others find in networks",
		GroupID: groupNetworks,
		Args:    noCommand,
		RunE:    showHelp,
	}
	cmd.AddCommand(c.watchAlertsCommand())
	return cmd
}

func (c *CLI) watchAlertsCommand() *cobra.Command {
	file, policy, severity := "/var/log/suricata/eve.json", string(model.AttackTell), 3
	cmd := &cobra.Command{
		Use:   "alerts NET/ELEMENT",
		Short: "Follow the alerts of an intrusion detection system that runs in an element",
		Long: `Follow the alerts that Suricata, or another program that writes its format (EVE), writes in an element:
one line each, until ^C. With --policy quarantine, cut off the elements that the alerts are about.

An element can write anything, and addresses can be forged. So alerts are read strictly, and at most
five a second. They can name only elements of their own network, by the addresses that these have.
Before anything is done to an element, its own ports are listened to for ten seconds. Only what is
seen to come out of it, and did not come into it by another port, counts.`,
		Example: "  polyplane watch alerts lab/ids --eve /var/log/suricata/eve.json --policy quarantine",
		Args:    args(1, 1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			if p := model.AttackPolicy(policy); p != model.AttackTell && p != model.AttackQuarantine {
				return usageError(cmd, "--policy %s: tell or quarantine is expected", policy)
			}
			if !strings.HasPrefix(file, "/") {
				return usageError(cmd, "--eve %s: an absolute path inside the element is expected", file)
			}
			return c.watchAlerts(cmd.Context(), id, file, model.AttackPolicy(policy), severity)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	cmd.Flags().StringVar(&file, "eve", file, "the `FILE` inside the element that alerts are written to")
	cmd.Flags().StringVar(&policy, "policy", policy, "what is done: tell, or quarantine")
	cmd.Flags().IntVar(&severity, "severity", severity, "leave out alerts of less weight: 1 is the gravest")
	return cmd
}

// follow is a shell script that prints what is written to a file from now on. It looks the file's end up first, and
// then prints a line by itself: from there on nothing is missed. A file that does not exist yet is read from its
// beginning.
const follow = `size=$(stat -L -c %s -- "$0" 2>/dev/null) || size=0; echo following; exec tail -c +$((size + 1)) -F -- "$0"`

// watchAlerts follows the file inside the element until ^C. Its first line comes from `follow` and says that it
// follows; it is no alert, so it only starts the message for the user.
func (c *CLI) watchAlerts(ctx context.Context, ids model.ID, file string, policy model.AttackPolicy,
	severity int) error {
	cl, err := c.connect()
	if err != nil {
		return err
	}
	of := ref{network: ids.Network, element: ids.Element}
	if err := lookUp(ctx, cl, of); err != nil {
		return err
	}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		command := control.Command{Args: []string{"sh", "-c", follow, file}}
		_, err := cl.Exec(ctx, ids, command, control.Stdio{Out: w, Err: io.Discard})
		w.CloseWithError(err)
		ended <- err
	}()
	watch := &alertWatch{c: c, cl: cl, ids: ids, policy: policy, done: map[netip.Addr]time.Time{}}
	in := bufio.NewReaderSize(r, maxAlert)
	for began := false; ; {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // too long to be an alert: its rest is skipped
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			line = nil
		}
		if err != nil {
			r.Close()
			watch.wg.Wait()
			if err := <-ended; err != nil && ctx.Err() == nil {
				return wrap(ctx, cl, err, of)
			}
			return nil
		}
		if !began {
			fmt.Fprintf(c.Err, "following %s in %s; ^C ends it\n", file, ids)
			began = true
		}
		if a, ok := parseAlert(line); ok && a.Severity <= severity {
			watch.take(ctx, a)
		}
	}
}

// alertWatch remembers how many alerts were looked at in this second, and when something was last done about each
// source. Only the goroutine that reads alerts uses these fields, so no lock guards them. Goroutines that listen to
// ports print as well: out keeps their lines apart.
type alertWatch struct {
	c      *CLI
	cl     Client
	ids    model.ID
	policy model.AttackPolicy

	second  time.Time
	taken   int
	skipped int
	done    map[netip.Addr]time.Time
	wg      sync.WaitGroup
	out     sync.Mutex
}

// say prints one alert with the element that it names and what was done.
func (w *alertWatch) say(a alert, who, what string) {
	w.out.Lock()
	defer w.out.Unlock()
	fmt.Fprintf(w.c.Out, "%s  %s  %s → %s  %s: %s\n", w.c.Now().Format("15:04:05"), who, a.Source, a.Target,
		a.Signature, w.c.hinted(what))
}

// take looks at one alert, unless too many came in this second.
func (w *alertWatch) take(ctx context.Context, a alert) {
	now := w.c.Now()
	if now.Sub(w.second) >= time.Second {
		if w.skipped > 0 {
			fmt.Fprintf(w.c.Err, "%s not looked at: more than %d a second\n",
				plural(w.skipped, "alert"), alertsPerSecond)
		}
		w.second, w.taken, w.skipped = now, 0, 0
	}
	if w.taken++; w.taken > alertsPerSecond {
		w.skipped++
		return
	}
	if last, ok := w.done[a.Source]; ok && now.Sub(last) < alertPause {
		return
	}
	if len(w.done) > 1024 { // somebody who makes up sources makes up many
		clear(w.done)
	}
	w.done[a.Source] = now
	elements, err := w.cl.Elements(ctx, w.ids.Network)
	if err != nil {
		w.say(a, "?", "nothing was done: "+err.Error())
		return
	}
	e, why := named(elements, w.ids, a.Source)
	switch {
	case e == nil:
		w.say(a, "?", "nothing was done: "+why)
	case w.policy == model.AttackTell:
		w.say(a, e.ID.String(), "nothing was done (--policy tell)")
	case e.Quarantine != "":
		w.say(a, e.ID.String(), "it is in quarantine already")
	default:
		w.wg.Go(func() { w.confirm(ctx, a, e) })
	}
}

// named returns the element with an address, if exactly one has it, and not the element that tells. Otherwise why says
// why not.
func named(elements []model.ElementView, ids model.ID, source netip.Addr) (found *model.ElementView, why string) {
	for i := range elements {
		e := &elements[i]
		if e.ID.Network != ids.Network || !has(e, source) {
			continue
		}
		if found != nil {
			return nil, "more than one element has that address"
		}
		found = e
	}
	switch {
	case found == nil:
		return nil, "no element of network " + ids.Network + " has that address: it is forged, or comes from outside"
	case found.ID == ids:
		return nil, "that is the element which tells"
	}
	return found, ""
}

func has(e *model.ElementView, a netip.Addr) bool {
	is := func(p netip.Prefix) bool { return p.Addr() == a }
	return slices.ContainsFunc(e.Element.Loopback, is) || slices.ContainsFunc(interfaceAddresses(&e.Element), is)
}

// confirm listens to the named element's own ports, and cuts it off if they are seen to send what the alert is about. A
// packet that came in by another of its ports is somebody else's, so that nobody can have a router punished by sending
// through it.
func (w *alertWatch) confirm(ctx context.Context, a alert, e *model.ElementView) {
	ctx, cancel := context.WithTimeout(ctx, alertConfirm)
	defer cancel()
	var mu sync.Mutex
	entered := false
	sent := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for i := range e.Element.Interfaces {
		port := model.PortID{ID: e.ID, Interface: e.Element.Interfaces[i].Name}
		wg.Go(func() {
			stream, err := w.cl.Capture(ctx, port)
			if err != nil {
				return
			}
			defer stream.Close()
			stop := context.AfterFunc(ctx, func() { stream.Close() })
			defer stop()
			in, err := pcapgo.NewNgReader(stream, pcapgo.NgReaderOptions{})
			for err == nil {
				var data []byte
				var options pcapgo.NgPacketOptions
				if data, _, options, err = in.ReadPacketDataWithOptions(); err != nil ||
					options.Flags == nil || !a.is(data) {
					continue
				}
				if options.Flags.Direction == pcapgo.NgEpbFlagDirectionInbound {
					mu.Lock()
					entered = true
					mu.Unlock()
					continue
				}
				select {
				case sent <- struct{}{}:
				default:
				}
			}
		})
	}
	seen := false
	select {
	case <-sent:
		// The element may only pass on the packet of somebody else. Then the packet comes in by another of its ports,
		// within the same second.
		seen = true
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	cancel()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	switch {
	case entered:
		w.say(a, e.ID.String(), "nothing was done: it passes on what another sends with its address")
		return
	case !seen:
		w.say(a, e.ID.String(), fmt.Sprintf("nothing was done: its ports did not send such packets within %s",
			alertConfirm))
		return
	}
	cut, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	_, err := w.cl.Quarantine(cut, e.ID, fmt.Sprintf("%s saw: %s (%s → %s)", w.ids, a.Signature, a.Source, a.Target))
	if err != nil {
		w.say(a, e.ID.String(), "it could not be cut off: "+err.Error())
		return
	}
	w.say(a, e.ID.String(), fmt.Sprintf("it was cut off (`polyplane release %s` ends that)", e.ID))
}
