package netns

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// BenchmarkHosts makes 100 hosts until they are ready, in turns: hosts that run nothing, such that run a program of the
// machine, and such that are made from one image, which was unpacked before. It reports seconds of each, the time of
// one unpacking, and the processor's time of the agent and of what it starts – runc, mkfs –, in milliseconds a host.
func BenchmarkHosts(b *testing.B) {
	const hosts = 100
	n := newNode(b)
	var r registry
	n.serveImages(b, &r)
	run := model.ImageRun{Cmd: []string{"/bin/tool", "serve", "8080"}}
	id := r.add(b, run, Layer(b, File{Name: "bin/tool", Content: string(Program(b, Tool))},
		File{Name: "large", Content: string(make([]byte, 1<<20)) + "x"}))
	began := time.Now()
	for {
		about, _, err := n.images.Get(id)
		if err != nil {
			b.Fatal(err)
		}
		if about != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	unpacked := time.Since(began)
	kinds := []struct {
		name    string
		service model.Service
	}{{"nothing", model.Service{}}, {"run", model.Service{Run: "sleep infinity"}}, {"image", model.Service{Image: "i@" + id}}}
	spent, used := make([]time.Duration, len(kinds)), make([]time.Duration, len(kinds))
	rounds := 0
	for b.Loop() {
		rounds++
		for k, kind := range kinds {
			jobs := lineOf("lab", uint32(1+k), hosts)
			ids := make([]model.ID, len(jobs))
			for i := range jobs {
				jobs[i].Element.Service, ids[i] = kind.service, jobs[i].ID
			}
			began, before := time.Now(), processorTime(b)
			n.awaitPhases(b, jobs, model.PhaseRunning)
			spent[k] += time.Since(began)
			used[k] += processorTime(b) - before
			if err := n.Remove(context.Background(), ids, false); err != nil {
				b.Fatal(err)
			}
		}
	}
	for k, kind := range kinds {
		b.ReportMetric(spent[k].Seconds()/float64(rounds), kind.name+"-s")
		b.ReportMetric(float64(used[k].Milliseconds())/float64(rounds*hosts), kind.name+"-ms/host")
	}
	b.ReportMetric(unpacked.Seconds(), "unpack-s")
	b.ReportMetric(0, "ns/op")
}

// processorTime is what this process and its children that have ended have used.
func processorTime(b *testing.B) (all time.Duration) {
	b.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}
