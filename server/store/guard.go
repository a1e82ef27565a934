package store

import (
	"bytes"
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrOther tells that another store answers at the place of the one that this process has opened.
var ErrOther = errors.New("another store is at its place than the one that this manager works with")

// guarded has every request ask in the same transaction whether this is still the store that was opened: an external
// cluster can be replaced by an empty one, or by another instance's, while we are connected. Nothing is written to such
// a store, and nothing that it says is believed.
type guarded struct {
	clientv3.KV
	key string // the identity's
	// is the identity as it is stored. While it is empty nothing is compared: a store has none before it is made, and
	// when it has no room.
	is []byte
}

func (g *guarded) same() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(g.key), "=", string(g.is))
}

func (g *guarded) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if len(g.is) == 0 || op.IsTxn() { // we make transactions by Txn
		return g.KV.Do(ctx, op)
	}
	resp, err := g.KV.Txn(ctx).If(g.same()).Then(op).Commit()
	switch {
	case err != nil:
		return clientv3.OpResponse{}, err
	case !resp.Succeeded:
		return clientv3.OpResponse{}, ErrOther
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

func (t *guardedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.g.KV.Txn(t.ctx).If(append(t.conditions, t.g.same())...).Then(t.then...).
		Else(append(t.orElse, clientv3.OpGet(t.g.key))...).Commit()
	if err != nil || resp.Succeeded {
		return resp, err
	}
	last := len(resp.Responses) - 1
	is := resp.Responses[last].GetResponseRange().Kvs
	if len(is) != 1 || !bytes.Equal(is[0].Value, t.g.is) {
		return nil, ErrOther
	}
	resp.Responses = resp.Responses[:last]
	return resp, nil
}

// guard compares from now on. What is stored as the identity was read, or written, just before.
func (s *Store) guard(identity []byte) {
	s.kv = &guarded{s.kv, s.documentKey(identityDocument), identity}
}

// Look asks whether the store is still the one that was opened; the error wraps ErrOther where it is not.
func (s *Store) Look(ctx context.Context) error {
	_, err := s.get(ctx, s.documentKey(identityDocument))
	if err != nil {
		return s.explain("look at the store", err)
	}
	return nil
}

// External tells whether the store is a cluster that others keep, and may replace.
func (s *Store) External() bool { return s.reclaim == nil }
