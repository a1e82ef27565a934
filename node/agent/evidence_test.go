package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
)

// talking is a fabric of which one port has a frame every millisecond, that says which. A sample takes the first 512.
type talking struct {
	*record
	began time.Time
	fails bool
}

func (f *talking) Sample(_ context.Context, ports []model.PortID, span time.Duration,
	_ int) (map[model.PortID]fabric.Sample, error) {
	if f.fails {
		return nil, errors.New("no")
	}
	from := time.Since(f.began)
	time.Sleep(min(span, 512*time.Millisecond))
	s := fabric.Sample{Span: span}
	for at := from; at < time.Since(f.began); at += time.Millisecond {
		s.Frames = append(s.Frames,
			fabric.SampledFrame{At: at - from, Data: binary.BigEndian.AppendUint64(nil, uint64(at/time.Millisecond))})
	}
	return map[model.PortID]fabric.Sample{ports[0]: s}, nil
}

// kept are the numbers of the frames in an element's capture.
func kept(t *testing.T, path string) (numbers []uint64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return numbers
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, binary.BigEndian.Uint64(data))
	}
}

// What is kept of an element that was suspected are all frames of its last seconds, each once, and what came after the
// cut.
func TestLastSecondsAreKept(t *testing.T) {
	id := model.ID{Network: "lab", Element: "h1"}
	e := watched{id: id, ports: []model.PortID{{ID: id, Interface: "x"}}}
	for _, suspected := range []time.Duration{1500 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			talk := &talking{record: &record{}, began: time.Now()}
			a := remembering(t, t.TempDir(), talk.record)
			a.Drivers.Fabric, a.watcher = talk, newWatcher()
			time.Sleep(10 * time.Second)
			a.listen(t.Context(), e)
			a.listen(t.Context(), e) // at the next look
			if time.Sleep(suspected); !a.watcher.listensTo(id) {
				t.Error("it is not listened to")
			}
			cut := uint64(time.Since(talk.began) / time.Millisecond)
			a.watcher.hush(id)
			a.keepEvidence(e)
			a.watcher.listeners.Wait()
			numbers := kept(t, a.Dirs.Evidence(id))
			first := cut - uint64(min(suspected, (recentSamples-1)*watchSpan)/time.Millisecond)
			if n := len(numbers); n == 0 || numbers[0] > first {
				t.Fatalf("suspected for %s: the capture begins with %d, %d frames: want all from %d on", suspected,
					numbers[:min(1, n)], n, first)
			}
			for i := range numbers {
				if numbers[i] != numbers[0]+uint64(i) {
					t.Fatalf("suspected for %s: frame %d follows on %d", suspected, numbers[i], numbers[i-1])
				}
			}
			if last := numbers[len(numbers)-1]; last < cut+500 {
				t.Errorf("cut off at %d, the last that it tried to send is %d", cut, last)
			}
		})
	}
}

// Who goes while it is listened to leaves nothing: the next of its name may be somebody else's. Who cannot be listened
// to, or is one too many, costs nothing.
func TestListeningEnds(t *testing.T) {
	id := model.ID{Network: "lab", Element: "h1"}
	e := watched{id: id, ports: []model.PortID{{ID: id, Interface: "x"}}}
	synctest.Test(t, func(t *testing.T) {
		talk := &talking{record: &record{}, began: time.Now()}
		a := remembering(t, t.TempDir(), talk.record)
		a.Drivers.Fabric, a.watcher = talk, newWatcher()
		a.listen(t.Context(), e)
		time.Sleep(1100 * time.Millisecond)
		a.forgetWatched(func(model.ID) bool { return false })
		a.watcher.listeners.Wait()
		if len(a.watcher.recent) != 0 || len(a.watcher.listening) != 0 {
			t.Errorf("of an element that has gone are kept %d samples, and %d listen", len(a.watcher.recent[id].all),
				len(a.watcher.listening))
		}
		talk.fails = true
		a.listen(t.Context(), e)
		a.watcher.listeners.Wait()
		talk.fails = false
		for i := range 2 * listeningMost {
			other := e
			other.id.Element = string(rune('a' + i))
			a.listen(t.Context(), other)
		}
		if n := len(a.watcher.listening); n != listeningMost {
			t.Errorf("%d are listened to, want %d", n, listeningMost)
		}
		a.forgetWatched(func(model.ID) bool { return false })
		a.watcher.listeners.Wait()
	})
}
