package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
)

// Revoked are the tokens that were revoked, on the disk of the manager's machine beside the authority. The store tells
// of them too. But a store that is put back from a backup, or by hand, is of a time when some were good; this list is
// in no backup, so these stay revoked.
type Revoked struct {
	path string

	mu   sync.Mutex
	list map[string]revocation // by the token's ID
}

type revocation struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires,omitzero"` // the token's; from then on the list need not have it
	Revoked time.Time `json:"revoked"`
}

// revokedFile is where the list is, in Data.
const revokedFile = "authority/revoked.json"

// ReadRevoked reads the list. Where there is none, nothing was revoked. A damaged one is an error: without it nobody
// knows which tokens must stay revoked.
func ReadRevoked(d Dirs) (*Revoked, error) {
	r := &Revoked{path: filepath.Join(d.Data, revokedFile), list: map[string]revocation{}}
	b, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var all []revocation
	if err == nil {
		if err = json.Unmarshal(b, &all); err == nil && all == nil {
			err = errors.New("there is no list in it")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the list of revoked tokens, %s, cannot be read: %w. If it is lost, put it aside (`mv "+
			"%s %s.damaged`), start, and see by `polyplane token list` whether a token is good that was revoked",
			r.path, err, r.path, r.path)
	}
	for _, x := range all {
		r.list[x.ID] = x
	}
	return r, nil
}

// Apply marks the tokens that are in the list as revoked, and returns those of them that the store says are good.
func (r *Revoked) Apply(tokens []model.StoredToken) (kept []model.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range tokens {
		t := &tokens[i]
		if x, is := r.list[t.ID]; is && t.Revoked.IsZero() {
			was := t.Unusable(time.Now())
			if t.Revoked = x.Revoked; was == "" {
				kept = append(kept, t.Token)
			}
		}
	}
	return kept
}

// Keep puts the tokens that are revoked into the list, and returns when that is on the disk.
func (r *Revoked) Keep(tokens []model.StoredToken) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	gone := func(expires time.Time) bool { return !expires.IsZero() && !now.Before(expires) }
	next := maps.Clone(r.list)
	for i := range tokens {
		t := &tokens[i]
		if _, is := next[t.ID]; !is && !t.Revoked.IsZero() && !gone(t.Expires) {
			next[t.ID] = revocation{t.ID, t.Expires, t.Revoked}
		}
	}
	if len(next) == len(r.list) {
		return nil
	}
	maps.DeleteFunc(next, func(_ string, x revocation) bool { return gone(x.Expires) })
	b, err := json.MarshalIndent(slices.SortedFunc(maps.Values(next), func(a, b revocation) int {
		return strings.Compare(a.ID, b.ID)
	}), "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(r.path), 0o700)
	}
	if err == nil {
		err = durable.Replace(r.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the list of revoked tokens, %s: %w", r.path, err)
	}
	r.list = next
	return nil
}
