package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/manager"
	"github.com/polyplane/polyplane/system/attack"
)

// floodedManager makes this test's program a manager, in the directory that it names: one that is attacked has its
// memory to itself.
const floodedManager = "POLYPLANE_TEST_FLOODED_MANAGER"

func runFlooded(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := manager.Run(ctx, manager.Config{Dirs: floodedDirs(dir), Substrate: floodedGround(),
		Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func floodedDirs(dir string) instance.Dirs {
	return instance.Dirs{Name: "flooded", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "data")}
}

func floodedGround() model.Substrate {
	s := ground
	s.Nodes = slices.Clone(s.Nodes)
	s.Nodes[0].CPU, s.Nodes[0].Memory = 4_000_000, 64<<40
	return s
}

// flooded is a manager in a process of its own, an owner's network in it that somebody uses, and an owner who attacks
// it.
type flooded struct {
	t      *testing.T
	pid    int
	root   *client.Client
	server string
	token  string // the attacker's
	victim *client.Client
	sets   atomic.Int64
}

func newFlooded(t *testing.T) *flooded {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), floodedManager+"="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := &flooded{t: t, pid: cmd.Process.Pid, root: client.New(floodedDirs(dir))}
	t.Cleanup(func() {
		f.root.Close()
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended, which Wait tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := f.root.Ping(t.Context()); err == nil {
			break
		} else if time.Since(begin) > 30*time.Second {
			t.Fatal(err)
		}
	}
	o := &open{t: t, root: f.root}
	created := o.token(model.TokenRequest{User: "mallory", Role: model.RoleOwner})
	f.server, f.token = created.Servers[0], created.Text
	o.server = f.server
	f.victim = o.user("alice", model.RoleOwner)
	node := client.New(floodedDirs(dir))
	t.Cleanup(node.Close)
	if err := node.Register(t.Context(), "base", model.Registration{Socket: dir + "/none"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { // an agent that does at once whatever it is told
		defer close(watched)
		node.WatchDesired(ctx, "base", func(s model.NodeState) error { //nolint:errcheck // ends with the context
			return node.Report(ctx, model.Report{Node: "base", Revision: s.Revision})
		})
	}()
	t.Cleanup(func() { stop(); <-watched })
	if _, err := f.victim.Apply(t.Context(), chain("alices", 20), model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// chain is a line of routers.
func chain(name string, n int) model.Network {
	net := model.Network{Name: name}
	for i := range n {
		e := model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router, Software: model.SoftwareStatic}
		if i > 0 {
			was := fmt.Sprintf("r%d", i-1)
			net.Links = append(net.Links, model.Link{Name: was + "--" + e.Name,
				Ends: [2]model.End{{Element: was, Interface: e.Name}, {Element: e.Name, Interface: was}}})
		}
		net.Elements = append(net.Elements, e)
	}
	return net
}

// latencies are how long a user's requests took.
type latencies struct{ get, set []time.Duration }

func at(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(len(list)-1, int(share*float64(len(list))))]
}

func (l latencies) String() string {
	return fmt.Sprintf("get p50 %v p99 %v (%d), set p50 %v p99 %v (%d)", at(l.get, .5).Round(10*time.Microsecond),
		at(l.get, .99).Round(10*time.Microsecond), len(l.get), at(l.set, .5).Round(10*time.Microsecond),
		at(l.set, .99).Round(10*time.Microsecond), len(l.set))
}

// use works with the victim's network for a while, a request every 10 ms at most.
func (f *flooded) use(d time.Duration) (l latencies) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), d+time.Minute)
	defer cancel()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		begin := time.Now()
		if _, err := f.victim.Networks(ctx); err != nil {
			f.t.Errorf("get: %v", err)
			return l
		}
		l.get = append(l.get, time.Since(begin))
		n := f.sets.Add(1)
		begin = time.Now()
		_, err := f.victim.Set(ctx, "alices", model.SetRequest{Object: "r0--r1",
			Values: []model.Assignment{{Key: "bandwidth", Value: strconv.FormatInt(10+n, 10) + "Mbit"}}})
		if err != nil {
			f.t.Errorf("set: %v", err)
			return l
		}
		l.set = append(l.set, time.Since(begin))
	}
	return l
}

// memory is the most that the manager has had resident.
func (f *flooded) memory() int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 10
		}
	}
	return 0
}

// insecure is how the attacker speaks: by itself, without what the client takes care of.
func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
}

// send sends one body as the attacker, and tells the status and how long the answer was.
func (f *flooded) send(ctx context.Context, c *http.Client, method, path string,
	body io.Reader) (status int, length int64) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+f.server+path, body)
	if err != nil {
		f.t.Error(err)
		return 0, 0
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return 0, 0
	}
	defer resp.Body.Close()
	length, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, length
}

// while has a number of attackers at it while the victim works, and tells what became of both.
func (f *flooded) while(name string, many int, d time.Duration,
	attack func(ctx context.Context, i int) string) latencies {
	f.t.Helper()
	ctx, stop := context.WithCancel(f.t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	said := map[string]int{}
	for i := range many {
		wg.Go(func() {
			for ctx.Err() == nil {
				if word := attack(ctx, i); ctx.Err() == nil {
					mu.Lock()
					said[word]++
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	l := f.use(d)
	stop()
	wg.Wait()
	f.t.Logf("%-28s %v; manager ≤ %d MiB; the attacker was told %v", name, l, f.memory(), said)
	return l
}

// bomb is a document of many empty elements.
func bomb(name string, bytesOf int) []byte {
	b := []byte(`{"name":"` + name + `","elements":[{}`)
	b = append(b, bytes.Repeat([]byte(",{}"), bytesOf/3)...)
	return append(b, "]}"...)
}

// heavy is a document with so much configuration in it that does not compress.
func heavy(t *testing.T, name string, files, size int) []byte {
	net := model.Network{Name: name}
	for i := range files {
		raw := make([]byte, size*3/4)
		rand.Read(raw)
		net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router,
			Software: model.SoftwareBIRD,
			Config:   map[string]string{"bird.conf": "# " + base64.StdEncoding.EncodeToString(raw)}})
	}
	b, err := json.Marshal(net)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// trickle sends a request whose body comes byte by byte, and tells how it ended.
func (f *flooded) trickle(ctx context.Context) string {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", f.server,
		&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return "refused"
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	fmt.Fprintf(conn, "PUT /v1/networks/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: "+
		"application/json\r\nContent-Length: 2000000\r\n\r\n{", f.token)
	answered := make(chan string, 1)
	go func() {
		b := make([]byte, 12)
		if _, err := io.ReadFull(conn, b); err != nil {
			answered <- "closed"
			return
		}
		answered <- string(b[9:])
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case word := <-answered:
			return word
		case <-tick.C:
			conn.Write([]byte(" ")) //nolint:errcheck // the answer tells
		}
	}
}

// TestOneOwnerHoldsUpNobody has an owner do what is worst for the manager and measures what another owner feels.
// POLYPLANE_FLOOD=30s makes each attack so long.
func TestOneOwnerHoldsUpNobody(t *testing.T) {
	attack.Tell(t, "an owner sends documents of the worst kind, floods and bodies that trickle",
		"others wait a bounded time, and memory is bounded")
	d := 1500 * time.Millisecond
	if text := os.Getenv("POLYPLANE_FLOOD"); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	f := newFlooded(t)
	c := insecure()
	defer c.CloseIdleConnections()
	f.use(300 * time.Millisecond)
	usual := f.use(d)
	t.Logf("%-28s %v; manager ≤ %d MiB", "nobody", usual, f.memory())
	// On a quiet machine it is twice and three times; a busy one is given much more. What it was before took 18 and 32
	// seconds.
	check := func(l latencies) {
		t.Helper()
		if is, was := at(l.get, .5), at(usual.get, .5); is > 10*was+time.Second {
			t.Errorf("get takes %v, %v as usual", is, was)
		}
		if is, was := at(l.set, .5), at(usual.set, .5); is > 10*was+2*time.Second {
			t.Errorf("set takes %v, %v as usual", is, was)
		}
		if is := f.memory(); is > 1000 {
			t.Errorf("the manager has had %d MiB", is)
		}
	}
	small, large := bomb("bomb", 1_500_000), bomb("bomb", 12_000_000)
	answer := func(status int, length int64) string {
		if length > 1<<20 {
			return fmt.Sprintf("%d and %d MiB", status, length>>20)
		}
		return strconv.Itoa(status)
	}
	check(f.while("1.5 MB of empty elements", 4, d, func(ctx context.Context, _ int) string {
		return answer(f.send(ctx, c, http.MethodPut, "/v1/networks/bomb", bytes.NewReader(small)))
	}))
	check(f.while("12 MB of empty elements", 1, d, func(ctx context.Context, _ int) string {
		return answer(f.send(ctx, c, http.MethodPut, "/v1/networks/bomb", bytes.NewReader(large)))
	}))
	config := heavy(t, "heavy", 44, 900<<10)
	check(f.while("40 MiB of configuration", 2, d, func(ctx context.Context, i int) string {
		name := fmt.Sprintf("heavy%d", i)
		return answer(f.send(ctx, c, http.MethodPut, "/v1/networks/"+name,
			bytes.NewReader(bytes.Replace(config, []byte(`"heavy"`), []byte(`"`+name+`"`), 1))))
	}))
	var counter atomic.Int64
	check(f.while("applies without end", 16, d, func(ctx context.Context, i int) string {
		net := chain(fmt.Sprintf("flood%d", i), 110)
		net.Links[0].Bandwidth = model.Bandwidth(counter.Add(1)) * 1e6
		b, _ := json.Marshal(net)
		return answer(f.send(ctx, c, http.MethodPut, "/v1/networks/"+net.Name, bytes.NewReader(b)))
	}))
	check(f.while("bodies that trickle", 100, d, func(ctx context.Context, _ int) string { return f.trickle(ctx) }))
}
