package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	random "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// members is how many members an external etcd has: one may be lost.
const members = 3

// cluster is an etcd cluster (Debian's package etcd-server) on the sandbox's loopback. It asks its clients for
// certificates.
type cluster struct {
	dir    string
	names  []string
	member map[string]*exec.Cmd
	client *clientv3.Client // the harness's own, to ask who leads
}

func (c *cluster) clientURL(i int) string { return fmt.Sprintf("https://127.0.0.1:%d", 23790+2*i) }
func (c *cluster) peerURL(i int) string   { return fmt.Sprintf("http://127.0.0.1:%d", 23791+2*i) }

// startCluster starts one in a directory, and returns when it has a leader.
func startCluster(ctx context.Context, dir string) (*cluster, error) {
	c := &cluster{dir: dir, member: map[string]*exec.Cmd{}}
	for i := range members {
		c.names = append(c.names, fmt.Sprintf("m%d", i+1))
	}
	if err := makeCertificates(dir); err != nil {
		return nil, fmt.Errorf("certificates for etcd: %w", err)
	}
	for i := range c.names {
		if err := c.start(i); err != nil {
			c.close()
			return nil, err
		}
	}
	pair, err := tls.LoadX509KeyPair(c.file("client.pem"), c.file("client.key"))
	if err != nil {
		c.close()
		return nil, err
	}
	authorities := x509.NewCertPool()
	ca, err := os.ReadFile(c.file("ca.pem"))
	if err != nil || !authorities.AppendCertsFromPEM(ca) {
		c.close()
		return nil, fmt.Errorf("the cluster's authority cannot be read: %w", err)
	}
	c.client, err = clientv3.New(clientv3.Config{Endpoints: strings.Split(c.urls(), ","), DialTimeout: 5 * time.Second,
		Logger: zap.NewNop(), TLS: &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{pair}}})
	if err == nil {
		err = c.whole(ctx)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("start three members of etcd: %w", err)
	}
	return c, nil
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) urls() string {
	var all []string
	for i := range c.names {
		all = append(all, c.clientURL(i))
	}
	return strings.Join(all, ",")
}

// flags are what `up` is told of it.
func (c *cluster) flags() []string {
	return []string{"--etcd", c.urls(), "--etcd-cacert", c.file("ca.pem"), "--etcd-cert", c.file("client.pem"),
		"--etcd-key", c.file("client.key")}
}

func (c *cluster) start(i int) error {
	var initial []string
	for k, name := range c.names {
		initial = append(initial, name+"="+c.peerURL(k))
	}
	name := c.names[i]
	log, err := os.OpenFile(c.file(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("etcd", "--name", name, "--data-dir", c.file(name), "--initial-cluster",
		strings.Join(initial, ","), "--initial-cluster-token", "chaos", "--listen-peer-urls", c.peerURL(i),
		"--initial-advertise-peer-urls", c.peerURL(i),
		"--listen-client-urls", c.clientURL(i), "--advertise-client-urls", c.clientURL(i),
		"--cert-file", c.file("server.pem"), "--key-file", c.file("server.key"), "--client-cert-auth",
		"--trusted-ca-file", c.file("ca.pem"))
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // it wants to be told there, and is not elsewhere
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd (Debian's package etcd-server): %w", err)
	}
	c.member[name] = cmd
	return nil
}

// end kills a member and waits for its end.
func (c *cluster) end(name string) {
	if cmd := c.member[name]; cmd != nil {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // as it was killed
		delete(c.member, name)
	}
}

func (c *cluster) close() {
	for _, name := range c.names {
		c.end(name)
	}
	if c.client != nil {
		c.client.Close() //nolint:errcheck // nothing is under way
	}
}

// whole waits until all members answer and have a leader.
func (c *cluster) whole(ctx context.Context) error {
	return eventually(ctx, "all members of etcd to answer", func() error {
		_, err := c.leader(ctx)
		return err
	})
}

// leader is the place of the member that leads.
func (c *cluster) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	leader := -1
	for i, name := range c.names {
		s, err := c.client.Status(ctx, c.clientURL(i))
		switch {
		case err != nil:
			return 0, fmt.Errorf("member %s: %w", name, err)
		case s.Leader == 0:
			return 0, fmt.Errorf("member %s knows no leader", name)
		case s.Leader == s.Header.MemberId:
			leader = i
		}
	}
	if leader < 0 {
		return 0, errors.New("no member leads")
	}
	return leader, nil
}

// write makes the manager store something small, and tells how long that took.
func (run *run) write(ctx context.Context) (time.Duration, error) {
	run.written++ // what is stored already would not be stored again
	began := time.Now()
	_, err := run.client.SetQuota(ctx, model.QuotaOfOwner, "nobody", model.QuotaRequest{Values: []model.Assignment{
		{Key: "networks", Value: fmt.Sprint(run.written)}}})
	return time.Since(began), err
}

// lose kills a member, and starts it again when the operation has ended. The platform must go on with the other two.
func (run *run) lose(ctx context.Context, i int, name string) (func() error, error) {
	before, err := run.write(ctx)
	if err != nil {
		return nil, fmt.Errorf("before a member of etcd was killed: %w", err)
	}
	run.times.note("a write, all members there", before)
	run.cluster.end(run.cluster.names[i])
	after, err := run.write(ctx)
	if err != nil {
		return nil, fmt.Errorf("with two of three members: %w", err)
	}
	run.times.note("a write right after the "+name+" was killed", after)
	if after, err = run.write(ctx); err != nil {
		return nil, fmt.Errorf("with two of three members: %w", err)
	}
	run.times.note("a write with two members", after)
	return func() error {
		if err := run.cluster.start(i); err != nil {
			return err
		}
		return run.cluster.whole(ctx)
	}, nil
}

func (run *run) killMember(ctx context.Context, r *random.Rand) (func() error, error) {
	leader, err := run.cluster.leader(ctx)
	if err != nil {
		return nil, err
	}
	return run.lose(ctx, (leader+1+r.IntN(members-1))%members, "etcd member")
}

func (run *run) killLeader(ctx context.Context, _ *random.Rand) (func() error, error) {
	leader, err := run.cluster.leader(ctx)
	if err != nil {
		return nil, err
	}
	return run.lose(ctx, leader, "etcd leader")
}

// cutCluster stops two of three members for a while: there is no majority, but no connection ends.
func (run *run) cutCluster(ctx context.Context, r *random.Rand) (func() error, error) {
	spared := r.IntN(members)
	signal := func(s unix.Signal) error {
		for i, name := range run.cluster.names {
			if i != spared {
				if err := unix.Kill(run.cluster.member[name].Process.Pid, s); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := signal(unix.SIGSTOP); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(500+r.IntN(3000)) * time.Millisecond)
	if err := signal(unix.SIGCONT); err != nil {
		return nil, err
	}
	return func() error { return run.cluster.whole(ctx) }, nil
}

// makeCertificates makes an authority, and certificates for the members and the manager.
func makeCertificates(dir string) error {
	write := func(name, kind string, der []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	var authority *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		// Valid for years around now: the run sets the manager's clock days ahead and back.
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(1, 0, 0),
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		if authority == nil {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			authority, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, signer)
		if err != nil {
			return err
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		if err := errors.Join(write(name+".pem", "CERTIFICATE", der),
			write(name+".key", "EC PRIVATE KEY", private)); err != nil {
			return err
		}
	}
	return nil
}
