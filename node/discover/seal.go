package discover

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"
)

// The private TLV (its subtype is sealSubtype) has, in network byte order:
//
//	tag (8)  sequence (8)  time (8, milliseconds since 1970)  signature (64)
//
// The tag says of which instance the node is, so that several may share a wire. The sequence grows with each frame of
// one life of an agent, which has a key of its own. The signature (Ed25519, RFC 8032) is of signedContext, and of the
// frame from its first byte to the time: so the sender's MAC address, the node's name (the chassis ID), the device's
// (the port ID) and the time to live are all signed.
const (
	sealSubtype     = 1
	signatureLength = ed25519.SignatureSize
	sealLength      = 8 + 8 + 8 + signatureLength
	signedContext   = "polyplane LLDP 1\x00"
)

type tag [8]byte

// tagOf is the tag of an instance, by the identity of its store.
func tagOf(store string) (t tag) {
	sum := sha256.Sum256([]byte("polyplane LLDP tag " + store))
	return tag(sum[:])
}

// seal is what the private TLV says.
type seal struct {
	tag      tag
	sequence uint64
	time     time.Time
}

// sign composes a frame with its private TLV.
func (f *frame) sign(s seal, key ed25519.PrivateKey) []byte {
	b := f.compose()
	head := append(vendor[:], sealSubtype)
	v := append([]byte(nil), s.tag[:]...)
	v = binary.BigEndian.AppendUint64(v, s.sequence)
	v = binary.BigEndian.AppendUint64(v, uint64(s.time.UnixMilli()))
	b = appendTLV(b, tlvPrivate, head, v, make([]byte, signatureLength))
	end := len(b) - signatureLength
	copy(b[end:], ed25519.Sign(key, append([]byte(signedContext), b[:end]...)))
	return appendTLV(b, tlvEnd)
}

// seal reads the private TLV, of which nothing is proved yet.
func (f *frame) seal() (s seal, err error) {
	if len(f.private) != sealLength {
		return s, errors.New("its signature is incomplete")
	}
	s.tag = tag(f.private)
	s.sequence = binary.BigEndian.Uint64(f.private[8:])
	ms := binary.BigEndian.Uint64(f.private[16:])
	if ms > maxMillis {
		return s, errors.New("its time is none")
	}
	s.time = time.UnixMilli(int64(ms))
	return s, nil
}

// maxMillis is in the year 5138: later times are nobody's, and these can be subtracted from each other.
const maxMillis = 100_000_000_000_000

// signedBy tells whether the frame was signed with the private half of a key.
func (f *frame) signedBy(key ed25519.PublicKey) bool {
	return len(f.private) == sealLength && len(key) == ed25519.PublicKeySize && ed25519.Verify(key,
		append([]byte(signedContext), f.signed...), f.private[sealLength-signatureLength:])
}
