package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// authorityDir is where an instance's certificate authority is.
func authorityDir(data string) string { return filepath.Join(data, "authority") }

// openOutside opens the listeners for other machines, always with TLS.
func openOutside(ctx context.Context, config Config) (*Outside, []net.Listener, error) {
	if len(config.Listen) == 0 {
		return nil, nil, nil
	}
	authority, err := trust.OpenAuthority(authorityDir(config.Dirs.Data), config.Dirs.Name)
	if err != nil {
		return nil, nil, err
	}
	out := &Outside{Authority: authority}
	var listen []string
	names := func() []string { return namesOf(listen, config.Advertise) }
	security := trust.NewServer(authority, names).Config()
	var listeners []net.Listener
	crowd := api.NewCrowd()
	for _, address := range config.Listen {
		l, err := (&net.ListenConfig{Control: tunnel.GiveUp}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return nil, nil, fmt.Errorf("serve other machines at %s: %w", address, err)
		}
		listeners = append(listeners, tls.NewListener(silent{crowd.Listener(l)}, security))
		host, _, err := net.SplitHostPort(address)
		_, port, _ := net.SplitHostPort(l.Addr().String()) // the port that was chosen, if any was asked for
		if err == nil {
			listen = append(listen, net.JoinHostPort(host, port))
		}
	}
	out.Servers = serversOf(listen, config.Advertise)
	return out, listeners, nil
}

// serversOf are the addresses to tell others, best first: those that are advertised, those that are listened on by name
// or address, and this machine's own.
func serversOf(listen, advertise []string) []string {
	servers := slices.Clone(advertise)
	for _, address := range listen {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue // was refused already
		}
		if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
			servers = append(servers, address)
			continue
		}
		for _, ip := range ownAddresses() {
			if !ip.IsLoopback() {
				servers = append(servers, net.JoinHostPort(ip.String(), port))
			}
		}
		if name, err := os.Hostname(); err == nil {
			servers = append(servers, net.JoinHostPort(name, port))
		}
	}
	for i, s := range servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			servers[i] = net.JoinHostPort(s, strconv.Itoa(model.DefaultPort))
		}
	}
	return unique(servers)
}

// namesOf are all names by which a client may know this machine.
func namesOf(listen, advertise []string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	for _, s := range serversOf(listen, advertise) {
		if host, _, err := net.SplitHostPort(s); err == nil {
			names = append(names, host)
		}
	}
	return unique(names)
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// ownAddresses are this machine's addresses, IPv4 first, without those that are valid on one link only.
func ownAddresses() []net.IP {
	var four, six []net.IP
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		p, ok := a.(*net.IPNet)
		switch {
		case !ok || p.IP.IsLinkLocalUnicast():
		case p.IP.To4() != nil:
			four = append(four, p.IP)
		default:
			six = append(six, p.IP)
		}
	}
	return append(four, six...)
}

// silent sends nothing to clients that do not begin with TLS, not even that this is the wrong protocol.
type silent struct{ net.Listener }

func (s silent) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &silentConn{Conn: c}, nil
}

type silentConn struct {
	net.Conn
	begun bool
}

// handshake is the type of the first record (RFC 8446, 5.1).
const handshake = 22

func (c *silentConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.begun && n > 0 {
		if c.begun = true; b[0] != handshake {
			c.Conn.Close()
			return 0, io.EOF
		}
	}
	return n, err
}
