package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/polyplane/polyplane/durable"
)

// Key is a private key that is to be certified.
type Key struct{ private *ecdsa.PrivateKey }

// NewKey makes a key.
func NewKey() (Key, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return Key{k}, err
}

// Request is a certificate request for the key (PKCS #10).
func (k Key) Request(name string) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}},
		k.private)
}

// Identity is a node's key and certificate, in a file. It may be used by several goroutines at once.
type Identity struct {
	path string

	mu          sync.Mutex // guards certificate, which Replace changes while connections are made
	certificate tls.Certificate
}

func identityFile(dir string) string { return filepath.Join(dir, "identity.pem") }

// HasIdentity tells whether there is an identity in the directory.
func HasIdentity(dir string) bool {
	_, err := os.Stat(identityFile(dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// OpenIdentity reads the identity in a directory.
func OpenIdentity(dir string) (*Identity, error) {
	i := &Identity{path: identityFile(dir)}
	b, err := os.ReadFile(i.path)
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate: %w", err)
	}
	if i.certificate, err = tls.X509KeyPair(b, b); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): have the node join again", i.path, err)
	}
	return i, nil
}

// SaveIdentity writes a key and its certificate (in PEM, with the authority's) into a directory.
func SaveIdentity(dir string, key Key, certificate []byte) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	i := &Identity{path: identityFile(dir)}
	return i, i.Replace(key, certificate)
}

// Replace is for a renewed certificate: from now on it is used, and it is in the file.
func (i *Identity) Replace(key Key, certificate []byte) error {
	b, err := encodeKey(key.private)
	if err != nil {
		return err
	}
	b = append(b, certificate...)
	pair, err := tls.X509KeyPair(b, b)
	if err != nil {
		return fmt.Errorf("the certificate does not belong to the key that it was requested for: %w", err)
	}
	if err := writeSecret(i.path, b); err != nil {
		return fmt.Errorf("keep the node's certificate: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.certificate = pair
	return nil
}

// Certificate is what the node shows.
func (i *Identity) Certificate() (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.certificate
	return &c, nil
}

// Node is who the certificate says this is, Pin the fingerprint of who signed it.
func (i *Identity) Node() (Node, Pin, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, ok := NodeOf(i.certificate.Leaf)
	if !ok || len(i.certificate.Certificate) < 2 {
		return n, Pin{}, fmt.Errorf("%s does not hold a node's certificate and that of its authority: let the node "+
			"join again", i.path)
	}
	ca, err := x509.ParseCertificate(i.certificate.Certificate[1])
	if err != nil {
		return n, Pin{}, fmt.Errorf("%s: %w", i.path, err)
	}
	return n, pinOf(ca), nil
}

// Times are when the certificate's life began, when it is to be renewed, and when it ends.
func (i *Identity) Times() (began, renew, end time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.certificate.Leaf
	return c.NotBefore.Add(skew), RenewAt(c), c.NotAfter
}

func encodeKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// writeSecret replaces a file that only this user may read. It does so in one step, and syncs it to the disk: a power
// cut leaves the old file or the new one.
func writeSecret(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error counts
		return err
	}
	return durable.Sync(filepath.Dir(path))
}
