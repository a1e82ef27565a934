package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/manager"
	"github.com/polyplane/polyplane/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if dir := os.Getenv(floodedManager); dir != "" {
		os.Exit(runFlooded(dir))
	}
	goleak.VerifyTestMain(m)
}

// run starts a manager with n nodes and returns a client of it, and what ends it.
func run(t *testing.T, n int) (*client.Client, instance.Dirs, func() error) {
	t.Helper()
	dir := t.TempDir()
	dirs := instance.Dirs{Name: "test", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "data")}
	var substrate model.Substrate
	for i := 1; i <= n; i++ {
		substrate.Nodes = append(substrate.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i),
			CPU: 4000, Memory: 8 << 30,
			MTU: 9000, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
		if i > 1 {
			substrate.Links = append(substrate.Links, model.SubstrateLink{A: "n1", B: fmt.Sprintf("n%d", i)})
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, manager.Config{Dirs: dirs, Substrate: substrate, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	var result error
	over := false
	stop := func() error {
		if !over {
			over = true
			cancel()
			result = <-ended
		}
		return result
	}
	c := client.New(dirs)
	for i := 1; i <= n; i++ { // an agent has told, so that networks can be judged
		name := fmt.Sprintf("n%d", i)
		if err := c.Register(ctx, name, model.Registration{Socket: dirs.Node(name).AgentSocket()}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		c.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return c, dirs, stop
}

func duo(name string) model.Network {
	return model.Network{Name: name, Elements: []model.Element{
		{Name: "h1", Kind: model.Host}, {Name: "h2", Kind: model.Host}},
		Links: []model.Link{{Name: "h1--h2", Ends: [2]model.End{{Element: "h1", Interface: "h2"},
			{Element: "h2", Interface: "h1"}}}}}
}

func TestWholeLife(t *testing.T) {
	c, dirs, stop := run(t, 1)
	ctx := t.Context()
	if info, err := os.Stat(dirs.ManagerSocket()); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket's mode: %v %v", info.Mode(), err)
	}
	pong, err := c.Ping(ctx)
	if err != nil || pong.Instance != "test" || pong.Nodes != 1 || pong.Store != "embedded" {
		t.Fatalf("%+v %v", pong, err)
	}
	if nets, err := c.Networks(ctx); err != nil || nets == nil || len(nets) != 0 {
		t.Fatalf("no networks: %v %v", nets, err)
	}

	// The agent.
	if err := c.Register(ctx, "n1", model.Registration{Socket: dirs.Node("n1").AgentSocket()}); err != nil {
		t.Fatal(err)
	}
	agentCtx, endAgent := context.WithCancel(ctx)
	states, agentEnded := make(chan model.NodeState, 100), make(chan error, 1)
	go func() {
		agentEnded <- c.WatchDesired(agentCtx, "n1", func(s model.NodeState) error { states <- s; return nil })
	}()
	first := <-states
	if len(first.Networks) != 0 {
		t.Fatalf("%+v", first)
	}

	// A user who watches.
	watchCtx, endWatch := context.WithCancel(ctx)
	running, watchEnded := make(chan model.Dump, 1), make(chan error, 1)
	go func() {
		watchEnded <- c.WatchDump(watchCtx, "", func(d model.Dump) error {
			if len(d.Networks) == 1 && d.Networks[0].Phase == model.PhaseRunning {
				running <- d
				return io.EOF
			}
			return nil
		})
	}()

	r, err := c.Apply(ctx, duo("lab"), model.ApplyOptions{})
	if err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	state := <-states
	if state.Revision <= first.Revision || len(state.Networks) != 1 || len(state.Networks[0].Elements) != 2 {
		t.Fatalf("the agent was told %+v", state)
	}
	report := model.Report{Node: "n1", Revision: state.Revision}
	for _, e := range state.Networks[0].Elements {
		report.Elements = append(report.Elements, model.ElementStatus{ID: model.ID{Network: "lab", Element: e.Name},
			Phase: model.PhaseRunning})
	}
	report.Events = []model.Event{{Severity: model.Info, Object: "lab/h1:h2", Reason: "PortRestored",
		Message: "was missing"}}
	if err := c.Report(ctx, report); err != nil {
		t.Fatal(err)
	}
	d := <-running
	if err := <-watchEnded; !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	endWatch()
	if len(d.Elements) != 2 || len(d.Links) != 1 || !d.Nodes[0].Ready {
		t.Fatalf("dump: %+v", d)
	}

	var reasons []string
	if err := c.Events(ctx, 0, false,
		func(e model.Event) error { reasons = append(reasons, e.Reason); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(reasons, " "); !strings.Contains(got, "NetworkApplied") ||
		!strings.Contains(got, "PortRestored") || !strings.Contains(got, "NetworkReady") {
		t.Errorf("events: %s", got)
	}
	if rec, err := c.Network(ctx, "lab"); err != nil || rec.Revision != 1 || rec.Network.Name != "lab" {
		t.Errorf("%+v %v", rec, err)
	}
	acted, err := c.Act(ctx, model.ID{Network: "lab", Element: "h2"}, model.ActionStop)
	if err != nil {
		t.Fatal(err)
	}
	if state = <-states; !state.Networks[0].Elements[1].Stopped || !acted.Changed || acted.Revision != state.Revision {
		t.Error("the agent was not told to stop h2")
	}
	if err := c.Delete(ctx, "lab", false); err != nil {
		t.Fatal(err)
	}
	state = <-states
	gone := make(chan struct{})
	eventsCtx, endEvents := context.WithCancel(ctx)
	go func() {
		_ = c.Events(eventsCtx, 0, true, func(e model.Event) error {
			if e.Reason == "NetworkDeleted" {
				close(gone)
				return io.EOF
			}
			return nil
		})
	}()
	if err := c.Report(ctx, model.Report{Node: "n1", Revision: state.Revision}); err != nil {
		t.Fatal(err)
	}
	<-gone
	endEvents()
	if _, err := c.Network(ctx, "lab"); !client.IsNotFound(err) {
		t.Errorf("a deleted network: %v", err)
	}

	// The manager ends although a watch is open, and says so to whoever asks then.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	<-agentEnded
	endAgent()
	if _, err := os.Stat(dirs.ManagerSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	_, err = c.Ping(ctx)
	var down *client.NotRunningError
	if !errors.As(err, &down) ||
		err.Error() != "polyplane 'test' is not running: start it with `polyplane up --instance test`" {
		t.Errorf("after the end: %v", err)
	}
}

func TestNotRunningSaysWhatToDo(t *testing.T) {
	c := client.NewSocket(filepath.Join(t.TempDir(), "none.sock"), instance.DefaultName)
	defer c.Close()
	_, err := c.Networks(t.Context())
	if err == nil || err.Error() != "polyplane 'default' is not running: start it with `polyplane up`" {
		t.Fatal(err)
	}
}

func TestASecondManagerIsRefusedAndAStaleSocketReplaced(t *testing.T) {
	c, dirs, stop := run(t, 1)
	err := manager.Run(t.Context(), manager.Config{Dirs: dirs})
	if err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Fatalf("a second manager: %v", err)
	}
	if _, err := c.Ping(t.Context()); err != nil {
		t.Fatal("the first one suffered:", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// What a killed manager leaves behind.
	os.Remove(dirs.ManagerSocket())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dirs.ManagerSocket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	fresh, err := api.Listen(t.Context(), dirs.ManagerSocket())
	if err != nil {
		t.Fatal("a stale socket:", err)
	}
	fresh.Close()
}

// TestErrorsAreForPeople compares the whole answers with testdata/errors.golden.
func TestErrorsAreForPeople(t *testing.T) {
	c, dirs, _ := run(t, 1)
	if _, err := c.Apply(t.Context(), duo("lab"), model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", dirs.ManagerSocket())
	}}
	defer transport.CloseIdleConnections()
	var got bytes.Buffer
	for _, try := range []struct{ method, path, body string }{
		{"GET", "/v1/networks/nothing", ""},
		{"GET", "/nowhere", ""},
		{"DELETE", "/v1/networks/nothing", ""},
		{"PUT", "/v1/networks/lab", `{"name":"lab","elements":[{"name":"r1","kindd":"router"}]}`},
		{"PUT", "/v1/networks/lab", `{"name":"lab","elements":7}`},
		{"PUT", "/v1/networks/lab", `{"name":"lab"`},
		{"PUT", "/v1/networks/lab", `{"name":"other"}`},
		{"PUT", "/v1/networks/lab?base=5", `{"name":"lab"}`},
		{"PUT", "/v1/networks/lab?dryrun=true", `{"name":"lab"}`},
		{"PUT", "/v1/networks/lab?dryRun=maybe", `{"name":"lab"}`},
		{"PUT", "/v1/networks/big",
			`{"name":"big","elements":[{"name":"h1","kind":"host","cpu":100000},{"name":"h2","kind":"host","node":"n7"}]}`},
		{"POST", "/v1/networks/lab/elements/h9/actions", `{"action":"stop"}`},
		{"POST", "/v1/networks/lab/elements/h1/actions", `{"action":"explode"}`},
		{"GET", "/v1/networks/lab/elements/h9/logs", ""},
		{"GET", "/v1/networks/lab/elements/h1/logs", ""},
		{"POST", "/v1/nodes/n7/register", `{"socket":"/x"}`},
		{"POST", "/v1/nodes/n1/report", `{"node":"n2","revision":1}`},
		{"GET", "/v1/nodes/n7/desired", ""},
		{"GET", "/v1/dump?network=nothing", ""},
		{"GET", "/v1/events?since=x", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), try.method, "http://polyplane"+try.path,
			strings.NewReader(try.body))
		if err != nil {
			t.Fatal(err)
		}
		if try.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
			t.Errorf("%s %s: content type %q", try.method, try.path, ct)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			t.Errorf("%s %s: %v in %s", try.method, try.path, err, body)
		}
		fmt.Fprintf(&got, "%s %s %s\n%s\n\n", try.method, try.path, try.body, strings.TrimSpace(indented.String()))
	}
	golden := filepath.Join("testdata", "errors.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the errors differ from %s (go test -update writes it anew); got:\n%s", golden, got.Bytes())
	}
}

func TestASlowWatcherBlocksNobody(t *testing.T) {
	c, dirs, _ := run(t, 1)
	// It asks for a watch and never reads.
	conn, err := net.Dial("unix", dirs.ManagerSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/nodes/n1/desired HTTP/1.1\r\nHost: x\r\n\r\n")
	head := make([]byte, 12)
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Fatal(string(head), err)
	}
	net := model.Network{Name: "wide"}
	for i := range 2000 { // far more than a socket's buffer holds
		net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("h%d", i), Kind: model.Host})
	}
	for i := range 4 {
		net.Elements[0].CPU = model.CPU(10 * (i + 1))
		if _, err := c.Apply(t.Context(), net, model.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A second watcher gets the latest at once.
	stop := errors.New("enough")
	err = c.WatchDesired(t.Context(), "n1", func(s model.NodeState) error {
		if s.Networks[0].Elements[0].CPU != 40 {
			t.Errorf("not the latest state: CPU %v", s.Networks[0].Elements[0].CPU)
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

// TestStreamsReachTheAgent runs a command through the manager's proxy.
func TestStreamsReachTheAgent(t *testing.T) {
	c, dirs, _ := run(t, 1)
	if _, err := c.Apply(t.Context(), duo("lab"), model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	socket := dirs.Node("n1").AgentSocket()
	l, err := api.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	const element = "/v1/networks/{net}/elements/{el}/"
	mux.HandleFunc("GET "+element+"exec", func(w http.ResponseWriter, r *http.Request) {
		command, err := wire.CommandOf(r.URL.Query())
		if err != nil {
			t.Error(err)
		}
		conn, err := wire.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		wire.Serve(r.Context(), conn, command.TTY, func(ctx context.Context, io_ control.Stdio) (int, error) {
			fmt.Fprintf(io_.Err, "%s/%s: %s\n", r.PathValue("net"), r.PathValue("el"), strings.Join(command.Args, " "))
			_, err := io.Copy(io_.Out, io_.In)
			return 7, err
		})
	})
	mux.HandleFunc("GET "+element+"logs", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "first\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the reader goes
	})
	mux.HandleFunc("GET "+element+"capture", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "pcap of %s", r.URL.Query().Get("interface"))
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, mux, l) }()
	defer func() { cancel(); <-served }()
	if err := c.Register(t.Context(), "n1", model.Registration{Socket: socket}); err != nil {
		t.Fatal(err)
	}
	watching, endWatch := context.WithCancel(t.Context())
	told, watchEnded := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(watchEnded)
		_ = c.WatchDesired(watching, "n1", func(model.NodeState) error { told <- struct{}{}; return nil })
	}()
	<-told
	defer func() { endWatch(); <-watchEnded }()
	if err := c.Report(t.Context(), model.Report{Node: "n1"}); err != nil {
		t.Fatal(err)
	}

	id := model.ID{Network: "lab", Element: "h1"}
	var out, errOut bytes.Buffer
	code, err := c.Exec(t.Context(), id, control.Command{Args: []string{"cat", "-"}},
		control.Stdio{In: strings.NewReader(strings.Repeat("x", 100_000)), Out: &out, Err: &errOut})
	if err != nil || code != 7 || out.Len() != 100_000 || errOut.String() != "lab/h1: cat -\n" {
		t.Fatalf("exec: code %d, %v, %d bytes, %q", code, err, out.Len(), errOut.String())
	}
	logs, err := c.Logs(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	// at once, though the stream goes on
	if _, err := io.ReadFull(logs, line); err != nil || string(line) != "first\n" {
		t.Fatal(string(line), err)
	}
	logs.Close()
	capture, err := c.Capture(t.Context(), model.PortID{ID: id, Interface: "ge-0/0/1"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(capture)
	capture.Close()
	if err != nil || string(b) != "pcap of ge-0/0/1" {
		t.Fatal(string(b), err)
	}
	if _, err := c.Logs(t.Context(), model.ID{Network: "lab", Element: "nobody"}, false); !client.IsNotFound(err) {
		t.Error(err)
	}
}

// TestOpenAPIDescribesEveryRoute reads the document as a client would.
func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	_, dirs, _ := run(t, 1)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", dirs.ManagerSocket())
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("http://polyplane/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		OpenAPI string                                `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	const element = "/v1/networks/{network}/elements/{element}/"
	for _, route := range []string{"get /v1/ping", "get /v1/networks", "get /v1/networks/{network}",
		"put /v1/networks/{network}",
		"delete /v1/networks/{network}", "post /v1/networks/{network}/check", "get /v1/nodes", "get /v1/substrate",
		"get /v1/elements", "get /v1/links", "get /v1/dump", "get /v1/events", "post " + element + "actions",
		"get " + element + "exec", "get " + element + "console", "get " + element + "logs", "get " +
			element + "capture",
		"post " + element + "fib", "post " + element + "trace", "get " + element + "running", "get " + element + "tree",
		"get " + element + "files", "put " + element + "files", "post /v1/networks/{network}/keep",
		"post /v1/nodes/{node}/register", "post /v1/nodes/{node}/report", "get /v1/nodes/{node}/desired"} {
		method, path, _ := strings.Cut(route, " ")
		if doc.Paths[path][method] == nil {
			t.Errorf("not described: %s", route)
		}
	}
	// What each route really answers with.
	for route, want := range map[string]string{
		"/v1/dump":                 `"application/x-ndjson":{"schema":{"$ref":"#/components/schemas/DumpUpdate"}}`,
		"/v1/events":               "schemas/EventUpdate",
		"/v1/nodes/{node}/desired": "schemas/Update", element + "capture": "application/x-pcapng", element +
			"logs": "problem+json",
	} {
		if got := string(doc.Paths[route]["get"]); !strings.Contains(got, want) {
			t.Errorf("%s is described without %s: %s", route, want, got)
		}
	}
}
