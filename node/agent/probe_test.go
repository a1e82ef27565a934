package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

func TestMain(m *testing.M) {
	// One goroutine wakes all monitors, as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/polyplane/polyplane/linux.(*waiting).run"))
}

// lab is a few network namespaces, each an element's.
type lab map[model.ID]netns.NsHandle

func id(element string) model.ID { return model.ID{Network: "lab", Element: element} }

func newLab(t *testing.T, elements ...string) lab {
	t.Helper()
	l := lab{}
	for _, e := range elements {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // not given back: the thread ends with the goroutine
			ns, err := netns.New()
			l[id(e)] = ns
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ns := l[id(e)]
			ns.Close()
		})
	}
	return l
}

// enter is control.Enterer's.
func (l lab) enter(id model.ID, f func() error) error {
	ns, ok := l[id]
	if !ok {
		return fmt.Errorf("there is no element %s", id)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// join links two elements and gives the ends addresses.
func (l lab) join(t *testing.T, a, b string, as, bs []string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "to-" + b
	err := l.enter(id(a), func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "to-" + a,
			PeerNamespace: netlink.NsFd(l[id(b)])})
	})
	if err != nil {
		t.Fatal(err)
	}
	ends := []struct {
		at, device string
		addresses  []string
	}{{a, "to-" + b, as}, {b, "to-" + a, bs}}
	on := func(at, device string, f func(netlink.Link) error) {
		t.Helper()
		err := l.enter(id(at), func() error {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			return f(link)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range ends {
		on(e.at, e.device, netlink.LinkSetUp)
	}
	// The kernel takes a link into use some time after both ends are up; addresses that it gets before wait even
	// longer.
	for _, e := range ends {
		for up := false; !up; time.Sleep(time.Millisecond) {
			on(e.at, e.device, func(link netlink.Link) error {
				up = link.Attrs().OperState == netlink.OperUp
				return nil
			})
		}
		on(e.at, e.device, func(link netlink.Link) error {
			for _, text := range e.addresses {
				addr, err := netlink.ParseAddr(text)
				if err != nil {
					return err
				}
				addr.Flags = unix.IFA_F_NODAD
				if err := netlink.AddrAdd(link, addr); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func probeTo(from, to, address, secret string) model.Probe {
	return model.Probe{From: id(from), To: id(to), Address: netip.MustParseAddr(address), Secret: secret}
}

func TestProbes(t *testing.T) {
	l := newLab(t, "a", "b")
	l.join(t, "a", "b", []string{"10.0.0.1/24", "fd00::1/64"},
		[]string{"10.0.0.2/24", "10.0.0.3/24", "fd00::2/64", "fd00::3/64"})
	r := newResponders(l.enter)
	defer r.close()
	failed := r.open(model.RespondersRequest{Seconds: 60, Responders: []model.Responder{
		{ID: id("b"), Secret: "s3cret"}, {ID: id("nobody"), Secret: "x"}}}).Failed
	if len(failed) != 1 || failed[0].ID != id("nobody") {
		t.Fatalf("failed = %+v, want lab/nobody only", failed)
	}
	not := probeTo("a", "b", "10.0.0.9", "s3cret")
	not.Not = true
	notButIs := probeTo("a", "b", "10.0.0.2", "s3cret")
	notButIs.Not = true
	untried := probeTo("nobody", "b", "10.0.0.2", "s3cret")
	untried.Not = true
	probes := []struct {
		probe        model.Probe
		ok, reached  bool
		answered     string
		needsMessage bool
	}{
		{probe: probeTo("a", "b", "10.0.0.2", "s3cret"), ok: true, reached: true},
		{probe: probeTo("a", "b", "10.0.0.3", "s3cret"), ok: true, reached: true}, // answered from the address asked
		{probe: probeTo("a", "b", "fd00::2", "s3cret"), ok: true, reached: true},
		{probe: probeTo("a", "b", "fd00::3", "s3cret"), ok: true, reached: true},
		{probe: probeTo("a", "b", "10.0.0.2", "another"), answered: "lab/b", needsMessage: true},
		{probe: probeTo("a", "c", "10.0.0.2", "s3cret"), answered: "lab/b", needsMessage: true}, // somebody else
		{probe: probeTo("a", "b", "10.0.0.9", "s3cret"), needsMessage: true},                    // nobody
		{probe: probeTo("a", "b", "10.9.9.9", "s3cret"), needsMessage: true},                    // no route
		{probe: not, ok: true, needsMessage: true},
		{probe: notButIs, reached: true},
		{probe: untried, needsMessage: true},
	}
	request := model.ProbesRequest{Timeout: 3 * time.Second, Attempts: 10}
	for _, p := range probes {
		request.Probes = append(request.Probes, p.probe)
	}
	results := runProbes(t.Context(), request, l.enter).Results
	for i, p := range probes {
		got := results[i]
		if got.OK != p.ok || got.Reached != p.reached || got.Answered != p.answered ||
			(got.Message != "") != p.needsMessage {
			t.Errorf("%+v: %+v", p.probe, got)
		}
		if got.Reached && (got.RTT <= 0 || got.RTT > request.Timeout) {
			t.Errorf("%+v took %s", p.probe, got.RTT)
		}
	}
}

// Checks that are under way at the same time do not replace each other's responders: each gets the answers that it
// expects, of probes with a single try as well, and what one opens later or for less time takes nothing from another.
func TestChecksShareResponders(t *testing.T) {
	l := newLab(t, "a", "b")
	l.join(t, "a", "b", []string{"10.0.0.1/24"}, []string{"10.0.0.2/24"})
	r := newResponders(l.enter)
	defer r.close()
	var checks sync.WaitGroup
	const rounds = 20
	for n := range 8 {
		checks.Go(func() {
			for k := range rounds {
				secret := fmt.Sprintf("%d of %d", k, n)
				open := model.RespondersRequest{Seconds: 60, Responders: []model.Responder{{ID: id("b"), Secret: secret}}}
				if f := r.open(open).Failed; len(f) > 0 {
					t.Error(f)
					return
				}
				got := runProbes(t.Context(), model.ProbesRequest{Timeout: 20 * time.Second, Attempts: 1,
					Probes: []model.Probe{probeTo("a", "b", "10.0.0.2", secret)}}, l.enter).Results[0]
				if !got.OK {
					t.Errorf("round %d of check %d: %+v", k, n, got)
				}
			}
		})
	}
	checks.Wait()
}

// An element that has got another namespace is answered for there.
func TestRespondersFollowTheirElement(t *testing.T) {
	l := newLab(t, "a", "b")
	l.join(t, "a", "b", []string{"10.0.0.1/24"}, []string{"10.0.0.2/24"})
	r := newResponders(l.enter)
	defer r.close()
	request := model.RespondersRequest{Seconds: 60, Responders: []model.Responder{{ID: id("b"), Secret: "s"}}}
	if f := r.open(request).Failed; len(f) > 0 {
		t.Fatal(f)
	}
	l[id("b")] = newLab(t, "b")[id("b")]
	if f := r.open(request).Failed; len(f) > 0 {
		t.Fatal(f)
	}
	err := l.enter(id("b"), func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: model.ProbePort})
		if err == nil {
			c.Close()
		}
		return err
	})
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("nobody answers in the new namespace: %v", err)
	}
}

// Hundreds at once, and nothing stays open.
func TestManyProbes(t *testing.T) {
	l := newLab(t, "hub")
	r := newResponders(l.enter)
	var open model.RespondersRequest
	var ask model.ProbesRequest
	const n = 60
	for i := range n {
		name := fmt.Sprintf("e%d", i)
		l[id(name)] = newLab(t, name)[id(name)]
		l.join(t, "hub", name, []string{fmt.Sprintf("10.0.%d.1/24", i)}, []string{fmt.Sprintf("10.0.%d.2/24", i)})
		open.Responders = append(open.Responders, model.Responder{ID: id(name), Secret: name})
		for range 10 {
			ask.Probes = append(ask.Probes, probeTo("hub", name, fmt.Sprintf("10.0.%d.2", i), name))
		}
	}
	open.Seconds = 60
	before := countFiles(t)
	if f := r.open(open).Failed; len(f) > 0 {
		t.Fatal(f)
	}
	if f := r.open(open).Failed; len(f) > 0 { // is open already
		t.Fatal(f)
	}
	ask.Timeout, ask.Attempts = 20*time.Second, 5
	for i, p := range runProbes(t.Context(), ask, l.enter).Results {
		if !p.OK {
			t.Errorf("probe %d: %+v", i, p)
		}
	}
	r.close()
	if after := countFiles(t); after != before {
		t.Errorf("%d files are open, before %d", after, before)
	}
}

func countFiles(t *testing.T) int {
	t.Helper()
	var n int
	for fd := range 4096 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

// A responder that has had its time is gone: its port is free again.
func TestRespondersEnd(t *testing.T) {
	l := newLab(t, "a")
	r := newResponders(l.enter)
	defer r.close()
	if f := r.open(model.RespondersRequest{Seconds: 1,
		Responders: []model.Responder{{ID: id("a"), Secret: "s"}}}).Failed; len(f) > 0 {
		t.Fatal(f)
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := l.enter(id("a"), func() error {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: model.ProbePort})
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			if time.Since(start) < 500*time.Millisecond {
				t.Error("the responder did not live for its second")
			}
			return
		}
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add([]byte(reply + "0123456789abcdef" + "lab/r1\x00secret"))
	f.Add([]byte(reply))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, name, secret, ok := parseReply(b)
		if ok && len(name)+len(secret)+len(reply)+nonceLen+1 != len(b) {
			t.Errorf("%q became %q and %q", b, name, secret)
		}
	})
}
