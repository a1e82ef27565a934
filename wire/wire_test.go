package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/polyplane/polyplane/node/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo serves a command that copies its input to its output, its arguments to standard error, and exits with 7.
func echo(w http.ResponseWriter, r *http.Request) {
	cmd, err := CommandOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := Accept(w, r)
	if err != nil {
		return
	}
	Serve(context.Background(), c, cmd.TTY, func(ctx context.Context, s control.Stdio) (int, error) {
		switch cmd.Args[0] {
		case "echo":
			if s.Err != nil {
				io.WriteString(s.Err, strings.Join(cmd.Args, " "))
			}
			_, err := io.Copy(s.Out, s.In)
			return 7, err
		case "size":
			size := <-s.Resize
			io.WriteString(s.Out, string(rune('0'+size.Rows)))
			return 0, nil
		case "wait":
			<-ctx.Done()
			close(gone)
			return 0, ctx.Err()
		}
		return 0, errors.New("no such command: " + cmd.Args[0])
	})
}

var gone chan struct{}

// start returns a server behind a reverse proxy, as an agent is behind the manager.
func start(t *testing.T) (*http.Client, string) {
	t.Helper()
	back := httptest.NewServer(http.HandlerFunc(echo))
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.Transport = tr
	front := httptest.NewServer(proxy)
	own := &http.Transport{}
	t.Cleanup(func() {
		own.CloseIdleConnections()
		front.Close()
		tr.CloseIdleConnections()
		back.Close()
	})
	return &http.Client{Transport: own}, front.URL
}

func open(t *testing.T, cl *http.Client, base string, cmd control.Command) *Conn {
	t.Helper()
	q := url.Values{}
	if err := SetCommand(q, cmd); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", base+"/?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {Protocol}}
	resp, err := cl.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("refused: %s", resp.Status)
	}
	return NewConn(resp.Body.(io.ReadWriteCloser), nil)
}

func TestThroughProxy(t *testing.T) {
	cl, base := start(t)
	big := bytes.Repeat([]byte("polyplane"), 500_000) // several chunks, more than any socket's buffer
	var out, errOut bytes.Buffer
	c := open(t, cl, base, control.Command{Args: []string{"echo", "hé", "&="}})
	e, err := Attach(t.Context(), c, control.Stdio{In: bytes.NewReader(big), Out: &out, Err: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if e != (Exit{Code: 7}) {
		t.Errorf("exit = %+v, want code 7", e)
	}
	if !bytes.Equal(out.Bytes(), big) {
		t.Errorf("got %d bytes back of %d", out.Len(), len(big))
	}
	if errOut.String() != "echo hé &=" {
		t.Errorf("stderr = %q", errOut.String())
	}
}

func TestResizeAndErrors(t *testing.T) {
	cl, base := start(t)
	sizes := make(chan control.Size, 1)
	sizes <- control.Size{Rows: 5, Cols: 80}
	var out bytes.Buffer
	c := open(t, cl, base, control.Command{Args: []string{"size"}, TTY: true})
	if _, err := Attach(t.Context(), c, control.Stdio{Out: &out, Resize: sizes}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "5" {
		t.Errorf("rows = %q, want 5", out.String())
	}
	c = open(t, cl, base, control.Command{Args: []string{"nonsense"}})
	e, err := Attach(t.Context(), c, control.Stdio{Out: &out})
	if err != nil || e.Error != "no such command: nonsense" {
		t.Errorf("exit = %+v, err = %v", e, err)
	}
}

func TestClientGone(t *testing.T) {
	cl, base := start(t)
	gone = make(chan struct{})
	c := open(t, cl, base, control.Command{Args: []string{"wait"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Attach(ctx, c, control.Stdio{Out: io.Discard}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	<-gone // the command's context ended
}

// TestClientGoneWhileItSends closes a connection whose input nobody reads.
func TestClientGoneWhileItSends(t *testing.T) {
	cl, base := start(t)
	gone = make(chan struct{})
	c := open(t, cl, base, control.Command{Args: []string{"wait"}})
	ctx, cancel := context.WithCancel(t.Context())
	endless := &endlessInput{full: cancel}
	if _, err := Attach(ctx, c, control.Stdio{In: endless, Out: io.Discard}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	<-gone
}

// endlessInput has more than the socket buffers on the way hold, and then calls full.
type endlessInput struct {
	n    int
	full func()
}

func (e *endlessInput) Read(p []byte) (int, error) {
	if e.n += len(p); e.n > 256<<10 {
		e.full()
	}
	return len(p), nil
}

func TestWithoutUpgrade(t *testing.T) {
	cl, base := start(t)
	resp, err := cl.Get(base + `/?command={"args":["echo"]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("status = %s, want 426", resp.Status)
	}
}

func TestLimits(t *testing.T) {
	for name, in := range map[string]string{
		"unknown type":   "\x09\x00\x00\x00\x00",
		"huge":           "\x00\xff\xff\xff\xff",
		"huge control":   "\x03\x00\x02\x00\x00",
		"closed payload": "\x05\x00\x00\x00\x01x",
		"cut payload":    "\x01\x00\x00\x00\x05abc",
		"cut header":     "\x01\x00\x00",
	} {
		if _, err := NewReader(strings.NewReader(in)).Next(); err == nil || err == io.EOF {
			t.Errorf("%s: err = %v, want a complaint", name, err)
		}
	}
	if _, err := appendFrame(nil, Stdout, make([]byte, MaxData+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("err = %v, want ErrTooLarge", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, p := range []string{"", "\x01\x00\x00\x00\x03abc", "\x03\x00\x00\x00\x14{\"rows\":1,\"cols\":80}",
		"\x04\x00\x00\x00\x0a{\"code\":3}", "\x05\x00\x00\x00\x00"} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		var again []byte
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			if fr.Type == Resize {
				fr.Size() //nolint:errcheck // must not panic
			}
			if fr.Type == ExitFrame {
				fr.Exit() //nolint:errcheck
			}
			if again, err = appendFrame(again, fr.Type, fr.Payload); err != nil {
				t.Fatalf("a frame that was read cannot be written: %v", err)
			}
		}
		if !bytes.HasPrefix(in, again) {
			t.Fatalf("frames do not survive: %q from %q", again, in)
		}
	})
}
