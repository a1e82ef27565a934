package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrOther tells that another store answers at the place of the one that this process has opened.
var ErrOther = errors.New("another store is at its place than the one that this manager works with")

// olderError tells that a copy of the store is at its place that lacks what this process has written. It is an
// ErrOther.
type olderError struct{}

func (olderError) Error() string {
	return "an older copy of the store is at its place, which lacks what this manager has written"
}
func (olderError) Unwrap() error { return ErrOther }

// guarded has every request ask in the same transaction whether this is still the store that was opened: an external
// cluster can be replaced by an empty one, by another instance's, or by an older copy of its own, while we are
// connected. Nothing is written to such a store, and nothing that it says is believed.
//
// An older copy has the same identity. It is known by the mark, a key that each transaction with a write sets as well:
// etcd counts how often, and of an older copy this count is lower than what was seen. A write whose answer was lost may
// not have been seen, and writes of others neither, so a higher count is as good.
type guarded struct {
	clientv3.KV
	key  string        // the identity's
	mark string        // the mark's
	seen *atomic.Int64 // the highest count of the mark so far; requests that run side by side raise it
	// silence refuses requests to a store that does not answer.
	silence *silence
	// is the identity as it is stored. While it is empty nothing is compared: a store has none before it is made, and
	// when it has no room.
	is []byte
}

// same are the conditions under which it is the store that was opened, as far as was seen until now.
func (g *guarded) same() (conditions []clientv3.Cmp, seen int64) {
	seen = g.seen.Load()
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(g.key), "=", string(g.is)),
		clientv3.Compare(clientv3.Version(g.mark), ">", seen-1)}, seen
}

// asks are the operations by which differs finds out why a transaction was not carried out.
func (g *guarded) asks() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(g.key), clientv3.OpGet(g.mark, clientv3.WithKeysOnly())}
}

// differs tells by the answers to asks that it is not the store that was opened.
func (g *guarded) differs(resp *clientv3.TxnResponse, seen int64) error {
	n := len(resp.Responses)
	is, mark := resp.Responses[n-2].GetResponseRange().Kvs, resp.Responses[n-1].GetResponseRange().Kvs
	switch {
	case len(is) != 1 || !bytes.Equal(is[0].Value, g.is):
		return ErrOther
	case seen > 0 && (len(mark) != 1 || mark[0].Version < seen):
		return olderError{}
	}
	return nil
}

// writes returns whether operations write something beside removing it, which a full store still takes.
func writes(all []clientv3.Op) bool {
	return slices.ContainsFunc(all, func(op clientv3.Op) bool { return op.IsPut() || op.IsTxn() })
}

// Do makes a transaction of each single request, since only transactions compare.
func (g *guarded) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if len(g.is) == 0 || op.IsTxn() { // we make transactions by Txn
		return g.KV.Do(ctx, op)
	}
	resp, err := g.Txn(ctx).Then(op).Commit()
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	switch answer := resp.Responses[0]; {
	case op.IsGet():
		get := (*clientv3.GetResponse)(answer.GetResponseRange())
		get.Header = resp.Header
		return get.OpResponse(), nil
	case op.IsPut():
		put := (*clientv3.PutResponse)(answer.GetResponsePut())
		put.Header = resp.Header
		return put.OpResponse(), nil
	default:
		deleted := (*clientv3.DeleteResponse)(answer.GetResponseDeleteRange())
		deleted.Header = resp.Header
		return deleted.OpResponse(), nil
	}
}

func (g *guarded) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := g.Do(ctx, clientv3.OpGet(key, o...))
	return resp.Get(), err
}

func (g *guarded) Put(ctx context.Context, key, value string, o ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	resp, err := g.Do(ctx, clientv3.OpPut(key, value, o...))
	return resp.Put(), err
}

func (g *guarded) Delete(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	resp, err := g.Do(ctx, clientv3.OpDelete(key, o...))
	return resp.Del(), err
}

func (g *guarded) Txn(ctx context.Context) clientv3.Txn {
	if len(g.is) == 0 {
		return g.KV.Txn(ctx)
	}
	return &guardedTxn{g: g, ctx: ctx}
}

// guardedTxn adds the comparison to a transaction. What is asked for where it fails is answered as if it had not been
// there, unless the store is another one.
type guardedTxn struct {
	g            *guarded
	ctx          context.Context
	conditions   []clientv3.Cmp
	then, orElse []clientv3.Op
}

func (t *guardedTxn) If(c ...clientv3.Cmp) clientv3.Txn {
	t.conditions = append(t.conditions, c...)
	return t
}

func (t *guardedTxn) Then(o ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, o...)
	return t
}

func (t *guardedTxn) Else(o ...clientv3.Op) clientv3.Txn {
	t.orElse = append(t.orElse, o...)
	return t
}

// Commit adds the comparison, and the mark to what writes. From the answer it takes away what it has added.
func (t *guardedTxn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.g.silence.allows(t.ctx); err != nil {
		return nil, err
	}
	same, seen := t.g.same()
	then, marks := t.then, writes(t.then)
	if marks {
		then = append(slices.Clone(then), clientv3.OpPut(t.g.mark, ""))
	}
	defer t.g.silence.asks()()
	resp, err := t.g.KV.Txn(t.ctx).If(append(slices.Clone(t.conditions), same...)...).Then(then...).
		Else(append(slices.Clone(t.orElse), t.g.asks()...)...).Commit()
	switch {
	case err != nil:
		return nil, err
	case resp.Succeeded && marks:
		t.g.seen.Add(1)
		resp.Responses = resp.Responses[:len(t.then)]
	case !resp.Succeeded:
		if err := t.g.differs(resp, seen); err != nil {
			return nil, err
		}
		resp.Responses = resp.Responses[:len(t.orElse)]
	}
	return resp, nil
}

// guard compares from now on. What is stored as the identity was read, or written, just before; of the mark that many
// writes were counted.
func (s *Store) guard(identity []byte, marked int64) {
	g := &guarded{KV: s.kv, key: s.documentKey(identityDocument), mark: s.markKey(), seen: new(atomic.Int64),
		silence: &s.silence, is: identity}
	g.seen.Store(marked)
	s.kv = g
}

func (s *Store) markKey() string { return s.prefix + "mark" }

// Look asks whether the store answers, and is still the one that was opened; the error wraps ErrOther where it is not.
// One that has not answered for a while is silent from then on, until it answers Look.
func (s *Store) Look(ctx context.Context) error {
	within, cancel := context.WithTimeout(context.WithValue(ctx, lookKey{}, true), lookWithin)
	defer cancel()
	_, err := s.get(within, s.documentKey(identityDocument))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answered := err
	if errors.Is(err, ErrOther) {
		answered = nil
	}
	s.silence.noted(time.Now(), answered)
	if err != nil {
		return s.explain("look at the store", err)
	}
	return nil
}

// External tells whether the store is a cluster that others keep, and may replace.
func (s *Store) External() bool { return s.reclaim == nil }
