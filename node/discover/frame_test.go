package discover

import (
	"bytes"
	"crypto/ed25519"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	mac      = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	began    = time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	ourTag   = tagOf("store")
	theirTag = tagOf("another")
)

// key is a node's, the same each time for the same seed.
func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) []byte { return key(seed).Public().(ed25519.PublicKey) }

// announcement is a frame of a node, signed.
func announcement(node, device string, sequence uint64, at time.Time, seed byte) []byte {
	f := frame{source: mac, chassis: node, port: device, ttl: 121, name: node,
		management: netip.MustParseAddr("198.51.100.7")}
	return f.sign(seal{ourTag, sequence, at}, key(seed))
}

func TestFramesAreReadAsTheyAreWritten(t *testing.T) {
	b := announcement("n1", "to-n2", 7, began, 1)
	if len(b) > 300 {
		t.Errorf("a frame has %d bytes", len(b))
	}
	f, err := parse(append(b, 0, 0, 0)) // short frames are padded
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.seal()
	if err != nil || s != (seal{ourTag, 7, s.time}) || !s.time.Equal(began) {
		t.Errorf("the seal is %+v, %v", s, err)
	}
	if f.chassis != "n1" || f.port != "to-n2" || f.ttl != 121 || f.name != "n1" ||
		f.management != netip.MustParseAddr("198.51.100.7") || f.source.String() != mac.String() {
		t.Errorf("it is %+v", f)
	}
	if !f.signedBy(public(1)) || f.signedBy(public(2)) || f.signedBy(nil) {
		t.Error("it is not signed by its node, or by others")
	}
}

// TestEveryBitIsSigned turns each bit of an announcement that says something. Only the address that the frame is sent to
// and what comes behind its end may be another.
func TestEveryBitIsSigned(t *testing.T) {
	b := announcement("n1", "to-n2", 7, began, 1)
	end := len(b) - 2
	for i := range end * 8 {
		bad := bytes.Clone(b)
		bad[i/8] ^= 1 << (i % 8)
		if f, err := parse(bad); err == nil && f.signedBy(public(1)) {
			t.Errorf("with another bit %d of byte %d it is still believed", i%8, i/8)
		}
	}
}

// ofSwitch is what a switch announces.
func ofSwitch(name string) []byte {
	b := append(append(bytes.Clone(group), 0, 0x1b, 0x21, 1, 2, 3), 0x88, 0xcc)
	b = appendTLV(b, tlvChassis, []byte{chassisMAC, 0, 0x1b, 0x21, 1, 2, 3})
	b = appendTLV(b, tlvPort, []byte{portName}, []byte("Gi1/0/7"))
	b = appendTLV(b, tlvTTL, []byte{0, 120})
	b = appendTLV(b, 4, []byte("to rack 7"))
	b = appendTLV(b, tlvSystemName, []byte(name))
	b = appendTLV(b, 7, []byte{0, 4, 0, 4})
	b = appendTLV(b, tlvManagement, []byte{5, familyIPv4, 192, 0, 2, 1, 2, 0, 0, 0, 7, 0})
	b = appendTLV(b, tlvPrivate, []byte{0, 0x12, 0x0f, 1, 3, 0x6c, 0, 0, 0x10}) // IEEE 802.3's own
	return appendTLV(b, tlvEnd)
}

func TestSwitchesAreRead(t *testing.T) {
	f, err := parse(ofSwitch("core\x1b[2J\u202e1"))
	if err != nil {
		t.Fatal(err)
	}
	if f.chassis != "00:1b:21:01:02:03" || f.port != "Gi1/0/7" || f.name != "core?[2J?1" || f.private != nil ||
		f.management != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("it is %+v", f)
	}
}

func TestWhatIsNoAnnouncementIsRefused(t *testing.T) {
	head := ofSwitch("core")[:headerLength]
	chassis := appendTLV(nil, tlvChassis, []byte{chassisLocal, 'a'})
	port := appendTLV(nil, tlvPort, []byte{portLocal, 'b'})
	ttl := appendTLV(nil, tlvTTL, []byte{0, 120})
	join := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{head}, parts...), nil) }
	for name, c := range map[string]struct {
		frame []byte
		why   string
	}{
		"nothing":             {nil, "no LLDP"},
		"another protocol":    {append(bytes.Clone(head[:12]), 8, 0, 1, 2, 3), "no LLDP"},
		"no end":              {join(chassis, port, ttl), "too early"},
		"no port":             {join(chassis, ttl), "begin with"},
		"end at once":         {join([]byte{0, 0}), "begin with"},
		"two chassis":         {join(chassis, port, ttl, chassis), "begin with"},
		"a part that is long": {join(chassis, port, ttl, []byte{tlvSystemName << 1, 200, 'x'}), "too early"},
		"an empty chassis":    {join(appendTLV(nil, tlvChassis, []byte{7}), port, ttl, []byte{0, 0}), "too early"},
		"too many parts": {join(chassis, port, ttl, bytes.Repeat(appendTLV(nil, 9, []byte("x")), 100)),
			"more than"},
		"behind the signature": {join(chassis, port, ttl, appendTLV(nil, tlvPrivate, vendor[:], []byte{sealSubtype, 1}),
			appendTLV(nil, tlvSystemName, []byte("n1")), []byte{0, 0}), "behind the signature"},
	} {
		if _, err := parse(c.frame); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFrame: whatever comes, reading it ends, and what was read is bounded and printable.
func FuzzFrame(f *testing.F) {
	f.Add(announcement("n1", "to-n2", 7, began, 1))
	f.Add(ofSwitch("core1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parse(b)
		if err != nil {
			return
		}
		for _, text := range []string{x.chassis, x.port, x.name} {
			if len(text) > maxText || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				t.Errorf("a text is %q", text)
			}
		}
		if s, err := x.seal(); err == nil && x.signedBy(public(1)) && s.tag == ourTag &&
			!bytes.HasPrefix(b, announcement("n1", "to-n2", 7, began, 1)[:len(x.signed)]) {
			t.Error("somebody signed with a key that he does not have")
		}
		tab := newTable("n9", func(refusal) {})
		tab.tag, tab.peers = ourTag, map[string]bool{"n1": true}
		tab.listen([]string{"d"})
		tab.take("d", b, began)
		tab.learn(tab.unknown(), map[string][]byte{"n1": public(1)}, began)
		tab.expire(began)
		tab.heard("d", began)
	})
}
