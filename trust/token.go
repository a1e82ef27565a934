package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// tokenVersion begins every token: what follows is of this form.
const tokenVersion = "pp1"

// Token is what somebody without a certificate shows the manager. ID tells which token it is, Secret proves it, and by
// Pin the holder recognises the manager.
type Token struct {
	ID     string
	Secret string
	Pin    Pin
}

// NewToken returns a token with a fresh secret of at least 128 bits.
func NewToken(pin Pin) Token {
	return Token{ID: strings.ToLower(rand.Text()[:10]), Secret: strings.ToLower(rand.Text()), Pin: pin}
}

// String is the token as it is handed around: pp1.ID.SECRET.PIN.
func (t Token) String() string {
	return strings.Join([]string{tokenVersion, t.ID, t.Secret, t.Pin.String()}, ".")
}

var tokenForm = regexp.MustCompile(`^pp1\.([a-z2-7]{10})\.([a-z2-7]{26})\.([A-Za-z0-9_-]{43})$`)

// ParseToken reads what String wrote. The error does not repeat the text: it may be nearly right.
func ParseToken(text string) (Token, error) {
	m := tokenForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Token{}, fmt.Errorf("this is no token; one begins with %q and has four parts with dots between them, "+
			"as `polyplane token create` prints it", tokenVersion+".")
	}
	pin, err := ParsePin(m[3])
	if err != nil {
		return Token{}, fmt.Errorf("this is no token: %w", err)
	}
	return Token{ID: m[1], Secret: m[2], Pin: pin}, nil
}

// Hash is what is kept of the secret. A secret of 128 random bits needs no slow hash.
func (t Token) Hash() string {
	h := sha256.Sum256([]byte(t.Secret))
	return hex.EncodeToString(h[:])
}

// Proves tells whether the token's secret is the one whose hash was kept. It takes the same time however alike the two
// are, so that nobody can guess the secret piece by piece.
func (t Token) Proves(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}
