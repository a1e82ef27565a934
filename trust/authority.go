// Package trust is who may be believed to be whom: the instance's certificate authority, the certificates of its
// manager and of the nodes that joined it, the fingerprint by which those who come from outside know it, and the tokens
// that they come with. Everything is ECDSA with P-256, and TLS 1.3 at least.
package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// How long certificates are valid. Each is renewed when two thirds of that have passed.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	ServerLife    = 90 * 24 * time.Hour
	NodeLife      = 30 * 24 * time.Hour
)

// ServerName is in every certificate of a manager, whatever machine it is on and by whatever address it is reached: who
// knows the authority asks for this name.
const ServerName = "manager.polyplane.internal"

// nodeUnit marks a node's certificate.
const nodeUnit = "polyplane node"

// skew is how far behind the clock of who reads a certificate may be.
const skew = time.Hour

// Authority signs certificates. It may be used by several goroutines at once.
type Authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// ReadAuthority reads the authority in a directory; nil where there is none.
func ReadAuthority(dir string) (*Authority, error) {
	a, err := readAuthority(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return a, err
}

// Seal is a proof that whoever has the authority's key once said so many words: others can keep it, and not make one.
func (a *Authority) Seal(words ...string) (string, error) {
	secret, err := a.key.Bytes()
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "polyplane seal %d", len(words))
	for _, w := range words {
		fmt.Fprintf(mac, " %d:%s", len(w), w)
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// Sealed tells whether it is the seal of these words.
func (a *Authority) Sealed(seal string, words ...string) bool {
	is, err := a.Seal(words...)
	return err == nil && hmac.Equal([]byte(is), []byte(seal))
}

// OpenAuthority reads the authority in a directory, or makes one there. The directory is only for this user.
func OpenAuthority(dir, instance string) (*Authority, error) {
	a, err := readAuthority(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if a, err = newAuthority(instance); err == nil {
		err = a.write(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	return a, nil
}

func authorityFile(dir string) string { return filepath.Join(dir, "authority.pem") }

func readAuthority(dir string) (*Authority, error) {
	path := authorityFile(dir)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	pair, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): put it back from a copy, or delete it, and have every node join "+
			"again", path, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("%s holds no certificate authority", path)
	}
	return &Authority{key: key, certificate: pair.Leaf}, nil
}

func newAuthority(instance string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: serial(),
		Subject:   pkix.Name{CommonName: "polyplane " + instance + " authority"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(AuthorityLife), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true,
		KeyUsage:       x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{key: key, certificate: certificate}, err
}

// write keeps the authority: key and certificate in one file, so that there is never one without the other.
func (a *Authority) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	return writeSecret(authorityFile(dir), append(b, a.PEM()...))
}

// PEM is the authority's certificate, for those who are to believe it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Pin is the authority's fingerprint.
func (a *Authority) Pin() Pin { return pinOf(a.certificate) }

// serial is a random serial number of 127 bits: no two certificates have the same (RFC 5280, 4.1.2.2).
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // the kernel's random numbers never fail
	}
	return n
}

// SignNode signs a node's request: the name and the membership are what the caller says, of the request only the key
// counts. The certificate is good for clients only. It comes with the authority's, in PEM.
func (a *Authority) SignNode(request []byte, node Node) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("the certificate request is not right: %w", err)
	}
	// What kind of key it is comes first: one of RSA may be so large that its signature takes minutes to check.
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the certificate request is wrong: an ECDSA key with P-256 is expected")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not right: %w", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial(),
		Subject: pkix.Name{CommonName: node.Name, OrganizationalUnit: []string{nodeUnit},
			SerialNumber: node.Membership},
		NotBefore: now.Add(-skew), NotAfter: now.Add(NodeLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of node %s: %w", node.Name, err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.PEM()...), nil
}

// Node is who a node's certificate says it is. Membership is given with each joining: a certificate of an earlier one
// is nobody's any more.
type Node struct{ Name, Membership string }

// NodeOf tells whose a verified certificate is; false when it is no node's.
func NodeOf(c *x509.Certificate) (Node, bool) {
	return Node{c.Subject.CommonName, c.Subject.SerialNumber}, slices.Contains(c.Subject.OrganizationalUnit, nodeUnit)
}

// Server is the manager's side of TLS: its certificate, made anew in time, and whom it believes.
type Server struct {
	authority *Authority
	names     func() []string

	mu      sync.Mutex // guards current, and is held while a new one is made: only one is
	current *tls.Certificate
}

// NewServer returns the manager's side. names tells the host names and addresses by which it may be reached, asked
// whenever a certificate is made.
func NewServer(a *Authority, names func() []string) *Server {
	return &Server{authority: a, names: names}
}

// Config is for listeners. Clients without a certificate are let in: it is the API's to ask for a token.
func (s *Server) Config() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(s.authority.certificate)
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs:  pool, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate()
		},
		// What a certificate says is looked at anew with every connection.
		SessionTicketsDisabled: true}
}

// certificate is the current one, or a new one when two thirds of its life have passed.
func (s *Server) certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.current != nil && now.Before(RenewAt(s.current.Leaf)) && now.After(s.current.Leaf.NotBefore) {
		return s.current, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "polyplane manager"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(ServerLife), BasicConstraintsValid: true,
		DNSNames: []string{ServerName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range s.names() {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.authority.certificate, key.Public(), s.authority.key)
	if err != nil {
		return nil, fmt.Errorf("make the manager's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	// The authority comes along: who knows its fingerprint only needs it.
	s.current = &tls.Certificate{Certificate: [][]byte{der, s.authority.certificate.Raw}, PrivateKey: key, Leaf: leaf}
	return s.current, nil
}

// RenewAt is when a certificate is to be renewed: two thirds into the life that it began with.
func RenewAt(c *x509.Certificate) time.Time {
	began := c.NotBefore.Add(skew)
	return began.Add(c.NotAfter.Sub(began) * 2 / 3)
}
