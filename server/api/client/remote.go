package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// remote is a manager that is reached over TLS.
type remote struct {
	server string // HOST:PORT
	token  string // a user's; empty for nodes, which have a certificate
}

// dialTimeout is how long a connection to a manager on another machine may take, with its handshake.
const dialTimeout = 10 * time.Second

// NewUser returns a client of the manager at server, HOST:PORT, for the user whose the token is.
func NewUser(server string, token trust.Token) *Client {
	return newRemote(server, token.String(), trust.ClientConfig(token.Pin, nil))
}

// NewHost returns a client for a host that is to join: all it may do is that.
func NewHost(server string, pin trust.Pin) *Client {
	return newRemote(server, "", trust.ClientConfig(pin, nil))
}

// NewNode returns a client for the node whose identity it is.
func NewNode(server string, identity *trust.Identity) (*Client, error) {
	_, pin, err := identity.Node()
	if err != nil {
		return nil, err
	}
	return newRemote(server, "", trust.ClientConfig(pin, identity.Certificate)), nil
}

func newRemote(server, token string, security *tls.Config) *Client {
	r := &remote{server: server, token: token}
	transport := &http.Transport{
		ExpectContinueTimeout: expectTimeout,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return (&tls.Dialer{NetDialer: &net.Dialer{Control: tunnel.GiveUp}, Config: security}).DialContext(ctx,
				"tcp", server)
		},
		IdleConnTimeout: 30 * time.Second,
	}
	return &Client{http: &http.Client{Transport: transport}, name: server, remote: r}
}

// RemoteError tells that the manager at an address cannot be spoken to.
type RemoteError struct {
	Server string
	cause  error
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("the manager at %s cannot be reached: %v", e.Server, e.cause)
}

func (e *RemoteError) Unwrap() error { return e.cause }

// explainRemote is explain for managers on other machines.
func (c *Client) explainRemote(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // "Get https://…" tells people nothing
	}
	var op *net.OpError
	var wrong *trust.WrongAuthorityError
	var expired x509.CertificateInvalidError
	switch {
	case errors.As(err, &wrong):
		if errors.As(err, &expired) && expired.Reason == x509.Expired {
			return &RemoteError{c.remote.server,
				fmt.Errorf("its certificate is not valid now (%w): is this machine's clock right?", expired)}
		}
		return &RemoteError{c.remote.server, wrong}
	case errors.As(err, &op) && op.Op == "remote error":
		return &RemoteError{c.remote.server,
			fmt.Errorf("it refuses this node's certificate (%w): if it has expired, have the node join again", op.Err)}
	case errors.As(err, &op) && op.Op == "dial":
		return &RemoteError{c.remote.server, op.Err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return &RemoteError{c.remote.server, fmt.Errorf("the connection broke off: %w", err)}
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &RemoteError{c.remote.server, errors.New("it does not answer in time")}
	}
	return err
}

// Server is the manager's address where it is reached over TLS, else empty.
func (c *Client) Server() string {
	if c.remote == nil {
		return ""
	}
	return c.remote.server
}
