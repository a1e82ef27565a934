package trust

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// authority makes one in a directory of the test's.
func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := OpenAuthority(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// meet has a client and a server shake hands, and returns what each says of it and what the server sees.
func meet(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type seen struct {
		state tls.ConnectionState
		err   error
	}
	served := make(chan seen, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			served <- seen{err: err}
			return
		}
		defer c.Close()
		err = c.(*tls.Conn).Handshake()
		served <- seen{c.(*tls.Conn).ConnectionState(), err}
		io.Copy(io.Discard, c) //nolint:errcheck // until the client closes
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		c.Close()
	}
	s := <-served
	return s.state, s.err, err
}

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenAuthority(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenAuthority(dir, "test")
	if err != nil || a.Pin() != b.Pin() {
		t.Fatalf("opened again, it is another: %v", err)
	}
	info, err := os.Stat(authorityFile(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v %v", info.Mode(), err)
	}
	if life := time.Until(a.certificate.NotAfter); life < AuthorityLife-time.Minute || life > AuthorityLife {
		t.Errorf("it lives for %v", life)
	}
	if err := os.WriteFile(authorityFile(dir), []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(dir, "test"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged one is replaced without a word: %v", err)
	}
}

// A node believes the manager whose authority it has the fingerprint of, and nobody else; the manager knows the node by
// its certificate.
func TestMeeting(t *testing.T) {
	a, other := authority(t), authority(t)
	server := NewServer(a, func() []string { return []string{"127.0.0.1", "host.example"} })
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("whatever it says")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := a.SignNode(request, Node{"n7", "m1"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := SaveIdentity(dir, key, certificate); err != nil {
		t.Fatal(err)
	}
	identity, err := OpenIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if node, pin, err := identity.Node(); err != nil || node != (Node{"n7", "m1"}) || pin != a.Pin() {
		t.Errorf("the identity is of %v: %v", node, err)
	}
	state, served, dialled := meet(t, server.Config(), ClientConfig(a.Pin(), identity.Certificate))
	if served != nil || dialled != nil || state.Version != tls.VersionTLS13 || len(state.VerifiedChains) != 1 {
		t.Fatalf("%v, %v: %+v", served, dialled, state)
	}
	if node, ok := NodeOf(state.PeerCertificates[0]); !ok || node != (Node{"n7", "m1"}) {
		t.Errorf("the manager sees %v", node)
	}
	if state, served, dialled := meet(t, server.Config(), ClientConfig(a.Pin(), nil)); served != nil ||
		dialled != nil || len(state.PeerCertificates) != 0 {
		t.Errorf("without a certificate: %v, %v", served, dialled)
	}
	var wrong *WrongAuthorityError
	if _, _, err := meet(t, server.Config(), ClientConfig(other.Pin(), nil)); !errors.As(err, &wrong) {
		t.Errorf("another authority's manager: %v", err)
	}
	// Somebody shows the right authority, which is public, behind a certificate of another's.
	impostor := NewServer(other, server.names)
	made, err := impostor.certificate()
	if err != nil {
		t.Fatal(err)
	}
	made.Certificate[1] = a.certificate.Raw
	if _, _, err := meet(t, impostor.Config(), ClientConfig(a.Pin(), nil)); !errors.As(err, &wrong) {
		t.Errorf("an impostor with the right authority: %v", err)
	}
	// A node is no manager.
	fake := server.Config()
	fake.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return identity.Certificate() }
	if _, _, err := meet(t, fake, ClientConfig(a.Pin(), nil)); !errors.As(err, &wrong) {
		t.Errorf("a node that plays the manager: %v", err)
	}
	// A certificate of another authority's is nobody's.
	foreign, err := other.SignNode(request, Node{"n7", "m1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.Replace(key, foreign); err != nil {
		t.Fatal(err)
	}
	if _, served, _ := meet(t, server.Config(), ClientConfig(a.Pin(), identity.Certificate)); served == nil {
		t.Error("a node of another authority's is let in")
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if _, _, err := meet(t, server.Config(), old); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
}

func TestServerRenewsItsCertificate(t *testing.T) {
	a := authority(t)
	names := []string{"one.example", "192.0.2.1"}
	s := NewServer(a, func() []string { return names })
	first, err := s.certificate()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.certificate(); err != nil || again != first {
		t.Errorf("made anew without a reason: %v", err)
	}
	if err := first.Leaf.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
	if left := time.Until(RenewAt(first.Leaf)); left > ServerLife*2/3 || left < ServerLife*2/3-time.Minute {
		t.Errorf("it is renewed in %v", left)
	}
	names = []string{"two.example"}
	s.current.Leaf.NotAfter = time.Now().Add(ServerLife / 4) // time passes
	s.current.Leaf.NotBefore = time.Now().Add(-ServerLife * 3 / 4)
	second, err := s.certificate()
	if err != nil || second == first || second.Leaf.VerifyHostname("two.example") != nil {
		t.Errorf("two thirds of its life have passed, and it is the same: %v", err)
	}
}

func TestOnlyRightRequestsAreSigned(t *testing.T) {
	a := authority(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("n1")
	if err != nil {
		t.Fatal(err)
	}
	request[len(request)-1] ^= 1 // the signature
	for what, r := range map[string][]byte{"nothing": nil, "a wrong signature": request, "noise": []byte("noise")} {
		if _, err := a.SignNode(r, Node{"n1", "m"}); err == nil {
			t.Errorf("%s is signed", what)
		}
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if request, err = other.Request("n1"); err != nil {
		t.Fatal(err)
	}
	certificate, err := a.SignNode(request, Node{"n1", "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SaveIdentity(t.TempDir(), key, certificate); err == nil {
		t.Error("a certificate of another key is kept")
	}
}

func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := NewToken(Pin(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "pin")))
		back, err := ParseToken(" " + token.String() + "\n")
		if err != nil || back != token {
			t.Fatalf("%v: %+v", err, back)
		}
		if !back.Proves(token.Hash()) || NewToken(token.Pin).Proves(token.Hash()) || back.Proves("") {
			t.Fatal("the wrong secret proves it, or the right one does not")
		}
		text := []byte(token.String())
		text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = '!'
		if _, err := ParseToken(string(text)); err == nil || strings.Contains(err.Error(), token.Secret) {
			t.Fatalf("a spoilt token: %v", err)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add(NewToken(Pin{}).String())
	f.Add("pp1...")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := ParseToken(text); err == nil && token.String() != strings.TrimSpace(text) {
			t.Errorf("%q is read as %q", text, token)
		}
	})
}
