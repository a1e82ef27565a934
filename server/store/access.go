package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

const accessDocument = "access"

// documentKeys is what the keys of documents begin with, behind the prefix.
const documentKeys = "documents/"

// ErrMoved tells that somebody else has written meanwhile.
var ErrMoved = errors.New("it was changed by somebody else meanwhile; try again")

// Access reads who may come in, and the version for PutAccess.
func (s *Store) Access(ctx context.Context) (out model.Access, version int64, err error) {
	resp, err := s.get(ctx, s.documentKey(accessDocument))
	if err != nil {
		return out, 0, s.explain("read the tokens and members", err)
	}
	if len(resp.Kvs) == 0 {
		return out, 0, nil
	}
	return out, resp.Kvs[0].ModRevision, decodeDocument("tokens and members", resp.Kvs[0].Value, &out)
}

// Tokens are those that a backup has. A damaged entry has none: the store that is made of it says what is wrong.
func (b *Backup) Tokens() []model.StoredToken {
	var access model.Access
	if !b.document(accessDocument, &access) {
		return nil
	}
	return access.Tokens
}

// PutAccess replaces what Access read, if it is still of that version, in one step: of two who use up one token, one
// comes too late (ErrMoved). It returns the new version.
func (s *Store) PutAccess(ctx context.Context, access model.Access, version int64) (int64, error) {
	const what = "store the tokens and members"
	raw, err := json.Marshal(access)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	b, err := json.Marshal(document{Layout, raw})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if s.room != nil {
		if err := s.room(urgencyOf(ctx)); err != nil {
			return 0, &requestError{what, s.place, err}
		}
	}
	key := s.documentKey(accessDocument)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", version)).
		Then(clientv3.OpPut(key, string(b))).Commit()
	if err != nil {
		return 0, s.explain(what, err)
	}
	if !resp.Succeeded {
		return 0, fmt.Errorf("%s: %w", what, ErrMoved)
	}
	return resp.Header.Revision, nil
}
