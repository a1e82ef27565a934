package manager

import (
	"io"
	"net"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// slow is a connection that takes its time to close.
type slow struct {
	net.Conn
	closing, may chan struct{}
}

func (s *slow) Close() error {
	close(s.closing)
	<-s.may
	return s.Conn.Close()
}

// Nobody waits for a tunnel that is hard to close.
func TestNobodyWaitsForATunnelsEnd(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.mu.Lock()
	f.members = map[string]*membership{"n1": {Member: model.Member{Membership: "x"}, end: func() {}}}
	f.mu.Unlock()
	pipe := func() net.Conn {
		near, far := net.Pipe()
		go io.Copy(io.Discard, far) //nolint:errcheck // ends with the pipe
		return near
	}
	first := &slow{pipe(), make(chan struct{}), make(chan struct{})}
	for _, conn := range []net.Conn{first, pipe()} {
		if err := f.Tunnel(trust.Node{Name: "n1", Membership: "x"}, conn); err != nil {
			t.Fatal(err)
		}
	}
	<-first.closing
	f.apply(t, line("lab", 2), model.ApplyOptions{}) // takes every lock
	if err := f.Tunnel(trust.Node{Name: "n1", Membership: "of before"}, pipe()); err == nil {
		t.Error("the tunnel of a former member is taken")
	}
	close(first.may)
	f.closeAccess()
}
