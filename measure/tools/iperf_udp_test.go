package tools

import (
	"strings"
	"testing"
	"time"
)

// TestParseIperfUDP reads what iperf3 3.12 printed of a second of datagrams, some of which found the socket full.
func TestParseIperfUDP(t *testing.T) {
	const report = `{"start":{},"end":{"streams":[{"udp":{"socket":5,"seconds":1.000105,"bytes":179856,
		"bits_per_second":1438696.9,"jitter_ms":0.06395626649919774,"lost_packets":30,"packets":9992,
		"lost_percent":0.3,"out_of_order":2,"sender":true}}],"sum_received":{"bits_per_second":1432112.027}}}`
	u, err := ParseIperfUDP([]byte(report))
	if err != nil || u.Sent != 9992 || u.Lost != 30 || u.Reordered != 2 || u.Jitter.Round(time.Microsecond) !=
		64*time.Microsecond || u.BitRate < 1.4e6 || u.Seconds < 1 {
		t.Errorf("%+v, %v", u, err)
	}
	for bad, want := range map[string]string{"": "read iperf3's report", `{"error":"unable to connect"}`: "unable to connect",
		`{"end":{}}`: "no stream"} {
		if _, err := ParseIperfUDP([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
