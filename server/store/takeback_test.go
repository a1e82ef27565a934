package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

// full is a cluster of somebody else's without room, and a store on it that has these networks.
func full(t *testing.T, networks ...string) (s *Store, other func() *Store, room func()) {
	t.Helper()
	socket, client := served(t, 16<<20)
	connect := func(aside string) *Store {
		t.Helper()
		s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}, Aside: aside})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s = connect(filepath.Join(t.TempDir(), "aside"))
	for _, name := range networks {
		if _, err := s.Put(t.Context(), record(name, 1, 3)); err != nil {
			t.Fatal(err)
		}
	}
	return s, func() *Store { return connect("") }, fillCluster(t, socket, client)
}

func quotasFor(networks int64) model.Quotas {
	return model.Quotas{Owners: map[string]model.Quota{"bob": {Networks: int(networks)}}}
}

// TestWhatIsStoredLateOverwritesNothingNewer: while a document that was laid aside is on its way into the store, a newer
// one is stored. The newer one counts.
func TestWhatIsStoredLateOverwritesNothingNewer(t *testing.T) {
	s, other, room := full(t)
	if err := s.PutQuotas(Urgent(t.Context(), true), quotasFor(1)); err != nil {
		t.Fatal(err)
	}
	room()
	newer := make(chan error, 1)
	s.kv = &meanwhile{KV: s.kv, key: s.documentKey(quotasDocument), do: func() {
		go func() { newer <- s.PutQuotas(t.Context(), quotasFor(2)) }()
		time.Sleep(300 * time.Millisecond) // it is stored, or waits
	}}
	if err := s.StoreAside(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-newer; err != nil {
		t.Error(err)
	}
	for _, at := range []*Store{s, other()} {
		if q, err := at.Quotas(t.Context()); err != nil || q.Owners["bob"].Networks != 2 {
			t.Errorf("the quotas are %+v, %v", q, err)
		}
	}
	if why := s.Aside(); why != "" {
		t.Error(why)
	}
}

// meanwhile does something just before a key is written for the first time.
type meanwhile struct {
	clientv3.KV
	key string
	do  func()
}

func (m *meanwhile) wrote(key string) {
	if do := m.do; do != nil && key == m.key {
		m.do = nil
		do()
	}
}

func (m *meanwhile) Put(ctx context.Context, key, value string, o ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	m.wrote(key)
	return m.KV.Put(ctx, key, value, o...)
}

func (m *meanwhile) Txn(ctx context.Context) clientv3.Txn { return &meanwhileTxn{m.KV.Txn(ctx), m} }

type meanwhileTxn struct {
	clientv3.Txn
	m *meanwhile
}

func (t *meanwhileTxn) If(c ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(c...); return t }
func (t *meanwhileTxn) Then(all ...clientv3.Op) clientv3.Txn {
	for _, op := range all {
		if op.IsPut() {
			t.m.wrote(string(op.KeyBytes()))
		}
	}
	t.Txn = t.Txn.Then(all...)
	return t
}

// TestDocumentsOfOthersAreNotOverwritten: what was laid aside of a document does not count if another manager has
// written it since: neither when it is stored, nor at the next start.
func TestDocumentsOfOthersAreNotOverwritten(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		s, other, room := full(t)
		urgently := Urgent(t.Context(), true)
		for i := range int64(2) {
			if err := s.PutQuotas(urgently, quotasFor(i)); err != nil {
				t.Fatal(err)
			}
		}
		room()
		second := other()
		if err := second.PutQuotas(t.Context(), quotasFor(7)); err != nil {
			t.Fatal(err)
		}
		if restarted {
			again, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{s.Place()}, Aside: s.aside.dir})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			s = again
		} else if err := s.StoreAside(t.Context()); !errors.Is(err, ErrMoved) {
			t.Errorf("it is told with: %v", err)
		}
		for _, at := range []*Store{s, second} {
			if q, err := at.Quotas(t.Context()); err != nil || q.Owners["bob"].Networks != 7 {
				t.Errorf("restarted %v: the quotas are %+v, %v", restarted, q, err)
			}
		}
		if _, told := s.Overtaken(); len(told) != 1 || told[0] != quotasDocument || s.Aside() != "" {
			t.Errorf("restarted %v: told is %v, kept %q", restarted, told, s.Aside())
		}
	}
}

// TestOneThatIsOvertakenHoldsUpNoOther: the store refuses one of several networks that were laid aside, since another
// manager has changed it. It gets the others.
func TestOneThatIsOvertakenHoldsUpNoOther(t *testing.T) {
	s, other, room := full(t, "a", "b")
	for _, name := range []string{"a", "b"} {
		if _, err := s.Put(Urgent(t.Context(), true), record(name, 2, 3)); err != nil {
			t.Fatal(err)
		}
	}
	room()
	second := other()
	load(t, second)
	if _, err := second.Put(t.Context(), record("a", 7, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreAside(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("it is told with: %v", err)
	}
	if got := load(t, second); got["a"].Revision != 7 || got["b"].Revision != 2 {
		t.Errorf("the store has revisions %d and %d", got["a"].Revision, got["b"].Revision)
	}
	if told, _ := s.Overtaken(); len(told) != 1 || told[0] != "a" || s.Aside() != "" {
		t.Errorf("told is %v, kept %q", told, s.Aside())
	}
}

// TestAllIsLaidAsideOrNothing: whoever is refused, since one of several records cannot be kept on the disk, finds all
// as it was.
func TestAllIsLaidAsideOrNothing(t *testing.T) {
	s, _, _ := full(t, "a", "b", "c")
	urgently := Urgent(t.Context(), true)
	if _, err := s.Put(urgently, record("a", 2, 3)); err != nil {
		t.Fatal(err)
	}
	blocked := s.aside.pathOf(pointerKeys+"c", s.identity.ID)
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(urgently, record("a", 3, 3), record("b", 3, 3), record("c", 3, 3)); !errors.Is(err, ErrFull) ||
		!strings.Contains(err.Error(), "nor can it be kept") {
		t.Errorf("it is refused with: %v", err)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	again, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{s.Place()}, Aside: s.aside.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, at := range []*Store{s, again} {
		if got := load(t, at); got["a"].Revision != 2 || got["b"].Revision != 1 || got["c"].Revision != 1 {
			t.Errorf("there are revisions %d, %d, %d", got["a"].Revision, got["b"].Revision, got["c"].Revision)
		}
	}
}

// hangs answers no write, within the time that the request has, or at once.
type hangs struct {
	clientv3.KV
	waits bool
	tried int
}

func (h *hangs) hang(ctx context.Context) error {
	if h.tried++; h.waits {
		<-ctx.Done()
	}
	return context.DeadlineExceeded
}

func (h *hangs) Put(ctx context.Context, _, _ string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, h.hang(ctx)
}

func (h *hangs) Txn(ctx context.Context) clientv3.Txn { return &hangingTxn{h.KV.Txn(ctx), h, ctx} }

type hangingTxn struct {
	clientv3.Txn
	h   *hangs
	ctx context.Context
}

func (t *hangingTxn) If(...clientv3.Cmp) clientv3.Txn        { return t }
func (t *hangingTxn) Then(...clientv3.Op) clientv3.Txn       { return t }
func (t *hangingTxn) Else(...clientv3.Op) clientv3.Txn       { return t }
func (t *hangingTxn) Commit() (*clientv3.TxnResponse, error) { return nil, t.h.hang(t.ctx) }
func (h *hangs) Do(context.Context, clientv3.Op) (r clientv3.OpResponse, err error) {
	panic("nobody does")
}

// TestTakingBackForgetsNoWrite: however often a write cannot be taken back, the one that got no answer at first is
// recognised when it is carried out after all.
func TestTakingBackForgetsNoWrite(t *testing.T) {
	s := open(t, t.TempDir())
	is := record("net", 1, 2)
	if _, err := s.Put(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	first := &slowKV{KV: kv}
	s.kv = first
	if _, err := s.Put(t.Context(), record("net", 2, 2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	s.kv = &hangs{KV: kv}
	for range 2 * (mostUnsure + 1) {
		if s.TakeBack(t.Context(), "net", &is) == nil {
			t.Fatal("what hangs is taken back")
		}
	}
	s.kv = kv
	if resp, err := first.release(); err != nil || !resp.Succeeded {
		t.Fatalf("the first is carried out: %v", err)
	}
	if err := s.TakeBack(t.Context(), "net", &is); err != nil || len(s.Unsure()) > 0 {
		t.Errorf("it is taken back: %v; unsure is %v", err, s.Unsure())
	}
	equal(t, load(t, s)["net"], is)
}

// TestTakingBackEndsWhereAnotherHasChangedIt: none of ours can come any more then, and nobody goes on trying.
func TestTakingBackEndsWhereAnotherHasChangedIt(t *testing.T) {
	s := open(t, t.TempDir())
	is := record("net", 1, 2)
	if _, err := s.Put(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	s.kv = &slowKV{KV: kv}
	if _, err := s.Put(t.Context(), record("net", 2, 2)); err == nil {
		t.Fatal("no error")
	}
	s.kv = kv
	other := &Store{kv: kv, prefix: s.prefix, place: s.place, versions: map[string]version{}}
	load(t, other)
	if _, err := other.Put(t.Context(), record("net", 7, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.TakeBack(t.Context(), "net", &is); !errors.Is(err, ErrConflict) || len(s.Unsure()) > 0 {
		t.Errorf("it ends with %v; unsure is %v", err, s.Unsure())
	}
}

// TestTakingBackIsShort: it is one short try, and nothing is looked up or tidied up behind it.
func TestTakingBackIsShort(t *testing.T) {
	t.Parallel() // it waits
	s := open(t, t.TempDir())
	is := record("net", 1, 40_000)
	if _, err := s.Put(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	h := &hangs{KV: s.kv, waits: true}
	s.kv = h
	within, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	for what, try := range map[string]func() error{
		"a look":   func() error { return s.Takes(within) },
		"one try":  func() error { return s.TakeBack(within, "net", &is) },
		"one more": func() error { return s.TakeBack(within, "none", nil) },
	} {
		if h.tried = 0; try() == nil || h.tried != 1 || within.Err() != nil {
			t.Errorf("%s is %d requests (%v)", what, h.tried, within.Err())
		}
	}
	s.kv = h.KV
}

// TestNodesAreToldNoLowerRevision: not even if the store's own, which is behind, cannot be raised.
func TestNodesAreToldNoLowerRevision(t *testing.T) {
	s := open(t, t.TempDir())
	told, err := s.Put(t.Context(), record("net", 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	s.told = told + 10
	kv := s.kv
	s.kv = &failingKV{KV: kv, left: 1}
	next, err := s.Put(t.Context(), record("net", 2, 2))
	s.kv = kv
	if err != nil || next < told+10 {
		t.Errorf("after %d is told %d (%v)", told+10, next, err)
	}
}
