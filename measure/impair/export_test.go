package impair

import "fmt"

// Counts are what the device did.
type Counts struct {
	Frames, Limited, Lost, Duplicated, Corrupted, Detoured uint64
}

// Counts reads what the device did since Set.
func (d *Device) Counts() (Counts, error) {
	var c programFault
	if err := d.objects.Faults.Lookup(uint32(0), &c); err != nil {
		return Counts{}, fmt.Errorf("faulty device: read the counts: %w", err)
	}
	return Counts{c.Frames, c.Limited, c.Lost, c.Duplicated, c.Corrupted, c.Detoured}, nil
}
