package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

const (
	substrateDocument = "substrate"
	quotasDocument    = "quotas"
)

// Quotas reads the quotas; none when none were stored yet.
func (s *Store) Quotas(ctx context.Context) (out model.Quotas, err error) {
	_, err = s.document(ctx, quotasDocument, &out)
	return out, err
}

// PutQuotas stores the quotas.
func (s *Store) PutQuotas(ctx context.Context, quotas model.Quotas) error {
	return s.putDocument(ctx, quotasDocument, quotas)
}

// Substrate reads the substrate; false tells that none was stored yet.
func (s *Store) Substrate(ctx context.Context) (model.Substrate, bool, error) {
	var out model.Substrate
	found, err := s.document(ctx, substrateDocument, &out)
	return out, found, err
}

// PutSubstrate stores the substrate.
func (s *Store) PutSubstrate(ctx context.Context, substrate model.Substrate) error {
	return s.putDocument(ctx, substrateDocument, substrate)
}

// document is what a small document is wrapped in.
type document struct {
	Layout int             `json:"layout"`
	Value  json.RawMessage `json:"value"`
}

// version is what is known of a document in the store.
type version struct {
	moved int64    // the revision of etcd at which it was read or written last; 0 if there was none
	tried []string // the sums of values of ours that got no answer, and may have been written
}

// moved is the revision of etcd that last wrote a document, of which the store has these keys: one, or none.
func moved(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].ModRevision
}

// stands tells whether what was laid aside of a document counts still: nobody else has written it in the store, which
// has these keys of it. The caller holds the lock.
func (s *Store) stands(e *entry, kvs []*mvccpb.KeyValue) bool {
	if moved(kvs) == e.Base {
		return true
	}
	name := strings.TrimPrefix(e.Key, documentKeys)
	return len(kvs) > 0 && slices.Contains(append([]string{e.Sum}, s.versions[name].tried...), sum(kvs[0].Value))
}

// readOver returns what is laid aside of a document of which the store has these keys; nil if nothing is, or if another
// has changed the document since. It takes note of what the store has. The caller holds the lock.
func (s *Store) readOver(name string, kvs []*mvccpb.KeyValue) *entry {
	e := s.beside(documentKeys + name)
	if e != nil && s.stands(e, kvs) {
		return e
	}
	if e != nil {
		s.drop(e)
	}
	s.versions[name] = version{moved(kvs), s.versions[name].tried}
	return nil
}

// document reads a document; false if there is none. What is laid aside on this machine goes before what the store has.
func (s *Store) document(ctx context.Context, name string, out any) (bool, error) {
	s.documents.Lock()
	defer s.documents.Unlock()
	resp, err := s.get(ctx, s.documentKey(name))
	if err != nil {
		return false, s.explain("read the "+name, err)
	}
	if e := s.readOver(name, resp.Kvs); e != nil {
		return true, decodeDocument(name, e.Value, out)
	}
	if len(resp.Kvs) == 0 {
		return false, nil
	}
	if err := decodeDocument(name, resp.Kvs[0].Value, out); err != nil {
		return false, err
	}
	return true, nil
}

func decodeDocument(name string, b []byte, out any) error {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("the stored %s is damaged: %w", name, err)
	}
	if d.Layout > Layout {
		return fmt.Errorf("the stored %s cannot be read: %w", name, &tooNewError{d.Layout})
	}
	if err := json.Unmarshal(d.Value, out); err != nil {
		return fmt.Errorf("the stored %s is damaged: %w", name, err)
	}
	return nil
}

// putDocument writes a document, as Put writes networks: tried again with the next leader, or after space was
// reclaimed. If it is urgent, and the store does not take it, it is laid aside.
func (s *Store) putDocument(ctx context.Context, name string, value any) error {
	b, err := encodeDocument(name, value)
	if err != nil {
		return err
	}
	if s.room != nil {
		if err := s.room(urgencyOf(ctx)); err != nil {
			return &requestError{"store the " + name, s.place, err}
		}
	}
	s.documents.Lock()
	defer s.documents.Unlock()
	within, cancel := s.inHaste(ctx)
	defer cancel()
	put := func() error {
		revision, err := patiently(within, func() (int64, error) {
			ctx, cancel := context.WithTimeout(within, requestTimeout)
			defer cancel()
			revision, err := s.putOver(ctx, name, string(b))
			if err != nil {
				s.unsureOf(name, sum(b), err)
			}
			return revision, err
		})
		if err == nil {
			s.versions[name] = version{moved: revision}
			s.stored(documentKeys + name)
		}
		return err
	}
	err = put()
	if err == nil {
		return nil
	}
	if err = s.explain("store the "+name, err); errors.Is(err, ErrFull) && s.reclaim != nil && s.reclaim(ctx) == nil {
		if err = put(); err == nil {
			return nil
		}
		err = s.explain("store the "+name, err)
	}
	if s.hurried(ctx) && laidAside(err) {
		v := s.versions[name]
		return s.lay(&entry{Key: documentKeys + name, Value: b, Base: v.moved, Writes: slices.Clone(v.tried)}, err)
	}
	return err
}

// putOver writes a document over what is in the store now, and demands that it is: what gets no answer, and is carried
// out late, overwrites nothing newer.
func (s *Store) putOver(ctx context.Context, name, value string) (int64, error) {
	key := s.documentKey(name)
	for {
		v := s.versions[name]
		resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", v.moved)).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return resp.Header.Revision, nil
		}
		// It was not read before, a try of ours was carried out after all, or another manager has written it.
		s.versions[name] = version{moved(resp.Responses[0].GetResponseRange().Kvs), v.tried}
	}
}

// unsureOf takes note of a value of a document that may have been written, if the error leaves that open.
func (s *Store) unsureOf(name, sum string, err error) {
	if v := s.versions[name]; unanswered(err) {
		s.versions[name] = version{v.moved, alsoUnsure(v.tried, sum)}
	}
}

// storeLaidDocument has the store take what was laid aside of a document, unless another has changed it there since.
func (s *Store) storeLaidDocument(ctx context.Context, e *entry) error {
	s.documents.Lock()
	defer s.documents.Unlock()
	if s.beside(e.Key) != e {
		return nil // meanwhile there is a newer one
	}
	name, key := strings.TrimPrefix(e.Key, documentKeys), s.prefix+e.Key
	what := "store what was decided meanwhile of the " + name
	ctx, cancel := context.WithTimeout(ctx, hurriedTimeout)
	defer cancel()
	resp, err := s.get(ctx, key)
	if err != nil {
		return s.explain(what, err)
	}
	if s.readOver(name, resp.Kvs) == nil {
		return fmt.Errorf("%s: %w", what, ErrMoved)
	}
	put, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", moved(resp.Kvs))).
		Then(clientv3.OpPut(key, string(e.Value))).Commit()
	switch {
	case err != nil:
		s.unsureOf(name, e.Sum, err)
		return s.explain(what, err)
	case !put.Succeeded:
		return fmt.Errorf("%s: %w", what, ErrMoved) // the next look tells by whom
	}
	s.versions[name] = version{moved: put.Header.Revision}
	s.stored(e.Key)
	return nil
}
