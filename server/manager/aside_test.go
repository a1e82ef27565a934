package manager

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
)

// readsOnly is a cluster that answers what reads, and, while it hangs, nothing that writes.
type readsOnly struct {
	etcdserverpb.UnimplementedKVServer
	to    etcdserverpb.KVClient
	hangs atomic.Bool
	tried atomic.Int32 // writes, while it hangs
	// networks are those of them that write networks' records, which is done with the lock of changes.
	networks atomic.Int32
	began    chan struct{}
}

func (r *readsOnly) Txn(ctx context.Context, q *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if len(q.Success) > 0 && q.Success[0].GetRequestRange() == nil && r.hangs.Load() {
		r.tried.Add(1)
		if q.Success[0].GetRequestTxn() != nil {
			r.networks.Add(1)
		}
		select {
		case r.began <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r.to.Txn(ctx, q)
}

func (r *readsOnly) Range(ctx context.Context, q *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return r.to.Range(ctx, q)
}

func (r *readsOnly) Put(ctx context.Context, q *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return r.to.Put(ctx, q)
}

func (r *readsOnly) DeleteRange(ctx context.Context, q *etcdserverpb.DeleteRangeRequest) (
	*etcdserverpb.DeleteRangeResponse, error,
) {
	return r.to.DeleteRange(ctx, q)
}

// TestNobodyWaitsForWhatIsTakenBack: a cluster answers what reads and hangs what writes, so it never counts as silent.
// That a change without an answer cannot be taken back holds up neither whoever changes something nor the looks at the
// store, it is not tried all the time, and once the cluster writes again all is as it was.
func TestNobodyWaitsForWhatIsTakenBack(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	clusterAt(t, url.URL{Scheme: "unix", Path: filepath.Join(dir, "s:0")}, dir)
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "s:0"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	between := &readsOnly{to: etcdserverpb.NewKVClient(conn), began: make(chan struct{}, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, between)
	go server.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(server.Stop)
	st, err := store.OpenExternal(t.Context(), store.ExternalOptions{URLs: []string{"http://" + l.Addr().String()},
		Aside: filepath.Join(dir, "aside")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	m, err := New(t.Context(), instance.Dirs{Name: "test", Run: dir, Data: dir}, st, substrateOf(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("n1", model.Registration{Socket: dir + "/none.sock"}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{Manager: m}
	if _, err := f.Apply(t.Context(), line("lab", 2), model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	between.hangs.Store(true)
	if _, err := f.Apply(t.Context(), line("lab", 3), model.ApplyOptions{}); err == nil {
		t.Fatal("a change without an answer succeeds")
	}
	if unsure := st.Unsure(); len(unsure) != 1 {
		t.Fatalf("unsure is %v", unsure)
	}
	if between.networks.Swap(0) == 0 {
		t.Error("a change is no write of a network")
	}
	between.tried.Store(0)
	<-between.began
	s, now := m.settling(), time.Now()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		s.settle(t.Context(), now)
		s.settle(t.Context(), now) // which is too soon after it
	}()
	<-between.began
	m.lookAtStore(t.Context())
	<-settled
	// The one that was tried is of no network, so nobody's lock was held.
	if n := between.tried.Load(); n != 1 || between.networks.Load() != 0 || m.silent != "" {
		t.Errorf("%d writes were tried, %d of networks, and of the store is said %q", n, between.networks.Load(),
			m.silent)
	}
	between.hangs.Store(false)
	s.settle(t.Context(), now.Add(mostWait))
	if unsure := st.Unsure(); len(unsure) > 0 {
		t.Errorf("in the end unsure is %v", unsure)
	}
	records, _, _, err := st.Load(t.Context())
	if err != nil || len(records) != 1 || len(records[0].Network.Elements) != len(line("lab", 2).Elements) {
		t.Errorf("in the end there is %v, %v", records, err)
	}
}
