package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// The list of revoked tokens is private, tells of each until it has expired, and is not read where it is damaged.
func TestRevokedTokensAreKept(t *testing.T) {
	dirs := Dirs{Name: "test", Data: t.TempDir()}
	path := filepath.Join(dirs.Data, revokedFile)
	now := time.Now().UTC()
	token := func(id string, expires, revoked time.Time) model.StoredToken {
		return model.StoredToken{Token: model.Token{ID: id, Expires: expires, Revoked: revoked}}
	}
	read := func() *Revoked {
		t.Helper()
		r, err := ReadRevoked(dirs)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := read()
	if err := r.Keep([]model.StoredToken{token("good", time.Time{}, time.Time{})}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a list is written though nothing was revoked")
	}
	if err := r.Keep([]model.StoredToken{token("ever", time.Time{}, now), token("hour", now.Add(time.Hour), now),
		token("over", now.Add(-time.Hour), now.Add(-2*time.Hour)), token("good", time.Time{}, time.Time{})}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the list is %v, %v", info, err)
	}
	tokens := []model.StoredToken{token("ever", time.Time{}, time.Time{}), token("hour", now.Add(time.Hour), time.Time{}),
		token("over", now.Add(-time.Hour), time.Time{}), token("good", time.Time{}, time.Time{})}
	if kept := read().Apply(tokens); len(kept) != 2 || kept[0].ID != "ever" || kept[1].ID != "hour" ||
		!tokens[0].Revoked.Equal(now) || !tokens[3].Revoked.IsZero() {
		t.Errorf("kept revoked are %+v of %+v", kept, tokens)
	}
	// What has expired goes with the next one.
	r = read()
	x := r.list["hour"]
	x.Expires = now.Add(-time.Second)
	r.list["hour"] = x
	if err := r.Keep([]model.StoredToken{token("next", time.Time{}, now)}); err != nil {
		t.Fatal(err)
	}
	if again := read(); len(again.list) != 2 {
		t.Errorf("the list is %+v", again.list)
	}
	for _, damaged := range []string{"", "[{", "null", "\x00\x00"} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRevoked(dirs); err == nil || !strings.Contains(err.Error(), "mv "+path) {
			t.Errorf("of %q it says %v", damaged, err)
		}
	}
}
