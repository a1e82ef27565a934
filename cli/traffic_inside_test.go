package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api/client"
)

// reports as iperf3 3.12 prints them, shortened.
const (
	udpReport = `{"end":{"streams":[{"udp":{"seconds":2.0,"jitter_ms":0.064,"lost_packets":30,"packets":12000,` +
		`"out_of_order":3}},{"udp":{"seconds":2.0,"jitter_ms":0.02,"lost_packets":1,"packets":8000,"out_of_order":0}}],` +
		`"sum_received":{"bits_per_second":1432112.0}}}`
	tcpReport = `{"end":{"streams":[{"sender":{"mean_rtt":2000},"receiver":{"bits_per_second":5e6}}],` +
		`"sum_sent":{"retransmits":7},"sum_received":{"bits_per_second":5e6}}}`
)

// iperf has a lab in which iperf3 runs inside h1, as a server, and r1, as a client that says this.
func iperf(t *testing.T, says string, code int) *fake {
	f := lab()
	done := make(chan struct{})
	f.inside = func(c control.Command, s control.Stdio) (int, error) {
		if strings.Contains(strings.Join(c.Args, " "), "--server") {
			fmt.Fprint(s.Out, "-----\nServer listening on 5201 (test #1)\n")
			<-done
			return 0, nil
		}
		close(done)
		fmt.Fprint(s.Out, says)
		return code, nil
	}
	return f
}

// TestTrafficFromInside measures as somebody does who has no root on the machine: with two processes inside.
func TestTrafficFromInside(t *testing.T) {
	f := iperf(t, udpReport, 0)
	r := run(t, f, "traffic", "lab/r1", "lab/h1", "--inside", "--streams", "2", "--size", "128")
	if r.code != ExitOK || r.out != "lab/r1 → lab/h1: to 10.0.0.2, from inside, by iperf3\n"+
		"UDP, frames of 128 bytes, 2 streams, 10 kp/s asked for, for 2 s\n"+
		"sent 20000, lost 31 (0.155 %), reordered 3, jitter 64 µs, 1.43 Mbit/s of payload arrived\n" {
		t.Errorf("got %+v", r)
	}
	want := []string{"timeout 32 iperf3 --server --one-off --forceflush --bind 10.0.0.2 --port 5201",
		"timeout 32 iperf3 --client 10.0.0.2 --port 5201 --json --time 2 --parallel 2 --udp --length 82 --bitrate 3280000"}
	for i, w := range want { // 128 bytes have 82 of payload; two streams have 5,000 of them a second each
		if got := strings.Join(f.commands[i].Args, " "); got != w {
			t.Errorf("command %d is %q, want %q", i, got, w)
		}
	}
	r = run(t, iperf(t, strings.ReplaceAll(udpReport, "000,", "0,"), 0), "traffic", "lab/r1", "lab/h1", "--inside")
	if r.code != ExitOK || !strings.Contains(r.out, "warning: the source fell short") {
		t.Errorf("a slow source: %+v", r)
	}
	r = run(t, iperf(t, tcpReport, 0), "traffic", "lab/r1", "lab/h1:r1", "--inside", "--tcp", "--duration", "3s")
	if r.code != ExitOK || !strings.HasSuffix(r.out,
		"TCP, 1 connection, 3 s: 5 Mbit/s, 7 retransmissions, round trip 2 ms\n") {
		t.Errorf("TCP: %+v", r)
	}
	out := filepath.Join(t.TempDir(), "x.json")
	r = run(t, iperf(t, udpReport, 0), "traffic", "lab/r1", "lab/h1", "--inside", "-o", "json", "--out", out)
	var is, kept insideReport
	data, err := os.ReadFile(out)
	if err != nil || json.Unmarshal([]byte(r.out), &is) != nil || json.Unmarshal(data, &kept) != nil ||
		is.UDP.Sent != 20000 || kept.UDP.Lost != 31 || is.From.String() != "lab/r1" {
		t.Errorf("as JSON: %v, %+v", err, r)
	}
}

// TestTrafficFromInsideRefuses what cannot be had there, and tells why nothing was measured.
func TestTrafficFromInsideRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"lab/r1 lab/h1 --search mlr":               "--search needs root on the machine that has the elements",
		"lab/r1 lab/h1 --flows 7":                  "--flows needs root",
		"lab/r1 lab/h1 --rate max":                 "a rate is needed",
		"lab/r1 lab/h1 --size imix":                "all frames are of one size",
		"lab/r1 lab/h1 --duration 1h":              "must be 1s to 10m0s, not 1h0m0s",
		"lab/r1 lab/h1 -o csv":                     "there is no CSV",
		"lab/r1 lab/h1 lab/h1 lab/r1 --rate 1kpps": "one pair at a time",
	} {
		f := lab()
		if r := run(t, f, append([]string{"traffic", "--inside"}, strings.Fields(args)...)...); r.code != ExitUsage ||
			!strings.Contains(r.err, want) || len(f.commands) > 0 {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	for name, test := range map[string]struct {
		args string
		does func(control.Command, control.Stdio) (int, error)
		want string
	}{
		"stopped":      {"lab/h1 lab/r2", nil, "lab/r2 is failed; it must run"},
		"no element":   {"lab/h1 lab/r9", nil, `no element "r9"`},
		"no interface": {"lab/h1 lab/r1:x", nil, "lab/r1 has no interface x"},
		"no iperf3": {"lab/r1 lab/h1", func(control.Command, control.Stdio) (int, error) { return 127, nil },
			"needs Debian's package iperf3"},
		"another one": {"lab/r1 lab/h1", func(_ control.Command, s control.Stdio) (int, error) {
			fmt.Fprint(s.Err, "iperf3: error - unable to start listener: Address already in use\n")
			return 1, nil
		}, "another measurement of it may be under way"},
		"a viewer": {"lab/r1 lab/h1", func(control.Command, control.Stdio) (int, error) {
			return 0, &client.Error{Status: http.StatusForbidden, Detail: "viewers see, and change nothing"}
		}, "viewers see"},
	} {
		f := lab()
		f.inside = test.does
		if r := run(t, f, append([]string{"traffic", "--inside"}, strings.Fields(test.args)...)...); r.code == ExitOK ||
			!strings.Contains(r.err, test.want) {
			t.Errorf("%s: %+v, want %q", name, r, test.want)
		}
	}
	// What an element's root lets its iperf3 say is bounded, and never believed without a look.
	for says, want := range map[string]string{"\x1b[2Jno": "read iperf3's report", `{"error":"\u001b[2Junreachable"}`: "iperf3:",
		strings.Repeat("x", maxInsideOutput+1): "says more than", `{"end":{}}`: "no stream in it"} {
		r := run(t, iperf(t, says, 0), "traffic", "lab/r1", "lab/h1", "--inside")
		if r.code != ExitFailed || !strings.Contains(r.err, want) || strings.Contains(r.err, "\x1b") {
			t.Errorf("%.20q: %+v, want %q", says, r, want)
		}
	}
}
