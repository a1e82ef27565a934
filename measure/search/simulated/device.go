// Package simulated is a device under test that exists only as arithmetic: what it does is known exactly, so a search can
// be checked against it. The same device is written down in ../testdata/record.py, to let MLRsearch search it too.
package simulated

import (
	"context"
	"math"
	"time"

	"github.com/polyplane/polyplane/measure/search"
)

// Device forwards up to Capacity frames/s, less a share that it always loses.
type Device struct {
	Name     string  `json:"name"`
	Capacity float64 `json:"capacity"` // frames/s
	Noise    float64 `json:"noise"`    // relative standard deviation of the capacity from trial to trial
	Floor    float64 `json:"floor"`    // share of frames lost at any rate
	Drift    float64 `json:"drift"`    // relative change of the capacity per second of trials
	Seed     uint64  `json:"seed"`

	trials  uint64
	elapsed float64
}

// Trial implements search.Device.
func (d *Device) Trial(_ context.Context, rate float64, duration time.Duration) (search.Trial, error) {
	seconds := duration.Seconds()
	d.trials++
	capacity := d.Capacity * (1 + d.Drift*d.elapsed) * (1 + d.Noise*normal(d.Seed, d.trials))
	d.elapsed += seconds
	sent := math.Floor(rate * seconds)
	through := math.Min(sent, math.Floor(max(capacity, 0)*seconds))
	received := through - math.Floor(through*d.Floor)
	return search.Trial{Rate: rate, Duration: duration, Intended: uint64(sent), Sent: uint64(sent), Received: uint64(received)}, nil
}

// normal is a standard normal number for the n-th trial: Box and Muller's formula over splitmix64.
func normal(seed, n uint64) float64 {
	u := (float64(mix(seed*0x10001+2*n)>>11) + 0.5) / (1 << 53)
	v := (float64(mix(seed*0x10001+2*n+1)>>11) + 0.5) / (1 << 53)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
