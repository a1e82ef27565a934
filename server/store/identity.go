package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

const identityDocument = "identity"

// Identity tells this store from all others. It is made with the store. A store that an older polyplane made without
// one gets it when it is first opened.
func (s *Store) Identity() model.StoreIdentity { return s.identity }

// newIdentity is the identity of a new store, and how it is stored.
func newIdentity(early bool) (model.StoreIdentity, string, error) {
	identity := model.StoreIdentity{ID: rand.Text(), Generation: 1, Early: early,
		Made: time.Now().UTC().Truncate(time.Second)}
	b, err := encodeDocument(identityDocument, identity)
	return identity, string(b), err
}

// identify reads the identity of a store that was there before.
func (s *Store) identify(ctx context.Context) error {
	found, err := s.readIdentity(ctx)
	if err != nil || found {
		return err
	}
	identity, born, err := newIdentity(true)
	if err != nil {
		return err
	}
	key := s.documentKey(identityDocument)
	resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=",
		0)).Then(clientv3.OpPut(key, born)).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return nil // it goes on without one until there is room
	case err != nil:
		return s.explain("open the store", err)
	case !resp.Succeeded:
		_, err = s.readIdentity(ctx)
		return err
	}
	s.identity = identity
	s.guard([]byte(born), 0)
	return nil
}

// readIdentity reads the identity, and compares it with each request from then on.
func (s *Store) readIdentity(ctx context.Context) (found bool, err error) {
	resp, err := s.get(ctx, s.documentKey(identityDocument))
	if err != nil {
		return false, s.explain("read the "+identityDocument, err)
	}
	if len(resp.Kvs) == 0 {
		return false, nil
	}
	if err := decodeDocument(identityDocument, resp.Kvs[0].Value, &s.identity); err != nil {
		return false, err
	}
	mark, err := s.get(ctx, s.markKey(), clientv3.WithKeysOnly())
	if err != nil {
		return false, s.explain("read the store's mark", err)
	}
	marked := int64(0)
	if len(mark.Kvs) == 1 {
		marked = mark.Kvs[0].Version
	}
	s.guard(resp.Kvs[0].Value, marked)
	return true, nil
}

// A network that was deleted is remembered for a while: a node that was away, and comes back to a store that was
// restored meanwhile, can then tell what was deleted from what was lost.
const (
	deletedKept = 60 * 24 * time.Hour
	deletedMost = 4096
)

func (s *Store) deletedKey(network string) string { return s.prefix + "deleted/" + network }

// bury notes that a network was deleted.
func (s *Store) bury(network string, d model.Deleted) clientv3.Op {
	d.Time = time.Now().UTC()
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // it is a number, a time and two names
	}
	return clientv3.OpPut(s.deletedKey(network), string(b))
}

// Bury notes that nodes must remove whatever they have of a network that the store does not know.
func (s *Store) Bury(ctx context.Context, network string, d model.Deleted) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.kv.Do(ctx, s.bury(network, d))
	if err != nil {
		return 0, s.explain("note that network "+network+" is deleted", err)
	}
	return resp.Put().Header.Revision, nil
}

// Deleted reads which networks were deleted lately, and forgets those that were long ago.
func (s *Store) Deleted(ctx context.Context) (map[string]model.Deleted, error) {
	resp, err := s.get(ctx, s.deletedKey(""), clientv3.WithPrefix())
	if err != nil {
		return nil, s.explain("read which networks were deleted", err)
	}
	all := map[string]model.Deleted{}
	var names []string
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.deletedKey(""))
		var d model.Deleted
		if json.Unmarshal(kv.Value, &d) == nil { // else nothing is known, and nothing removed
			all[name] = d
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return all[b].Time.Compare(all[a].Time) })
	for i, name := range names {
		if i < deletedMost && time.Since(all[name].Time) < deletedKept {
			continue
		}
		delete(all, name)
		if err := s.deleteKey(ctx, s.deletedKey(name)); err != nil {
			return nil, s.explain("forget which networks were deleted long ago", err)
		}
	}
	return all, nil
}

func (s *Store) deleteKey(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.kv.Delete(ctx, key)
	return err
}

// encodeDocument is the inverse of decodeDocument.
func encodeDocument(name string, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("store the %s: %w", name, err)
	}
	b, err := json.Marshal(document{Layout, raw})
	if err != nil {
		return nil, fmt.Errorf("store the %s: %w", name, err)
	}
	return b, nil
}

// Spoil damages the record of a network, for tests.
func (s *Store) Spoil(ctx context.Context, network string) error {
	resp, err := s.get(ctx, s.chunksKey(network), clientv3.WithPrefix())
	if err != nil {
		return s.explain("read network "+network, err)
	}
	for _, kv := range resp.Kvs {
		kv.Value[len(kv.Value)/2] ^= 1
		if _, err := s.kv.Put(ctx, string(kv.Key), string(kv.Value)); err != nil {
			return s.explain("damage network "+network, err)
		}
	}
	return nil
}

// ForgetIdentity makes the store as one was before stores had identities; for tests.
func (s *Store) ForgetIdentity(ctx context.Context) error {
	return s.deleteKey(ctx, s.documentKey(identityDocument))
}
