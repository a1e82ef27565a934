package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func fastPath() *fake {
	f := lab()
	way := model.FIBWay{Kind: "forward", Interface: "ge-0/0/1", MAC: "02:00:00:00:00:02",
		Source: "02:00:00:00:00:01", MTU: 1500}
	half := way
	half.Share, half.Interface, half.MAC = 0.5, "h1", "02:00:00:00:00:03"
	other := way
	other.Share = 0.5
	f.fib = func(q model.FIBRequest) model.FIB {
		all := model.FIB{Matching: 4, Tables: []model.FIBTable{{Family: model.IPv4, Shape: "ranges", Routes: 4,
			Bytes: 512}, {Family: model.IPv6, Shape: "empty"}},
			Entries: []model.FIBEntry{
				{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Ways: []model.FIBWay{way}},
				{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Ways: []model.FIBWay{other, half}},
				{Prefix: netip.MustParsePrefix("10.0.0.1/32"), Ways: []model.FIBWay{{Kind: "local"}}},
				{Prefix: netip.MustParsePrefix("10.9.0.0/16"), Ways: []model.FIBWay{{Kind: "blackhole"}}}}}
		all.Entries = all.Entries[:min(q.Limit, len(all.Entries))]
		return all
	}
	f.traced = map[string]model.Trace{
		"lab/r1": {Verdict: model.Forwarded, Prefix: netip.MustParsePrefix("10.0.0.0/8"), Way: &way, Ways: 2},
		"lab/r2": {Verdict: model.ToGuest, Reason: "TTL", Prefix: netip.MustParsePrefix("10.0.0.0/8"),
			Way: &way, Ways: 1},
	}
	return f
}

func TestGetFIB(t *testing.T) {
	r := run(t, fastPath(), "get", "fib", "lab/r1")
	if r.code != ExitOK || r.err != "" {
		t.Fatalf("status %d, %s", r.code, r.err)
	}
	golden(t, "fib.txt", r.out)
	punted := fastPath()
	told := punted.fib
	punted.fib = func(q model.FIBRequest) model.FIB {
		f := told(q)
		f.Punted = map[model.Family]string{model.IPv4: "there are policy routing rules"}
		return f
	}
	if r = run(t, punted, "get", "fib", "lab/r1"); !strings.Contains(r.out,
		"the router itself forwards: there are policy routing rules; IPv6") {
		t.Errorf("a family that is left to the router: %s", r.out)
	}
	if r = run(t, fastPath(), "get", "fib", "lab/r1", "--limit", "1"); !strings.Contains(r.err,
		"3 more are not shown") || strings.Contains(r.out, "10.9") {
		t.Errorf("limited: %q, %q", r.out, r.err)
	}
	for _, c := range []struct{ args, says string }{
		{"get fib lab/r1 10.0.0.0/99", "is no prefix"},
		{"get fib lab/r1 10.0.0.6", "`polyplane trace lab/r1 10.0.0.6` tells"},
		{"get fib lab/r1 -4 -6", "exclude each other"}, {"get fib lab", "NET/"},
		{"get fib lab/r1 --limit 0", "a number of entries"}, {"trace lab/r1 10.0.0.x", "is no address"},
		{"trace lab/r1 10.0.0.1 --ttl 0", "1 to 255"},
		{"trace lab/r1 10.0.0.1 --source ::1", "two families"}, {"trace lab/r1 10.0.0.1 --protocol x", "tcp, udp"},
		{"trace lab/r1 10.0.0.1 --port 70000", "65535"},
	} {
		if r := run(t, fastPath(), strings.Fields(c.args)...); r.code != ExitUsage || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: status %d, %s", c.args, r.code, r.err)
		}
	}
	if r := run(t, lab(), "get", "fib", "lab/r1"); r.code == ExitOK ||
		!strings.Contains(r.err, "forwarded by its own stack") {
		t.Errorf("of a router that the guest forwards for: status %d, %s", r.code, r.err)
	}
}

func TestTrace(t *testing.T) {
	f := fastPath()
	for i := range f.dump.Elements {
		if e := &f.dump.Elements[i]; e.Element.Kind == model.Router {
			e.Element.Forwarding = model.ForwardXDP
		}
	}
	r := run(t, f, "trace", "lab/r1", "10.0.0.6")
	if r.code != ExitOK || r.err != "" {
		t.Fatalf("status %d, %s", r.code, r.err)
	}
	golden(t, "trace.txt", r.out)
	f.traced["lab/r2"] = model.Trace{Verdict: model.Blackhole, Reason: "its route says so (blackhole)"}
	if r = run(t, f, "trace", "lab/r1", "10.0.0.6"); r.code != ExitFailed || !strings.Contains(r.out, "dropped") {
		t.Errorf("a dropped packet: status %d, %s", r.code, r.out)
	}
	if r = run(t, f, "trace", "lab/r1", "10.0.0.6", "--in", "eth9"); r.code != ExitNotFound ||
		!strings.Contains(r.err, `has no interface "eth9"`) || r.out != "" {
		t.Errorf("in by an interface that is not there: status %d, %s%s", r.code, r.out, r.err)
	}
	// The router behind forwards by itself.
	for i := range f.dump.Elements {
		if e := &f.dump.Elements[i]; e.Element.Name == "r2" {
			e.Element.Forwarding = model.ForwardGuest
		}
	}
	if r = run(t, f, "trace", "lab/r1", "10.0.0.6"); r.code != ExitOK || !strings.HasSuffix(r.out,
		"lab/r2, in by r1\n  its own stack forwards (forwarding: guest): `ip route get` in it tells how\n") {
		t.Errorf("to a router that forwards by itself: status %d, %s", r.code, r.out)
	}
	// By the node's kernel, which is asked too.
	first := f.traced["lab/r1"]
	for _, k := range []struct {
		by      model.Forwarding
		kernel  string
		says    string
		differs bool
	}{
		{model.ForwardRouter, first.Way.Interface, "forwarded by the node's kernel, in its companion, out by", false},
		{model.ForwardBridge, "", "forwarded by the node's kernel between bridges, in its companion, out by", false},
		{model.ForwardRouter, "h1", "but that kernel says: h1", true},
	} {
		first.By, first.Kernel = k.by, k.kernel
		f.traced["lab/r1"] = first
		if r = run(t, f, "trace", "lab/r1", "10.0.0.6"); !strings.Contains(r.out, k.says) ||
			strings.Contains(r.out, "but that") != k.differs {
			t.Errorf("by %s, whose kernel says %q: %s", k.by, k.kernel, r.out)
		}
	}
}
