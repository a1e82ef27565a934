package fabric

import (
	"testing"
	"time"
)

// BenchmarkBandwidth prints what of a link's bandwidth arrives, in per cent: UDP that is offered at twice the rate in
// both directions at once, in bytes of the receivers' interfaces, and the payload of 1 and 16 TCP connections.
func BenchmarkBandwidth(b *testing.B) {
	for _, bandwidth := range rates {
		for _, kind := range []string{"local link", "tunnel"} {
			links := func(b *testing.B) (x, y *element) {
				if kind == "local link" {
					n, x, y := twoElements(b)
					rate(bandwidth, n)
					return x, y
				}
				n1, n2, x, y := twoNodes(b, 1600)
				rate(bandwidth, n1, n2)
				return x, y
			}
			share := func(bits float64) float64 { return bits / float64(bandwidth) * 100 }
			b.Run(kind+"/"+bandwidth.String()+"/UDP", func(b *testing.B) {
				x, y := links(b)
				offer(b, x, y, "10.0.0.2", 2*bandwidth)
				offer(b, y, x, "10.0.0.1", 2*bandwidth)
				for b.Loop() {
					bytes, least, _ := window(b, 5*time.Second, x, y)
					b.ReportMetric(share(float64(bytes[0])*8/least.Seconds()), "%there")
					b.ReportMetric(share(float64(bytes[1])*8/least.Seconds()), "%back")
				}
			})
			for _, connections := range []string{"1", "16"} {
				b.Run(kind+"/"+bandwidth.String()+"/TCP "+connections, func(b *testing.B) {
					x, y := links(b)
					seconds := "10"
					if bandwidth < 10e6 {
						seconds = "30" // iperf3 writes in large pieces
					}
					for b.Loop() {
						b.ReportMetric(share(throughput(b, x, y, "10.0.0.2", "-P", connections, "-t",
							seconds, "-O", "2")), "%")
					}
				})
			}
		}
	}
}
