package trust

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// hugeRequest is a certificate request of so many bytes, with an RSA key of that size. To check its signature takes
// seconds.
func hugeRequest(t *testing.T, size int) []byte {
	t.Helper()
	ones := make([]byte, size)
	for i := range ones {
		ones[i] = 0xff
	}
	n := new(big.Int).SetBytes(ones)
	marshal := func(v any) []byte {
		b, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := marshal(struct {
		N *big.Int
		E int
	}{n, 1<<31 - 1})
	type algorithm struct {
		Algorithm  asn1.ObjectIdentifier
		Parameters asn1.RawValue
	}
	subject := marshal(pkix.Name{CommonName: "n1"}.ToRDNSequence())
	body := marshal(struct {
		Version int
		Subject asn1.RawValue
		Key     struct {
			Algorithm algorithm
			Key       asn1.BitString
		}
		Attributes asn1.RawValue `asn1:"tag:0"`
	}{Subject: asn1.RawValue{FullBytes: subject}, Key: struct {
		Algorithm algorithm
		Key       asn1.BitString
	}{algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, asn1.NullRawValue},
		asn1.BitString{Bytes: key, BitLength: 8 * len(key)}},
		Attributes: asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true}})
	signature := ones[:size-1]
	request := marshal(struct {
		Body      asn1.RawValue
		Algorithm algorithm
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: body},
		algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, asn1.NullRawValue},
		asn1.BitString{Bytes: append([]byte{0}, signature...), BitLength: 8 * size}})
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil || csr.SignatureAlgorithm != x509.SHA256WithRSA {
		t.Fatalf("the attack is no certificate request: %v", err)
	}
	return request
}

// Nobody has the manager compute for seconds by a key that it does not take anyway.
func TestHugeKeysAreNotComputedWith(t *testing.T) {
	attack.Tell(t, "a host joins with an RSA key of 160,000 bits in its certificate request",
		"it is refused before anything is computed with that key")
	a, request := authority(t), hugeRequest(t, 20_000)
	began := time.Now()
	_, err := a.SignNode(request, Node{Name: "n1", Membership: "m"})
	t.Logf("refused within %v", time.Since(began))
	if err == nil || !strings.Contains(err.Error(), "ECDSA key with P-256 is expected") {
		t.Errorf("it is refused with: %v", err)
	}
}
