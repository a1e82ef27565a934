package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// TestRevokedTokensStayRevoked: a store of before a token was revoked, put back by whatever means, does not make it good
// again. What an earlier version revoked, which kept no list, is put into the list.
func TestRevokedTokensStayRevoked(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	authority, err := trust.OpenAuthority(authorityDir(f.dir), "test")
	if err != nil {
		t.Fatal(err)
	}
	f.outside = &Outside{Authority: authority}
	tokens := map[string]trust.Token{}
	for _, user := range []string{"eve", "mallory", "al"} {
		made, err := f.CreateToken(t.Context(), model.TokenRequest{User: user, Role: model.RoleAdmin})
		if err != nil {
			t.Fatal(err)
		}
		if tokens[user], err = trust.ParseToken(made.Text); err != nil {
			t.Fatal(err)
		}
	}
	revoke := func(user string) {
		t.Helper()
		if _, err := f.RevokeToken(t.Context(), tokens[user].ID); err != nil {
			t.Fatal(err)
		}
	}
	again := func() {
		f.stop()
		f = start(t, f.dir, model.Substrate{})
	}
	at := filepath.Join(f.dir, "etcd")
	f.stop()
	if err := os.CopyFS(at+".before", os.DirFS(at)); err != nil {
		t.Fatal(err)
	}
	f = start(t, f.dir, model.Substrate{})
	revoke("mallory")
	if err := os.Remove(filepath.Join(authorityDir(f.dir), "revoked.json")); err != nil {
		t.Fatal(err)
	}
	again()
	revoke("eve")
	f.stop()
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".before", at); err != nil {
		t.Fatal(err)
	}
	f = start(t, f.dir, model.Substrate{})
	check := func(when string) {
		t.Helper()
		for _, user := range []string{"eve", "mallory"} {
			if _, err := f.User(tokens[user]); err == nil || !strings.Contains(err.Error(), "was revoked at") {
				t.Errorf("%s, %s's token: %v", when, user, err)
			}
		}
		if _, err := f.User(tokens["al"]); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("with the store of before")
	if t.Failed() {
		return
	}
	f.await(t, 0, "token/"+tokens["eve"].ID, "TokenStaysRevoked")
	if err := f.changeAccess(t.Context(), func(*model.Access) error { return nil }); err != nil {
		t.Fatal(err)
	}
	check("after a change")
	if a, _, err := f.store.Access(t.Context()); err != nil ||
		a.Tokens[0].Revoked.IsZero() {
		t.Errorf("stored is %+v, %v", a, err)
	}
}
