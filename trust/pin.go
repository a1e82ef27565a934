package trust

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
)

// Pin is the SHA-256 fingerprint of an authority's certificate.
type Pin [sha256.Size]byte

func pinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.Raw) }

// String is the fingerprint in base64 (RFC 4648, section 5, without padding).
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// ParsePin reads what String wrote.
func ParsePin(text string) (Pin, error) {
	var p Pin
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(p) {
		return p, errors.New("it holds no fingerprint")
	}
	return Pin(b), nil
}

// WrongAuthorityError says that the manager that answers is not the one that the fingerprint belongs to.
type WrongAuthorityError struct{ Why error }

func (e *WrongAuthorityError) Error() string {
	return fmt.Sprintf("who answers there is not the manager that the token is of (%v)", e.Why)
}

func (e *WrongAuthorityError) Unwrap() error { return e.Why }

// ClientConfig is for connections to the manager whose authority has the fingerprint, at whatever address it is
// reached. certificate, if not nil, shows who we are.
func ClientConfig(pin Pin, certificate func() (*tls.Certificate, error)) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, ServerName: ServerName,
		// The chain is verified below, against the one authority and not against the system's.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := verify(s.PeerCertificates, pin); err != nil {
				return &WrongAuthorityError{err}
			}
			return nil
		}}
	if certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	}
	return c
}

// verify tells what is wrong with a manager's chain.
func verify(chain []*x509.Certificate, pin Pin) error {
	if len(chain) == 0 {
		return errors.New("it shows no certificate")
	}
	roots := x509.NewCertPool()
	found := false
	for _, c := range chain[1:] {
		if p := pinOf(c); subtle.ConstantTimeCompare(p[:], pin[:]) == 1 {
			roots.AddCert(c)
			found = true
		}
	}
	if !found {
		return errors.New("its certificate authority is another")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: ServerName,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}
