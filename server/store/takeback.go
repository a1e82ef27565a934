package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

// TakeBack removes what a write without an answer may have left of a network that is to be as it was before: is is its
// record, or nil if there is no such network. It takes a few seconds at most, and is tried again later.
func (s *Store) TakeBack(ctx context.Context, name string, is *model.Record) error {
	if is != nil {
		_, err := s.Put(hasten(ctx), *is)
		if errors.Is(err, ErrConflict) {
			s.mu.Lock()
			defer s.mu.Unlock()
			// Another has moved the pointer. Ours demand that nobody has, so none of them can come any more.
			if s.moved[name] != 0 {
				delete(s.unsure, name)
			}
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, hurriedTimeout)
	defer cancel()
	key := s.pointerKey(name)
	what := "take back what was written of network " + name
	resp, err := s.get(ctx, key)
	if err != nil {
		return s.explain(what, err)
	}
	moved := int64(0)
	if len(resp.Kvs) == 1 {
		moved = resp.Kvs[0].ModRevision
		if p, err := decodePointer(resp.Kvs[0].Value); err != nil || !slices.Contains(s.unsure[name], p.Sum) {
			return fmt.Errorf("%s: %w", what, ErrConflict)
		}
	}
	done, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", moved)).
		Then(clientv3.OpDelete(key), clientv3.OpDelete(s.chunksKey(name), clientv3.WithPrefix())).Commit()
	switch {
	case err != nil:
		return s.explain(what, err)
	case !done.Succeeded:
		return fmt.Errorf("%s: %w", what, ErrConflict)
	}
	// A first write demands only that nothing is there, so it may still come.
	if s.looked[name].IsZero() {
		s.looked[name] = time.Now()
	}
	if moved != 0 || time.Since(s.looked[name]) > lateWithin {
		delete(s.looked, name)
		delete(s.moved, name)
		delete(s.unsure, name)
	}
	return nil
}

// lateWithin is how long TakeBack looks for the first write of a network that got no answer, once the store answers.
const lateWithin = 5 * time.Second

// Unsure are the networks of which a write got no answer, and may have been carried out.
func (s *Store) Unsure() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.unsure))
}
