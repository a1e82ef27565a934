package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// MaxSnaplen is the largest number of bytes of a frame that a capture contains. Only packets that the kernel segments
// later are longer.
const MaxSnaplen = 65512

// queued is how many frames wait for a slow reader of a capture. Further ones are lost.
const queued = 512

// captures are the running captures of a fabric. The ring exists, and is read, only while there are any.
type captures struct {
	// mu guards all below. It may be taken while the fabric's is held, never the other way round: who reads the ring
	// must not wait for a pass, or the ring would run full meanwhile.
	mu     sync.Mutex
	fabric *Fabric
	ring   *ringbuf.Reader       // nil while there are no captures
	bySlot map[uint32][]*capture // one frame can be for several
	drains []*drain              // that somebody waits for
}

// drain waits until the ring's frames from before a moment have been distributed.
type drain struct {
	until   uint64        // monotonic clock, nanoseconds
	flushed bool          // the ring was found empty once; that look may have begun before the moment
	done    chan struct{} // closed then, or when the ring is
}

// capture is one reader's view of one port.
type capture struct {
	slot    uint32
	snaplen int
	began   uint64        // monotonic clock, nanoseconds
	epoch   int64         // wall clock minus monotonic clock at that moment, in nanoseconds
	frames  chan []byte   // records of the ring
	ended   chan struct{} // closed when the port or the fabric goes
	end     sync.Once
	missed  atomic.Uint64 // frames that found the queue full
	before  uint64        // how many frames had found the ring full when the capture began
	told    uint64        // of both, as said in the file
	once    bool          // a sample: it ends when the queue is full
}

// Capture shows what passes a port in both directions, as pcapng (IETF draft-ietf-opsawg-pcapng). Wireshark can read it
// while it is being written. Frames are as the fabric has them before the kernel segments them: they may be longer than
// the MTU, and their checksums may not be computed yet. Outbound is what the element sends, even if it is dropped
// later; inbound is what the element gets. snaplen limits the bytes of each frame, 0 to MaxSnaplen. Frames that were
// lost on their way into the capture are counted at the next frame (epb_dropcount) and, in total, at the end
// (isb_ifdrop).
//
// The capture ends when ctx does – read on to its end – or when it is closed, or when the port leaves the fabric.
// Several may run at a time, on one port or on many.
func (f *Fabric) Capture(ctx context.Context, id model.PortID, snaplen int) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil, errClosed
	}
	slot, ok := f.slots[id]
	if !ok {
		return nil, fmt.Errorf("capture at port %s: the fabric of node %s has no such port", id, f.dirs.Node)
	}
	if snaplen < 0 {
		return nil, fmt.Errorf("capture at port %s: snaplen %d is negative", id, snaplen)
	}
	if snaplen == 0 || snaplen > MaxSnaplen {
		snaplen = MaxSnaplen
	}
	c := &capture{slot: slot, snaplen: snaplen, frames: make(chan []byte, queued), ended: make(chan struct{})}
	var err error
	if c.before, err = f.uncaptured(slot); err != nil {
		return nil, fmt.Errorf("capture at port %s: %w", id, err)
	}
	if c.began, c.epoch, err = clocks(); err != nil {
		return nil, fmt.Errorf("capture at port %s: %w", id, err)
	}
	if err := f.captures.add(c); err != nil {
		return nil, fmt.Errorf("capture at port %s: %w", id, err)
	}
	r, w := io.Pipe()
	go func() {
		err := f.write(ctx, c, w, id)
		f.captures.remove(c)
		w.CloseWithError(err) // nil: the end of the file
	}()
	return captureReader{r, c}, nil
}

// captureReader ends the capture when it is closed, so that nothing goes on copying frames for nobody.
type captureReader struct {
	*io.PipeReader
	c *capture
}

// Close ends the capture.
func (r captureReader) Close() error {
	r.c.finish()
	return r.PipeReader.Close()
}

func (c *capture) finish() { c.end.Do(func() { close(c.ended) }) }

// clocks reads the monotonic clock, and how far the wall clock is ahead of it.
func clocks() (monotonic uint64, epoch int64, err error) {
	var m unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &m); err != nil {
		return 0, 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return uint64(m.Nano()), time.Now().UnixNano() - m.Nano(), nil
}

// uncaptured is how many frames of a port found the ring full.
func (f *Fabric) uncaptured(slot uint32) (uint64, error) {
	var counts []pipeline.DropCount
	if err := f.pipe.Drops.Lookup(slot, &counts); err != nil {
		return 0, fmt.Errorf("read the counters of slot %d: %w", slot, err)
	}
	var n uint64
	for _, c := range counts {
		n += c.Packets[pipeline.Uncaptured]
	}
	return n, nil
}

func (s *captures) start(f *Fabric) { s.fabric, s.bySlot = f, map[uint32][]*capture{} }

func (s *captures) add(c *capture) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		ring, err := ringbuf.NewReader(s.fabric.pipe.Copies)
		if err != nil {
			return fmt.Errorf("open the ring of copied frames: %w", err)
		}
		s.ring = ring
		go s.distribute(ring)
	}
	s.bySlot[c.slot] = append(s.bySlot[c.slot], c)
	s.snap(c.slot)
	return nil
}

// snap tells the programs how many bytes of each frame of a port to copy.
func (s *captures) snap(slot uint32) {
	most := 0
	for _, c := range s.bySlot[slot] {
		if !c.once || c.missed.Load() == 0 {
			most = max(most, c.snaplen)
		}
	}
	snap := &s.fabric.pipe.Ports[slot].Snap
	for was := atomic.LoadUint32(snap); !atomic.CompareAndSwapUint32(snap, was, was&pipeline.Copied|uint32(most)); {
		was = atomic.LoadUint32(snap)
	}
}

// remove forgets a capture that has ended. With the last one the ring is closed.
func (s *captures) remove(c *capture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.bySlot[c.slot] {
		if other == c {
			s.bySlot[c.slot] = append(s.bySlot[c.slot][:i:i], s.bySlot[c.slot][i+1:]...)
			s.snap(c.slot)
		}
	}
	if len(s.bySlot[c.slot]) == 0 {
		delete(s.bySlot, c.slot)
	}
	if len(s.bySlot) == 0 && s.ring != nil {
		s.ring.Close()
		s.ring = nil
	}
}

// end ends the captures of a port.
func (s *captures) end(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.bySlot[slot] {
		c.finish()
	}
	delete(s.bySlot, slot)
}

// stop ends all captures.
func (s *captures) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained(func(*drain) bool { return true })
	for slot, all := range s.bySlot {
		for _, c := range all {
			c.finish()
		}
		delete(s.bySlot, slot)
		atomic.AndUint32(&s.fabric.pipe.Ports[slot].Snap, pipeline.Copied)
	}
	if s.ring != nil {
		s.ring.Close()
		s.ring = nil
	}
}

const copyBytes = int(unsafe.Sizeof(pipeline.Copy{}))

// distribute gives the ring's records to the captures of their ports, until the ring is closed.
func (s *captures) distribute(ring *ringbuf.Reader) {
	for {
		r, err := ring.Read()
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		if errors.Is(err, ringbuf.ErrFlushed) {
			s.flushed(ring)
			continue
		}
		if err != nil || len(r.RawSample) < copyBytes {
			continue
		}
		head := headOf(r.RawSample)
		s.mu.Lock()
		s.drained(func(d *drain) bool { return head.Nanoseconds > d.until }) // a busy ring is never found empty
		for _, c := range s.bySlot[head.Slot] {
			if head.Nanoseconds < c.began {
				continue
			}
			select {
			case c.frames <- r.RawSample:
			default:
				if c.missed.Add(1) == 1 && c.once {
					c.finish()
					s.snap(c.slot)
				}
			}
		}
		s.mu.Unlock()
	}
}

// drain begins to wait for the frames that are in the ring now.
func (s *captures) drain() *drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &drain{until: math.MaxUint64, done: make(chan struct{})}
	if now, _, err := clocks(); err == nil {
		d.until = now
	}
	if s.ring == nil || s.ring.Flush() != nil { // closed
		close(d.done)
		return d
	}
	s.drains = append(s.drains, d)
	return d
}

// flushed is called when the ring was found empty after a drain began: at the second time it surely was after that.
func (s *captures) flushed(ring *ringbuf.Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained(func(d *drain) bool {
		was := d.flushed
		d.flushed = true
		return was
	})
	if len(s.drains) > 0 && ring.Flush() != nil { // it was closed
		s.drained(func(*drain) bool { return true })
	}
}

// drained ends the drains that are done.
func (s *captures) drained(done func(*drain) bool) {
	s.drains = slices.DeleteFunc(s.drains, func(d *drain) bool {
		is := done(d)
		if is {
			close(d.done)
		}
		return is
	})
}

func headOf(record []byte) (head pipeline.Copy) {
	copy((*[copyBytes]byte)(unsafe.Pointer(&head))[:], record)
	return head
}

// write writes the file until the capture ends. It flushes whenever no more frames are waiting.
func (f *Fabric) write(ctx context.Context, c *capture, to io.Writer, id model.PortID) error {
	w, err := pcapgo.NewNgWriterInterface(to, pcapgo.NgInterface{Name: id.String(), LinkType: layers.LinkTypeEthernet,
		SnapLength: uint32(c.snaplen), TimestampResolution: 9}, pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{OS: "linux", Application: "polyplane"}})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	var frames uint64
	asked, ended := ctx.Done(), c.ended
	var drain *drain // once the capture was asked to end: what passed before may still be in the ring
	var drained <-chan struct{}
	for {
		if drain == nil && ctx.Err() != nil {
			drain = f.captures.drain()
			asked, drained = nil, drain.done
		}
		var record []byte
		select {
		case record = <-c.frames:
		default:
			if ended == nil {
				return f.total(w, c, frames)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			select {
			case record = <-c.frames:
			case <-asked:
				continue
			case <-drained:
				ended = nil
				continue
			case <-ended:
				ended = nil
				continue
			}
		}
		if drain != nil && headOf(record).Nanoseconds > drain.until {
			return f.total(w, c, frames)
		}
		frames++
		if err := f.frame(w, c, record); err != nil {
			return err
		}
	}
}

// lost is how many frames the capture has missed so far.
func (f *Fabric) lost(c *capture) uint64 {
	n := c.missed.Load()
	f.captures.mu.Lock()
	defer f.captures.mu.Unlock()
	if f.captures.ring == nil { // closed
		return n
	}
	if now, err := f.uncaptured(c.slot); err == nil && now >= c.before {
		n += now - c.before
	}
	return n
}

// frame writes one frame with what the file's format has beside it: its direction, its length on the wire, and how many
// frames were lost before it.
func (f *Fabric) frame(w *pcapgo.NgWriter, c *capture, record []byte) error {
	head, data := headOf(record), record[copyBytes:]
	length := int(head.Length)
	if head.VlanProto != 0 && len(data) >= 12 { // the tag was in the packet's metadata
		tag := binary.BigEndian.AppendUint16(nil, head.VlanProto)
		tag = binary.BigEndian.AppendUint16(tag, head.VlanTci)
		data = bytes.Join([][]byte{data[:12], data[12:]}, tag)
		length += len(tag)
	}
	data = data[:min(len(data), c.snaplen, length)]
	flags := pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}
	if head.ToElement != 0 {
		flags.Direction = pcapgo.NgEpbFlagDirectionInbound
	}
	options := pcapgo.NgPacketOptions{Flags: &flags}
	if len(c.frames)%64 == 0 { // a look-up costs a system call
		if n := f.lost(c); n > c.told {
			since := n - c.told
			options.DropCount, c.told = &since, n
		}
	}
	return w.WritePacketWithOptions(gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(head.Nanoseconds)+c.epoch),
		CaptureLength: len(data), Length: length}, data, options)
}

// total writes the end of the file.
func (f *Fabric) total(w *pcapgo.NgWriter, c *capture, frames uint64) error {
	lost := f.lost(c)
	err := w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{LastUpdate: time.Now(),
		StartTime: time.Unix(0, int64(c.began)+c.epoch), EndTime: time.Now(), PacketsReceived: frames + lost,
		PacketsDropped: lost})
	return errors.Join(err, w.Flush())
}
