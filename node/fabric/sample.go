package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
)

// SampledFrame is a frame that passed a port.
type SampledFrame struct {
	At        time.Duration // since the sample began
	ToElement bool
	Length    int
	Data      []byte // its first bytes
}

// Sample is what passed a port from a moment on.
type Sample struct {
	Frames []SampledFrame
	// Span is the time in which Frames are everything that passed. A sample that becomes full ends early.
	Span time.Duration
}

// sampled is how many frames a sample of a port contains at most.
const sampled = queued

// Sample shows what passes ports in both directions, for some time, or until there is no room for more frames. So a
// busy port costs no more than another. It leaves out ports that the fabric does not have.
func (f *Fabric) Sample(ctx context.Context, ports []model.PortID, span time.Duration,
	snaplen int) (map[model.PortID]Sample, error) {
	captures := make(map[model.PortID]*capture, len(ports))
	f.mu.Lock()
	if f.pipe == nil {
		f.mu.Unlock()
		return nil, errClosed
	}
	began, _, err := clocks()
	for _, id := range ports {
		slot, ok := f.slots[id]
		if !ok || err != nil {
			continue
		}
		c := &capture{slot: slot, snaplen: snaplen, once: true, began: began, frames: make(chan []byte, sampled),
			ended: make(chan struct{})}
		if err = f.captures.add(c); err == nil {
			captures[id] = c
		}
	}
	f.mu.Unlock()
	if err == nil {
		wait(ctx, captures, span)
	}
	for _, c := range captures {
		f.captures.remove(c)
	}
	if err != nil {
		return nil, fmt.Errorf("sample ports: %w", err)
	}
	all := make(map[model.PortID]Sample, len(captures))
	for id, c := range captures {
		all[id] = c.sample(span)
	}
	return all, ctx.Err()
}

// wait returns when the time is over, or all captures are full.
func wait(ctx context.Context, captures map[model.PortID]*capture, span time.Duration) {
	ctx, over := context.WithTimeout(ctx, span)
	defer over()
	for _, c := range captures {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return
		}
	}
}

// sample empties a capture that has been removed.
func (c *capture) sample(span time.Duration) Sample {
	s := Sample{Span: span}
	full := c.missed.Load() > 0
	for {
		select {
		case record := <-c.frames:
			head, data := headOf(record), record[copyBytes:]
			length := int(head.Length)
			if head.VlanProto != 0 && len(data) >= 12 { // the tag was in the packet's metadata
				tagged := make([]byte, 0, len(data)+4)
				tagged = append(tagged, data[:12]...)
				tagged = binary.BigEndian.AppendUint16(tagged, head.VlanProto)
				tagged = binary.BigEndian.AppendUint16(tagged, head.VlanTci)
				data = append(tagged, data[12:]...)
				length += 4
			}
			at := time.Duration(head.Nanoseconds - c.began)
			if full {
				s.Span = min(span, at)
			}
			s.Frames = append(s.Frames, SampledFrame{At: at, ToElement: head.ToElement != 0, Length: length,
				Data: data[:min(len(data), c.snaplen, length)]})
		default:
			return s
		}
	}
}
