package api

import (
	"net"
	"net/netip"
	"sync"
)

// How many connections from other machines there are at a time. One more is closed at once, before anything is spent on
// it.
const (
	maxConnections = 8192
	// maxOfOne is how many one host may have: a node has about four, a command one or two.
	maxOfOne = 256
)

// Crowd bounds the connections of the listeners that it is told of, all of them together.
type Crowd struct {
	most, each int

	mu    sync.Mutex           // guards the two below
	all   int                  // open connections
	hosts map[netip.Prefix]int // of them, those of each host
}

// NewCrowd returns one without any connection yet.
func NewCrowd() *Crowd {
	return &Crowd{most: maxConnections, each: maxOfOne, hosts: map[netip.Prefix]int{}}
}

// Listener accepts what the other one does, while there is room for it.
func (c *Crowd) Listener(l net.Listener) net.Listener { return crowded{l, c} }

// enter counts a connection, unless there is no room for it.
func (c *Crowd) enter(host netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.hosts[host] >= c.each {
		return false
	}
	c.all++
	c.hosts[host]++
	return true
}

func (c *Crowd) leave(host netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.hosts[host]--; c.hosts[host] == 0 {
		delete(c.hosts, host)
	}
}

// crowded is a listener whose connections are counted. One for which there is no room is closed at once: to let it wait
// would take memory as well.
type crowded struct {
	net.Listener
	crowd *Crowd
}

func (l crowded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := network(hostOf(conn.RemoteAddr().String()))
		if l.crowd.enter(from) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.crowd.leave(from) })}, nil
		}
		conn.Close()
	}
}

// counted leaves the crowd when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
