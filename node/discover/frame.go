// Package discover finds out who is at the other ends of a node's underlay. Each agent announces itself there by frames
// of LLDP (IEEE Std 802.1AB-2016), which it signs, and listens for those of other nodes and of switches.
package discover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Constants of IEEE Std 802.1AB-2016.
const (
	etherType    = 0x88cc // table 7-3
	headerLength = 14     // of Ethernet
	maxFrame     = 1514   // what a device with the usual MTU takes

	tlvEnd        = 0 // table 8-1
	tlvChassis    = 1
	tlvPort       = 2
	tlvTTL        = 3
	tlvSystemName = 5
	tlvSystemText = 6
	tlvManagement = 8
	tlvPrivate    = 127
	maxTLVs       = 64 // our own bound: switches send some twenty

	chassisMAC     = 4 // table 8-2
	chassisAddress = 5
	chassisLocal   = 7
	portMAC        = 3 // table 8-3
	portAddress    = 4
	portName       = 5
	portLocal      = 7

	familyIPv4 = 1 // of addresses, IANA's address family numbers
	familyIPv6 = 2
)

// group is the nearest bridge's address (table 7-1): no bridge passes such frames on.
var group = net.HardwareAddr{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// vendor marks the private TLV. Nobody is registered for it: it has the bit of identifiers that are locally
// administered.
var vendor = [3]byte{0x02, 0x70, 0x70}

// maxText bounds each text that is taken from a frame, in bytes.
const maxText = 128

// frame is an announcement. Of what a frame may say only what is used here is kept.
type frame struct {
	source     net.HardwareAddr
	chassis    string
	port       string
	ttl        uint16 // in seconds
	name       string // the system's
	management netip.Addr
	private    []byte // the value of our own TLV; nil where there is none
	signed     []byte // what comes before the signature at its end
}

var (
	errShort = errors.New("it ends too early")
	errOrder = errors.New("it does not begin with a chassis ID, a port ID and a time to live")
)

// parse reads an Ethernet frame. The texts are printable and bounded; private and signed are parts of b.
func parse(b []byte) (f frame, err error) {
	if len(b) < headerLength || binary.BigEndian.Uint16(b[12:]) != etherType {
		return f, errors.New("it is no LLDP frame")
	}
	f.source = net.HardwareAddr(append([]byte(nil), b[6:12]...))
	rest := b[headerLength:]
	for n := 0; ; n++ {
		if len(rest) < 2 {
			return f, errShort
		}
		header := binary.BigEndian.Uint16(rest)
		kind, length := int(header>>9), int(header&0x1ff)
		if len(rest) < 2+length {
			return f, errShort
		}
		value := rest[2 : 2+length]
		rest = rest[2+length:]
		switch {
		case n < 3 && kind != n+1, n >= 3 && kind >= tlvChassis && kind <= tlvTTL:
			return f, errOrder
		case kind == tlvEnd:
			return f, nil
		case n == maxTLVs:
			return f, fmt.Errorf("it has more than %d parts", maxTLVs)
		case f.private != nil:
			return f, errors.New("something comes behind the signature")
		}
		if err := f.take(kind, value); err != nil {
			return f, err
		}
		if f.private != nil {
			// Everything up to the signature counts, the addresses of the frame's head included.
			f.signed = b[:len(b)-len(rest)-min(signatureLength, len(f.private))]
		}
	}
}

// take reads one TLV.
func (f *frame) take(kind int, v []byte) error {
	switch kind {
	case tlvChassis:
		if len(v) < 2 {
			return errShort
		}
		f.chassis = identifier(v[0] == chassisMAC, v[0] == chassisAddress, v[1:])
	case tlvPort:
		if len(v) < 2 {
			return errShort
		}
		f.port = identifier(v[0] == portMAC, v[0] == portAddress, v[1:])
	case tlvTTL:
		if len(v) < 2 {
			return errShort
		}
		f.ttl = binary.BigEndian.Uint16(v)
	case tlvSystemName:
		f.name = printable(v)
	case tlvManagement: // 8.5.9: a length, which counts the family as well, the family, and the address
		if len(v) < 2 || int(v[0]) < 1 || len(v) < 1+int(v[0]) {
			return errShort
		}
		if a := address(v[1 : 1+v[0]]); a.IsValid() && !f.management.IsValid() {
			f.management = a
		}
	case tlvPrivate:
		if len(v) < 4 {
			return errShort
		}
		if [3]byte(v) == vendor && v[3] == sealSubtype {
			if f.private = v[4:]; len(f.private) == 0 {
				return errShort
			}
		}
	}
	return nil
}

// address reads an address behind its family; zero where it is none of IP.
func address(v []byte) netip.Addr {
	if v[0] == familyIPv4 && len(v) == 5 || v[0] == familyIPv6 && len(v) == 17 {
		a, _ := netip.AddrFromSlice(v[1:])
		return a
	}
	return netip.Addr{}
}

// identifier is an ID of a chassis or a port, in words.
func identifier(mac, addr bool, v []byte) string {
	switch {
	case mac && len(v) == 6:
		return net.HardwareAddr(v).String()
	case addr:
		if a := address(v); a.IsValid() {
			return a.String()
		}
	}
	return printable(v)
}

// printable is a text of somebody else's: what is not printable, or too long, is left out.
func printable(v []byte) string {
	var b strings.Builder
	for len(v) > 0 && b.Len() < maxText-utf8.UTFMax {
		c, size := utf8.DecodeRune(v)
		v = v[size:]
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			c = '?'
		}
		b.WriteRune(c)
	}
	return strings.TrimSpace(b.String())
}

// compose writes a frame, all but its private TLV and its end.
func (f *frame) compose() []byte {
	b := append(make([]byte, 0, 256), group...)
	b = append(b, f.source...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	b = appendTLV(b, tlvChassis, []byte{chassisLocal}, []byte(f.chassis))
	b = appendTLV(b, tlvPort, []byte{portName}, []byte(f.port))
	b = appendTLV(b, tlvTTL, binary.BigEndian.AppendUint16(nil, f.ttl))
	b = appendTLV(b, tlvSystemName, []byte(f.name))
	b = appendTLV(b, tlvSystemText, []byte("polyplane node"))
	if f.management.IsValid() {
		a := f.management.AsSlice()
		family := byte(familyIPv4)
		if len(a) == 16 {
			family = familyIPv6
		}
		const numberUnknown = 1 // table 8-7
		b = appendTLV(b, tlvManagement, []byte{byte(len(a) + 1), family}, a, []byte{numberUnknown, 0, 0, 0, 0, 0})
	}
	return b
}

// appendTLV appends one TLV with a value of at most 511 bytes.
func appendTLV(b []byte, kind int, value ...[]byte) []byte {
	length := 0
	for _, v := range value {
		length += len(v)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(kind<<9|length))
	for _, v := range value {
		b = append(b, v...)
	}
	return b
}
