// Package tools measures with well-known means where our own frames do not suffice: TCP by iperf3, round trips by ICMP
// echo, and connections accepted per second. All run inside given network namespaces.
package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/measure/netdev"
)

// TCPOptions describe a TCP test.
type TCPOptions struct {
	Client, Server string     // namespaces, as in netdev.Ref
	Address        netip.Addr // the server's
	Port           uint16     // 0: 5201
	Duration       time.Duration
	Streams        int // parallel connections; 0: 1
	Length         int // bytes a write; 0: iperf3's own
	Reverse        bool
}

// TCP is what iperf3 measured, at the receiver.
type TCP struct {
	BitRate     float64         `json:"bit_rate"`   // bit/s, all streams
	PerStream   []float64       `json:"per_stream"` // bit/s
	Retransmits int             `json:"retransmits"`
	MeanRTT     time.Duration   `json:"mean_rtt"`   // as TCP sees it; of the first stream
	SenderCPU   float64         `json:"sender_cpu"` // % of a core
	ReceiverCPU float64         `json:"receiver_cpu"`
	Congestion  string          `json:"congestion"` // control algorithm
	Raw         json.RawMessage `json:"raw,omitempty"`
}

// iperfReport is the part of iperf3's JSON that we read.
type iperfReport struct {
	Error string `json:"error"`
	End   struct {
		Streams []struct {
			Sender struct {
				MeanRTT float64 `json:"mean_rtt"` // µs
			} `json:"sender"`
			Receiver struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"receiver"`
		} `json:"streams"`
		SumSent struct {
			Retransmits int `json:"retransmits"`
		} `json:"sum_sent"`
		SumReceived struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
		CPU struct {
			Host   float64 `json:"host_total"`
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
		Congestion string `json:"sender_tcp_congestion"`
	} `json:"end"`
}

// ParseIperf reads iperf3's JSON.
func ParseIperf(b []byte) (TCP, error) {
	var r iperfReport
	if err := json.Unmarshal(b, &r); err != nil {
		return TCP{}, fmt.Errorf("read iperf3's report: %w", err)
	}
	if r.Error != "" {
		return TCP{}, fmt.Errorf("iperf3: %s", r.Error)
	}
	if len(r.End.Streams) == 0 {
		return TCP{}, errors.New("read iperf3's report: no stream in it")
	}
	t := TCP{BitRate: r.End.SumReceived.BitsPerSecond, Retransmits: r.End.SumSent.Retransmits,
		SenderCPU:   r.End.CPU.Host,
		ReceiverCPU: r.End.CPU.Remote, Congestion: r.End.Congestion, Raw: b,
		MeanRTT: time.Duration(r.End.Streams[0].Sender.MeanRTT * float64(time.Microsecond))}
	for _, s := range r.End.Streams {
		t.PerStream = append(t.PerStream, s.Receiver.BitsPerSecond)
	}
	return t, nil
}

// UDP is what iperf3 measured of datagrams, at the receiver.
type UDP struct {
	Sent      int64           `json:"sent"`      // datagrams
	Lost      int64           `json:"lost"`      // of these
	Reordered int64           `json:"reordered"` // arrived after one of their stream that was sent later
	Jitter    time.Duration   `json:"jitter"`    // RFC 3550, at the end
	BitRate   float64         `json:"bit_rate"`  // of payload that arrived, bit/s
	Seconds   float64         `json:"seconds"`   // for which was sent
	Raw       json.RawMessage `json:"raw,omitempty"`
}

// ParseIperfUDP reads iperf3's JSON of a test with datagrams.
func ParseIperfUDP(b []byte) (UDP, error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			Streams []struct {
				UDP struct {
					OutOfOrder int64   `json:"out_of_order"`
					Packets    int64   `json:"packets"`
					Lost       int64   `json:"lost_packets"`
					Jitter     float64 `json:"jitter_ms"`
					Seconds    float64 `json:"seconds"`
				} `json:"udp"`
			} `json:"streams"`
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return UDP{}, fmt.Errorf("read iperf3's report: %w", err)
	}
	if r.Error != "" {
		return UDP{}, fmt.Errorf("iperf3: %s", r.Error)
	}
	if len(r.End.Streams) == 0 {
		return UDP{}, errors.New("read iperf3's report: no stream in it")
	}
	u := UDP{BitRate: r.End.SumReceived.BitsPerSecond, Raw: b}
	for _, s := range r.End.Streams {
		u.Sent += s.UDP.Packets
		u.Lost += s.UDP.Lost
		u.Reordered += s.UDP.OutOfOrder
		u.Jitter = max(u.Jitter, time.Duration(s.UDP.Jitter*float64(time.Millisecond)))
		u.Seconds = max(u.Seconds, s.UDP.Seconds)
	}
	return u, nil
}

// RunTCP runs one iperf3 test: a server that ends after it, and a client.
func RunTCP(ctx context.Context, o TCPOptions) (TCP, error) {
	o.Port = cmp.Or(o.Port, 5201)
	if o.Duration < time.Second {
		return TCP{}, fmt.Errorf("TCP test: a duration of %v; iperf3 counts whole seconds, from 1", o.Duration)
	}
	iperf, err := exec.LookPath("iperf3")
	if err != nil {
		return TCP{}, fmt.Errorf("TCP test: %w (Debian's package is iperf3)", err)
	}
	port := strconv.Itoa(int(o.Port))
	server := exec.CommandContext(ctx, iperf, "--server", "--one-off", "--forceflush", "--bind",
		o.Address.String(), "--port", port)
	listening := newLines("Server listening")
	server.Stdout = listening
	if err := startIn(o.Server, server); err != nil {
		return TCP{}, fmt.Errorf("TCP test: start the server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() {
		server.Process.Kill() // harmless when it is gone
		<-ended
	}()
	select {
	case <-listening.seen:
	case err := <-ended:
		ended <- err
		return TCP{}, fmt.Errorf("TCP test: the server ended at once (%w): %s", err, listening)
	case <-ctx.Done():
		return TCP{}, ctx.Err()
	}
	args := []string{"--client", o.Address.String(), "--port", port, "--json", "--time",
		strconv.Itoa(int(o.Duration.Round(time.Second).Seconds())), "--parallel", strconv.Itoa(max(o.Streams, 1))}
	if o.Length > 0 {
		args = append(args, "--length", strconv.Itoa(o.Length))
	}
	if o.Reverse {
		args = append(args, "--reverse")
	}
	client := exec.CommandContext(ctx, iperf, args...)
	var out, problem bytes.Buffer
	client.Stdout, client.Stderr = &out, &problem
	if err := startIn(o.Client, client); err != nil {
		return TCP{}, fmt.Errorf("TCP test: start the client: %w", err)
	}
	wait := client.Wait()
	t, err := ParseIperf(out.Bytes())
	if err == nil && wait != nil {
		err = fmt.Errorf("%w: %s", wait, strings.TrimSpace(problem.String()))
	}
	if err != nil {
		return t, fmt.Errorf("TCP test to %v: %w", o.Address, err)
	}
	return t, nil
}

// startIn starts a command inside a namespace: the child inherits that of the thread which starts it.
func startIn(namespace string, c *exec.Cmd) error {
	return netdev.In(namespace, func() error {
		runtime.LockOSThread()
		return c.Start()
	})
}

// lines is a writer that tells when a phrase has been written.
type lines struct {
	phrase string
	text   bytes.Buffer
	seen   chan struct{}
	done   bool
}

func newLines(phrase string) *lines { return &lines{phrase: phrase, seen: make(chan struct{})} }

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.text.Write(b)
	if !l.done && strings.Contains(l.text.String(), l.phrase) {
		l.done = true
		close(l.seen)
	}
	return len(b), nil
}

// String is what was written.
func (l *lines) String() string { return strings.TrimSpace(l.text.String()) }
