package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

// failingKV stops answering after a number of writes, as a process that is killed there.
type failingKV struct {
	clientv3.KV
	left int
	// late carries the failing transaction out and loses its answer.
	late bool
}

var errKilled = errors.New("killed")

func (f *failingKV) step() bool { f.left--; return f.left >= 0 }

func (f *failingKV) Put(ctx context.Context, key, val string, o ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if !f.step() {
		return nil, errKilled
	}
	return f.KV.Put(ctx, key, val, o...)
}

func (f *failingKV) Delete(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	if f.left < 0 {
		return nil, errKilled
	}
	return f.KV.Delete(ctx, key, o...)
}

func (f *failingKV) Txn(ctx context.Context) clientv3.Txn { return &failingTxn{f.KV.Txn(ctx), f} }

type failingTxn struct {
	clientv3.Txn
	f *failingKV
}

func (t *failingTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *failingTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *failingTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }
func (t *failingTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.f.step() {
		return t.Txn.Commit()
	}
	if t.f.late {
		if _, err := t.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	return nil, errKilled
}

// TestCrashBetweenWritesLeavesTheOldRecord kills the writer before each of its writes in turn.
func TestCrashBetweenWritesLeavesTheOldRecord(t *testing.T) {
	s := open(t, t.TempDir())
	other, old := record("other", 1, 10), record("net", 1, 40_000)
	for _, r := range []model.Record{other, old} {
		if _, err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	kv := s.kv
	next := record("net", 2, 40_000)
	writes := 0
	for ; ; writes++ {
		s.kv = &failingKV{KV: kv, left: writes}
		_, err := s.Put(t.Context(), next)
		s.kv = kv
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		got := load(t, s)
		equal(t, got["net"], old)
		equal(t, got["other"], other)
	}
	if writes < 3 {
		t.Fatalf("the record took %d writes: the test means several chunks", writes)
	}
	equal(t, load(t, s)["net"], next)
	// The final write's transaction swept what the killed ones had left.
	for _, key := range keysOf(t, s, s.chunksKey("net")) {
		if !strings.HasPrefix(key, s.chunksKey("net")+"2-") {
			t.Errorf("chunk %s remains", key)
		}
	}
	if n := len(keysOf(t, s, s.chunksKey("net"))); n != writes {
		t.Errorf("%d chunks remain, the record has %d", n, writes)
	}
}

func TestCrashOfAFirstWriteIsSwept(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Put(t.Context(), record("kept", 1, 2)); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	s.kv = &failingKV{KV: kv, left: 1}
	if _, err := s.Put(t.Context(), record("half", 1, 40_000)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.kv = kv
	if len(keysOf(t, s, s.chunksKey("half"))) == 0 {
		t.Fatal("the killed write left nothing: the test tests nothing")
	}
	if got := load(t, s); len(got) != 1 {
		t.Fatalf("networks: %v", got)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, s, s.chunksKey("half")); len(keys) != 0 {
		t.Errorf("not swept: %v", keys)
	}
	if len(keysOf(t, s, s.chunksKey("kept"))) != 1 {
		t.Error("the sweep took another network's chunks")
	}
}

func TestLostAnswerOfACarriedOutWriteIsNoError(t *testing.T) {
	s := open(t, t.TempDir())
	kv := s.kv
	s.kv = &failingKV{KV: kv, left: 0, late: true}
	if _, err := s.Put(t.Context(), record("net", 1, 2)); err != nil {
		t.Fatal(err)
	}
	s.kv = kv
	if _, err := s.Put(t.Context(), record("net", 2, 2)); err != nil {
		t.Fatal("the next write after a lost answer:", err)
	}
}

// slowKV holds one transaction back: its answer is a timeout, and it is carried out when release is called.
type slowKV struct {
	clientv3.KV
	release func() (*clientv3.TxnResponse, error)
}

func (k *slowKV) Txn(ctx context.Context) clientv3.Txn {
	if k.release != nil {
		return k.KV.Txn(ctx)
	}
	return &slowTxn{k.KV.Txn(context.WithoutCancel(ctx)), k}
}

type slowTxn struct {
	clientv3.Txn
	k *slowKV
}

func (t *slowTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *slowTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *slowTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }
func (t *slowTxn) Commit() (*clientv3.TxnResponse, error) {
	t.k.release = t.Txn.Commit
	return nil, context.DeadlineExceeded
}

// A write that was given up and is carried out later makes no damaged record, and stands in nobody's way.
func TestWriteThatIsCarriedOutLate(t *testing.T) {
	for name, n := range map[string]int{"one chunk": 2, "several chunks": 40_000} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			old := record("net", 1, n)
			if _, err := s.Put(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			kv := s.kv
			slow := &slowKV{KV: kv}
			s.kv = slow
			if _, err := s.Put(t.Context(), record("net", 2, n)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			s.kv = kv
			resp, err := slow.release()
			if err != nil {
				t.Fatal(err)
			}
			next := record("net", 2, n+1)
			if _, err := s.Put(t.Context(), next); err != nil {
				t.Fatalf("the next write (the late one succeeded: %v): %v", resp.Succeeded, err)
			}
			equal(t, load(t, s)["net"], next)
		})
	}
}

// Several writes in a row get no answer, and the first of them was carried out.
func TestFirstOfSeveralUnansweredWritesIsCarriedOut(t *testing.T) {
	s := open(t, t.TempDir())
	kv := s.kv
	var first *slowKV
	for i := range 3 {
		slow := &slowKV{KV: kv}
		if s.kv = slow; i == 0 {
			first = slow
		}
		if _, err := s.Put(t.Context(), record("net", 1, 2+i)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	s.kv = kv
	if resp, err := first.release(); err != nil || !resp.Succeeded {
		t.Fatalf("the first is carried out: %v", err)
	}
	next := record("net", 1, 7)
	if _, err := s.Put(t.Context(), next); err != nil {
		t.Fatalf("the next write: %v", err)
	}
	equal(t, load(t, s)["net"], next)
}

func TestLateWriteOfSeveralChunksFindsThemGone(t *testing.T) {
	s := open(t, t.TempDir())
	old := record("net", 1, 40_000)
	if _, err := s.Put(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	slow := &slowKV{KV: kv}
	s.kv = slow
	if _, err := s.Put(t.Context(), record("net", 2, 40_000)); err == nil {
		t.Fatal("no error")
	}
	s.kv = kv
	if _, err := slow.release(); err != nil {
		t.Fatal(err)
	}
	equal(t, load(t, s)["net"], old)
}

func TestDeletionWhoseAnswerWasLost(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Put(t.Context(), record("net", 1, 2)); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	s.kv = &failingKV{KV: kv, left: 0, late: true}
	if _, err := s.Delete(t.Context(), "net", model.Deleted{}); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.kv = kv
	if _, err := s.Delete(t.Context(), "net", model.Deleted{}); err != nil {
		t.Fatal("the second attempt:", err)
	}
	if _, err := s.Put(t.Context(), record("net", 1, 2)); err != nil {
		t.Fatal("a new network of the name:", err)
	}
}

func TestCrashOfALaterWriteIsSwept(t *testing.T) {
	s := open(t, t.TempDir())
	old := record("net", 1, 40_000)
	if _, err := s.Put(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	whole := len(keysOf(t, s, s.chunksKey("net")))
	kv := s.kv
	s.kv = &failingKV{KV: kv, left: 1}
	if _, err := s.Put(t.Context(), record("net", 2, 40_000)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.kv = kv
	if len(keysOf(t, s, s.chunksKey("net"))) <= whole {
		t.Fatal("the killed write left nothing: the test tests nothing")
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(keysOf(t, s, s.chunksKey("net"))); n != whole {
		t.Errorf("%d chunks remain of %d", n, whole)
	}
	equal(t, load(t, s)["net"], old)
}

// A document whose writing was given up, and that is carried out later, overwrites nothing newer.
func TestDocumentThatIsCarriedOutLate(t *testing.T) {
	for name, first := range map[string]bool{"one that is there": false, "the first": true} {
		for when, early := range map[string]bool{"before the next": true, "behind the next": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				s := open(t, t.TempDir())
				if !first {
					if err := s.PutQuotas(t.Context(), quotasFor(1)); err != nil {
						t.Fatal(err)
					}
				}
				kv := s.kv
				slow := &slowKV{KV: kv}
				s.kv = slow
				if err := s.PutQuotas(t.Context(), quotasFor(2)); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				s.kv = kv
				release := func() {
					if resp, err := slow.release(); err != nil || resp.Succeeded != early {
						t.Errorf("the late one was carried out: %v, %v; wanted is %v", resp.Succeeded, err, early)
					}
				}
				if early {
					release()
				}
				if err := s.PutQuotas(t.Context(), quotasFor(3)); err != nil {
					t.Fatal(err)
				}
				if !early {
					release()
				}
				if q, err := s.Quotas(t.Context()); err != nil || q.Owners["bob"].Networks != 3 {
					t.Errorf("the quotas are %+v, %v", q, err)
				}
			})
		}
	}
}
