package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// ExternalOptions name an etcd cluster.
type ExternalOptions struct {
	URLs []string // http://, https://, unix:// or unixs://
	// CA, Cert and Key are PEM files for TLS: whom we trust (the system's authorities when empty), and who we are.
	CA, Cert, Key string
	// Username and Password log in where the cluster demands it.
	Username, Password string
	// Aside is a directory on this machine for what is urgent while the cluster takes nothing; none if it is empty.
	Aside string
	// Prefix keeps several instances on one cluster apart; DefaultPrefix when empty. It must end with a slash.
	Prefix string
}

// Check tells what is wrong with the options, without asking the cluster.
func (o ExternalOptions) Check() error {
	_, err := o.checked()
	return err
}

func (o ExternalOptions) checked() (*tls.Config, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("connect to etcd: no URL was given")
	}
	if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
		return nil, fmt.Errorf("connect to etcd: the prefix %q must end with a slash", o.Prefix)
	}
	security, err := o.tls()
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return security, nil
}

// OpenExternal connects to a cluster. It returns when the cluster has answered.
func OpenExternal(ctx context.Context, options ExternalOptions) (*Store, error) {
	security, err := options.checked()
	if err != nil {
		return nil, err
	}
	options.Prefix = cmp.Or(options.Prefix, DefaultPrefix)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: options.URLs, TLS: security, Username: options.Username, Password: options.Password,
		// A member that hangs is left alone well within requestTimeout. etcd refuses clients that ask more often than
		// every five seconds.
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 6 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		// Otherwise gRPC waits ever longer, up to two minutes: so long nothing would go on after the cluster is back.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second})},
		Context: ctx, Logger: zap.NewNop(), // what goes wrong comes back as an error of the request
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(options.URLs, ", "), err)
	}
	s := &Store{kv: client.KV, prefix: options.Prefix, place: strings.Join(options.URLs, ","), close: client.Close,
		moved: map[string]int64{}, unsure: map[string][]string{}, looked: map[string]time.Time{},
		versions: map[string]version{}}
	err = s.checkLayout(ctx)
	if err == nil {
		err = s.openAside(options.Aside)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// tls is what the options say of TLS; nil without it. Half of a set-up is an error: else somebody would believe in a
// connection that is not there.
func (o ExternalOptions) tls() (*tls.Config, error) {
	secure := false
	for _, u := range o.URLs {
		scheme, _, found := strings.Cut(u, "://")
		switch {
		case !found || scheme != "http" && scheme != "https" && scheme != "unix" && scheme != "unixs":
			return nil, fmt.Errorf("%q is no URL of etcd: http://HOST:2379, https://HOST:2379 or unix://PATH was "+
				"expected", u)
		case scheme == "https" || scheme == "unixs":
			secure = true
		}
	}
	if !secure {
		if o.CA != "" || o.Cert != "" || o.Key != "" {
			return nil, errors.New("certificates were given, but no URL begins with https://")
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", o.CA)
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("a client certificate needs its key and the other way round")
	}
	if o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
