package store

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// served runs a cluster of somebody else's that keeps so many bytes, and returns a client of its own.
func served(t *testing.T, quota int64) (url.URL, *clientv3.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "aside") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd:0")}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, "etcd"), "error",
		[]string{filepath.Join(dir, "log")}
	config.ListenPeerUrls, config.TickMs, config.ElectionMs = nil, 100, 500
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	config.QuotaBackendBytes = quota
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{socket.String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return socket, client
}

// fillCluster has somebody else use up a cluster's space, and returns what makes room again, as people do.
func fillCluster(t *testing.T, socket url.URL, client *clientv3.Client) (room func()) {
	t.Helper()
	value := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if _, err := client.Put(t.Context(), "/others/"+string(rune('a'+i)), value); err != nil {
			if !strings.Contains(err.Error(), "space") {
				t.Fatal(err)
			}
			break
		}
	}
	return func() {
		t.Helper()
		resp, err := client.Delete(t.Context(), "/others/", clientv3.WithPrefix())
		if err == nil {
			_, err = client.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err == nil {
			_, err = client.Defragment(t.Context(), socket.String())
		}
		if err == nil {
			_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFullClusterStopsNobodyWhoStops: what is urgent is carried out although an external cluster takes nothing any
// more. It is there after a restart, in backups, and in the cluster once that has room.
func TestAFullClusterStopsNobodyWhoStops(t *testing.T) {
	attack.Tell(t, "somebody uses up the space of the external etcd",
		"what stops or cuts off elements is carried out, kept, and stored later")
	socket, client := served(t, 16<<20)
	dir := filepath.Join(t.TempDir(), "aside")
	connect := func(dir string) *Store {
		t.Helper()
		s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}, Aside: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := connect(dir)
	for _, name := range []string{"lab", "other", "gone"} {
		if _, err := s.Put(t.Context(), record(name, 1, 3)); err != nil {
			t.Fatal(err)
		}
	}
	room := fillCluster(t, socket, client)

	if _, err := s.Put(t.Context(), record("lab", 2, 3)); !errors.Is(err, ErrFull) {
		t.Errorf("an ordinary change: %v", err)
	}
	urgently := Urgent(t.Context(), true)
	before, last := int64(0), model.Record{}
	for revision := int64(2); revision <= 4; revision++ {
		last = record("lab", revision, 3)
		told, err := s.Put(urgently, last)
		if err != nil || told <= before {
			t.Fatalf("an urgent change is told as %d after %d (%v)", told, before, err)
		}
		before = told
	}
	if _, err := s.Put(urgently, record("gone", 2, 3)); err != nil {
		t.Fatal(err)
	}
	before++
	if _, err := s.Delete(t.Context(), "gone", model.Deleted{Index: 1}); err != nil {
		t.Fatal(err)
	}
	quotas := model.Quotas{Owners: map[string]model.Quota{"bob": {Networks: 1}}}
	if err := s.PutQuotas(urgently, quotas); err != nil {
		t.Fatal(err)
	}
	kept := []model.Restraint{{Owner: "bob/x", ID: model.ID{Network: "n", Element: "e"}, Quarantined: true}}
	if err := s.PutRestraints(urgently, kept); err != nil {
		t.Fatal(err)
	}
	whole := func(s *Store) {
		t.Helper()
		records, damaged, revision, err := s.Load(t.Context())
		if err != nil || len(damaged) > 0 || len(records) != 2 || revision < before {
			t.Fatalf("it has %d networks at %d, told was %d: %v, %v", len(records), revision, before, damaged, err)
		}
		for _, r := range records {
			if r.Network.Name == "lab" {
				equal(t, r, last)
			}
		}
		q, err := s.Quotas(t.Context())
		if err != nil || q.Owners["bob"].Networks != 1 {
			t.Errorf("the quotas are %+v, %v", q, err)
		}
		if is, err := s.Restraints(t.Context()); err != nil || len(is) != 1 || is[0] != kept[0] {
			t.Errorf("the restraints are %+v, %v", is, err)
		}
		var b bytes.Buffer
		if _, err := s.WriteBackup(t.Context(), &b, BackupHeader{}, nil); err != nil {
			t.Fatal(err)
		}
		backup, err := readBackup(&b)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := recordIn(backup.Keys, "lab"); err != nil || r.Revision != 4 {
			t.Errorf("the backup has %+v, %v", r, err)
		}
	}
	whole(s)
	if why := s.AsideOf("lab"); !strings.Contains(why, "its space is used up") || !strings.Contains(why, dir) {
		t.Errorf("of lab is said %q", why)
	}
	s.Close()
	identity := s.Identity().ID
	s = connect(dir)
	if s.Identity().ID != identity {
		t.Errorf("started again while it is full, the store is %q, it was %q", s.Identity().ID, identity)
	}
	whole(s)
	if err := s.StoreAside(t.Context()); !errors.Is(err, ErrFull) || s.AsideOf("lab") == "" {
		t.Errorf("while it is full: %v", err)
	}
	room()
	if err := s.StoreAside(t.Context()); err != nil || s.Aside() != "" {
		t.Fatalf("it has room, and %v; kept is still %q", err, s.Aside())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	whole(s)
	s.Close()
	s = connect("") // the cluster alone
	defer s.Close()
	whole(s)
	if _, err := s.Put(t.Context(), record("lab", 5, 3)); err != nil {
		t.Error(err)
	}
}

// TestWhatIsLaidAsideIsNotBelievedEverywhere: it counts beside the store that it was for, as long as nobody else has
// changed the network there.
func TestWhatIsLaidAsideIsNotBelievedEverywhere(t *testing.T) {
	socket, client := served(t, 16<<20)
	dir := filepath.Join(t.TempDir(), "aside")
	connect := func(prefix, dir string) *Store {
		t.Helper()
		s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}, Aside: dir, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := connect("/p/a/", dir)
	for _, name := range []string{"lab", "gone"} {
		if _, err := s.Put(t.Context(), record(name, 1, 3)); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := connect("/p/b/", "")
	if _, err := elsewhere.Put(t.Context(), record("lab", 1, 5)); err != nil {
		t.Fatal(err)
	}
	room := fillCluster(t, socket, client)
	for _, name := range []string{"lab", "gone"} {
		if _, err := s.Put(Urgent(t.Context(), false), record(name, 2, 3)); err != nil {
			t.Fatal(err)
		}
	}
	room()
	if got := load(t, connect("/p/b/", dir)); got["lab"].Revision != 1 {
		t.Errorf("another store's lab is %+v", got["lab"])
	}
	second := connect("/p/a/", "")
	load(t, second)
	newest := record("lab", 7, 4)
	if _, err := second.Put(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Delete(t.Context(), "gone", model.Deleted{Index: 1}); err != nil {
		t.Fatal(err)
	}
	again := connect("/p/a/", dir)
	got := load(t, again)
	equal(t, got["lab"], newest)
	if len(got) != 1 || again.Aside() != "" {
		t.Errorf("there are %d networks, and kept is %q", len(got), again.Aside())
	}
	if told, _ := again.Overtaken(); len(told) != 2 {
		t.Errorf("told are %v", told)
	}
	if told, _ := again.Overtaken(); len(told) != 0 {
		t.Errorf("told again are %v", told)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.overtaken")); len(left) != 2 {
		t.Errorf("for people to look at there is %v", left)
	}
	path := filepath.Join(dir, "damaged.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}, Aside: dir}); err == nil ||
		!strings.Contains(err.Error(), "mv "+path) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestASilentClusterStopsNobodyWhoStops: while a cluster says nothing, what is urgent takes a few seconds, and what
// gets no answer says that it may have been written, is taken back when the cluster answers, and never shows again.
func TestASilentClusterStopsNobodyWhoStops(t *testing.T) {
	t.Parallel() // it waits
	socket, _ := served(t, 0)
	b, s := behind(t, socket, filepath.Join(t.TempDir(), "aside"))
	ctx := t.Context()
	if _, err := s.Put(ctx, record("lab", 1, 3)); err != nil {
		t.Fatal(err)
	}
	if why := s.Waits(); why != "" {
		t.Errorf("it answers, and changes wait for %q", why)
	}
	b.set("stalls")
	urgently := func(revision int64) model.Record {
		t.Helper()
		r := record("lab", revision, 3)
		within, cancel := context.WithTimeout(Urgent(ctx, true), requestTimeout)
		defer cancel()
		if _, err := s.Put(within, r); err != nil || within.Err() != nil {
			t.Errorf("what is urgent: %v, %v", err, within.Err())
		}
		if why := s.AsideOf("lab"); !strings.Contains(why, "it does not answer") {
			t.Errorf("of lab is said %q", why)
		}
		return r
	}
	urgently(2)
	waiting := make(chan error, 2)
	for _, name := range []string{"lab", "new"} {
		go func() {
			within, cancel := context.WithTimeout(ctx, hurriedTimeout)
			defer cancel()
			_, err := s.Put(within, record(name, 3, 4))
			waiting <- err
		}()
	}
	for s.Waits() == "" {
		time.Sleep(10 * time.Millisecond)
	}
	if why := s.Waits(); !strings.Contains(why, "has not answered for") || !strings.Contains(why, s.Place()) {
		t.Errorf("changes wait for %q", why)
	}
	for s.Silent() == nil {
		s.Look(ctx) //nolint:errcheck // that is what makes it silent
	}
	unsure := 0
	for range 2 { // the second may not have been tried any more
		if err := <-waiting; err == nil {
			t.Error("a change without an answer succeeds")
		} else if strings.Contains(err.Error(), "may have been written all the same") {
			unsure++
		}
	}
	if unsure == 0 || len(s.Unsure()) == 0 {
		t.Errorf("%d changes say that they may have been written, of %v nobody knows", unsure, s.Unsure())
	}
	urgent := urgently(4)
	b.set("")
	for s.Aside() != "" {
		s.Look(ctx)       //nolint:errcheck // it is tried again
		s.StoreAside(ctx) //nolint:errcheck // it is tried again
	}
	for len(s.Unsure()) > 0 {
		if err := s.TakeBack(ctx, "new", nil); err != nil {
			t.Log(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	got := load(t, s)
	equal(t, got["lab"], urgent)
	if len(got) != 1 {
		t.Errorf("in the end there are %d networks", len(got))
	}
	if _, err := s.Put(ctx, record("new", 1, 3), record("lab", 4, 3)); err != nil {
		t.Error(err)
	}
}

// fallsSilent is a cluster that breaks a connection off while a transaction is under way, and then says nothing.
type fallsSilent struct {
	clientv3.KV
	tries int
}

func (f *fallsSilent) Txn(context.Context) clientv3.Txn { return &silentTxn{f: f} }

func (f *fallsSilent) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, ErrSilent
}

type silentTxn struct {
	clientv3.Txn
	f *fallsSilent
}

func (t *silentTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t *silentTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t *silentTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t *silentTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.f.tries++; t.f.tries == 1 {
		return nil, status.Error(codes.Unavailable, "the connection broke off")
	}
	return nil, ErrSilent
}

// TestAnEarlierTryMayHaveBeenWritten: a change that is refused in the end says that one of its tries may have been
// carried out. One that was never tried does not.
func TestAnEarlierTryMayHaveBeenWritten(t *testing.T) {
	s := open(t, t.TempDir())
	kv := s.kv
	s.kv = &fallsSilent{}
	const may = "may have been written all the same"
	if _, err := s.Put(t.Context(), record("lab", 1, 3)); !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), may) {
		t.Errorf("after a try that broke off: %v", err)
	}
	if _, err := s.Put(t.Context(), record("lab", 1, 3)); !errors.Is(err, ErrSilent) || strings.Contains(err.Error(), may) {
		t.Errorf("without a try: %v", err)
	}
	s.kv = kv
}
