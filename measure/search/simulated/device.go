// Package simulated is a device under test that exists only as arithmetic: what it does is known exactly, so a search
// can be checked against it. The same device is written down in ../testdata/record.py, to let MLRsearch search it too.
package simulated

import (
	"context"
	"math"
	"time"

	"github.com/polyplane/polyplane/measure/search"
)

// Device forwards up to Capacity frames/s, less a share that it always loses. What a trial finds depends on the device,
// on the load, on how often the device had that load for that long before, and, where it drifts, on the time: never on
// what else was tried. So two searches that ask the same question get the same answer, whatever their ways there.
type Device struct {
	Name     string  `json:"name"`
	Capacity float64 `json:"capacity"` // frames/s
	Noise    float64 `json:"noise"`    // relative standard deviation of the capacity from trial to trial
	Floor    float64 `json:"floor"`    // share of frames lost at any rate
	Drift    float64 `json:"drift"`    // relative change of the capacity per second of trials
	Seed     uint64  `json:"seed"`

	before  map[question]uint64
	elapsed float64
}

// question is a load (frames/s) and a duration (ms, rounded).
type question struct {
	load     float64
	duration uint64
}

// Trial implements search.Device.
func (d *Device) Trial(_ context.Context, rate float64, duration time.Duration) (search.Trial, error) {
	seconds := duration.Seconds()
	if d.before == nil {
		d.before = map[question]uint64{}
	}
	q := question{rate, uint64(math.Floor(seconds*1000 + 0.5))}
	d.before[q]++
	capacity := d.Capacity * (1 + d.Drift*d.elapsed) * (1 + d.Noise*normal(d.Seed, d.before[q]))
	d.elapsed += seconds
	sent := math.Floor(rate * seconds)
	through := math.Min(sent, math.Floor(max(capacity, 0)*seconds))
	received := through - math.Floor(through*d.Floor)
	return search.Trial{Rate: rate, Duration: duration, Intended: uint64(sent), Sent: uint64(sent),
		Received: uint64(received)}, nil
}

// normal is the n-th of a series of standard normal numbers: Box and Muller's formula over splitmix64.
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
