package linux

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestQueueComesBackAsItWasMade(t *testing.T) {
	inNamespace(t)
	c := dial(t)
	var b Batch
	b.AddVeth("a", "b", 1500)
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
	index := indexOf(t, c, "a")
	for _, rate := range []uint64{1, 125, 126_167, 126_166_667, 630_833_333, 1<<32 - 1, 1 << 32, 50_000_000_000} {
		want := Queue{Rate: rate, Burst: uint32(min(max(3028, rate/200), 1<<28)), Bytes: 100_000}
		b.Reset()
		b.ReplaceQueue(index, want)
		if errs := c.Do(&b); errs != nil {
			t.Fatalf("%+v: %v", want, errs[0])
		}
		all, err := c.Qdiscs()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := all.Queues[index]; !ok || !got.Same(want) || !want.Same(got.Queue) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		other := want
		other.Rate++
		if got := all.Queues[index]; got.Same(other) {
			t.Errorf("%+v is taken for %+v", got.Queue, other)
		}
	}
	b.Reset()
	b.RemoveQueue(index, Queue{Rate: 1})
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs[0])
	}
	if all, err := c.Qdiscs(); err != nil || len(all.Queues) != 0 {
		t.Errorf("after its removal: %+v, %v", all.Queues, err)
	}
}

func indexOf(t *testing.T, c *Rtnetlink, name string) (index int) {
	t.Helper()
	var b Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	if err := c.Dump(&b, func(_ uint16, payload []byte) error {
		for kind, v := range Attrs(payload[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_IFNAME && unix.ByteSliceToString(v) == name {
				index = int(binary.NativeEndian.Uint32(payload[4:]))
			}
		}
		return nil
	}); err != nil || index == 0 {
		t.Fatalf("no device %s: %v", name, err)
	}
	return index
}

// TestNetemMessage compares a request with what linux/pkt_sched.h says, byte by byte: not every kernel has a netem to
// try it on.
func TestNetemMessage(t *testing.T) {
	want := Queue{Rate: 1<<32 + 5, Delay: 10 * time.Millisecond, Jitter: 2 * time.Millisecond, Frames: 1000}
	var b Batch
	b.ReplaceQueue(7, want)
	b.finish()
	// tcmsg: family, index, handle 7071:, parent root, info
	const message = "00000000 07000000 00007170 ffffffff 00000000" +
		"0a000100 6e657465 6d000000" + // TCA_KIND "netem"
		"54000200" + // TCA_OPTIONS: tc_netem_qopt, then attributes
		// latency in 64 ns, limit, loss, gap, duplicate, jitter
		"5a620200 e8030000 00000000 00000000 00000000 127a0000" +
		"0c000a00 80969800 00000000" + // TCA_NETEM_LATENCY64, ns
		"0c000b00 80841e00 00000000" + // TCA_NETEM_JITTER64
		"14000600 ffffffff 00000000 00000000 00000000" + // TCA_NETEM_RATE: rate, overhead, cell size, cell overhead
		"0c000800 05000000 01000000" // TCA_NETEM_RATE64
	if got := hex.EncodeToString(b.buf[unix.SizeofNlMsghdr:]); got != strings.ReplaceAll(message, " ", "") {
		t.Errorf("got  %s\nwant %s", got, message)
	}
	if flags := binary.NativeEndian.Uint16(b.buf[6:]); flags != unix.NLM_F_REQUEST|unix.NLM_F_CREATE|
		unix.NLM_F_REPLACE {
		t.Errorf("flags %#x", flags)
	}
	if got := parseQueue(true, b.buf[unix.SizeofNlMsghdr+sizeofTcmsg:]); got.Queue != want {
		t.Errorf("read back as %+v", got.Queue)
	}
}

// TestProbeDelay sets a netem itself and compares.
func TestProbeDelay(t *testing.T) {
	err := ProbeDelay()
	inNamespace(t)
	var b Batch
	b.ReplaceQueue(1, Queue{Delay: time.Second, Frames: 10})
	c := dial(t)
	switch errs := c.Do(&b); {
	case errs == nil:
		if err != nil {
			t.Errorf("a netem can be made, yet: %v", err)
		}
		all, err := c.Qdiscs()
		if got := all.Queues[1].Queue; err != nil || got != (Queue{Delay: time.Second, Frames: 10}) {
			t.Errorf("it is read as %+v, %v", got, err)
		}
	case !errors.Is(errs[0], unix.ENOENT):
		t.Fatal(errs[0])
	case err == nil || !strings.HasPrefix(err.Error(), "its kernel "+release()+" has no netem"):
		t.Errorf("there is no netem, yet: %v", err)
	}
}
