package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/polyplane/polyplane/system/attack"
)

// One host more than there may be is turned away, until another leaves; so is one connection too many of a host.
func TestTheCrowdIsBounded(t *testing.T) {
	attack.Tell(t, "connections of more hosts than there may be",
		"a bounded number is served")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	crowd := NewCrowd()
	crowd.most, crowd.each = 3, 2
	limited := crowd.Listener(l)
	defer limited.Close()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	enter := func(from string) net.Conn {
		t.Helper()
		dial(from)
		return <-accepted
	}
	refused := func(what, from string) {
		t.Helper()
		if n, err := dial(from).Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
	}
	first, second := enter("127.0.0.1"), enter("127.0.0.1")
	refused("a host's third connection", "127.0.0.1")
	other := enter("127.0.0.2")
	refused("more than there may be", "127.0.0.3")
	for range 2 { // closed twice it leaves once
		if err := first.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	again := enter("127.0.0.3")
	refused("more than there may be, again", "127.0.0.4")
	for _, c := range []io.Closer{second, other, again} {
		c.Close()
	}
	if crowd.all != 0 || len(crowd.hosts) != 0 {
		t.Errorf("when all have left: %v", fmt.Sprint(crowd.all, crowd.hosts))
	}
	limited.Close()
	for range accepted { //nolint:revive // until the listener has ended
	}
}
