// Package store keeps what polyplane must remember – one record a network, the substrate, the layout's version – in
// etcd: embedded in this process, or an external cluster. A record is compressed and cut into chunks, since etcd takes
// at most 1.5 MiB a request. The chunks have a name of their own. One pointer makes them current, in one transaction.
// That transaction demands that nobody else has moved the pointer, and removes every other chunk of the network.
// Records that belong together are made current by the same transaction. After a crash before it, the old records are
// still current.
package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

const (
	// chunkSize, in bytes, stays well below etcd's limit of a request.
	chunkSize = 512 << 10
	// requestTimeout is how long one request may take. An embedded store answers in milliseconds; a cluster may be
	// electing a leader.
	requestTimeout = 15 * time.Second
)

// DefaultPrefix is what all keys begin with.
const DefaultPrefix = "/polyplane/"

var (
	// ErrConflict tells that the network's entry is not as this process read it, or wrote it, last.
	ErrConflict = errors.New("the network in the store is not as this manager left it: another manager has changed " +
		"it, or an older copy of the store was put in its place (started again, the manager reads what is there)")
	// ErrFull tells that the store's quota is used up.
	ErrFull = errors.New("the store is full")
)

// Damaged is a network whose record cannot be read.
type Damaged struct {
	Name string
	// Index is the network's, VNI the highest of its links'; zero when even that is unknown.
	Index, VNI uint32
	Err        error
}

// Store is a connection to etcd. Several goroutines may call its methods. But only one process at a time may use the
// same keys: the comparison of pointers makes a second one fail, it does not make it work.
type Store struct {
	kv      clientv3.KV
	prefix  string
	place   string                      // what errors and `ping` call it
	reclaim func(context.Context) error // frees space after ErrFull; nil when that is not ours to do
	size    func() (file, used int64)   // of the database, in bytes; nil when that is not known here
	// wraps ErrFull where the disk has too little room for a write; nil when that is not ours to know
	room    func(urgency) error
	close   func() error
	closing sync.Once
	closed  error

	// mu is the lock of records. It guards the four below, and is held over reads and writes of networks, until etcd
	// has answered: no write may be decided by what an earlier one is just changing. documents is the same for
	// documents. The two are never held together.
	mu sync.Mutex
	// moved has, by network, the revision of etcd that last moved the pointer. unsure has the sums of writes of ours
	// that were given up without an answer, and of which one may still be carried out.
	moved  map[string]int64
	unsure map[string][]string
	looked map[string]time.Time // since when first writes that are unsure were not found
	told   int64                // the highest revision that anybody was told

	documents sync.Mutex // held over reads and writes of documents
	versions  map[string]version

	aside aside

	identity model.StoreIdentity
	silence  silence
}

// Place is "embedded", or the URLs of the external cluster.
func (s *Store) Place() string { return s.place }

// Close ends the connection, and etcd where it is embedded. Further calls do nothing.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) pointerKey(network string) string { return s.prefix + "networks/" + network }

// chunksKey ends with a slash, which no network's name contains. So no network's chunks are below another's.
func (s *Store) chunksKey(network string) string { return s.prefix + "records/" + network + "/" }

func (s *Store) documentKey(name string) string { return s.prefix + documentKeys + name }

func (s *Store) layoutKey() string { return s.prefix + "layout" }

// checkLayout refuses a store of a newer layout and marks a new one.
func (s *Store) checkLayout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := s.layoutKey()
	// First it is only read: a full store takes no transaction that may write.
	mark, err := s.get(ctx, key)
	if err != nil {
		return s.explain("open the store", err)
	}
	there := mark.Kvs
	if len(there) == 0 {
		identity, born, err := newIdentity(false)
		if err != nil {
			return err
		}
		resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, strconv.Itoa(Layout)), clientv3.OpPut(s.documentKey(identityDocument), born)).
			Else(clientv3.OpGet(key)).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			return nil // there is nothing to be read wrongly
		case err != nil:
			return s.explain("open the store", err)
		case resp.Succeeded:
			s.identity = identity
			s.guard([]byte(born), 0)
			return nil
		}
		there = resp.Responses[0].GetResponseRange().Kvs
	}
	value := there[0].Value
	layout, err := strconv.Atoi(string(value))
	if err != nil {
		return fmt.Errorf("open the store (%s): its layout mark is %q, a number was expected", s.place, value)
	}
	if layout > Layout {
		return fmt.Errorf("open the store (%s): %w", s.place, &tooNewError{layout})
	}
	return s.identify(ctx)
}

// Load reads every network. It returns those that cannot be read beside the others. The revision is the store's: it
// grows with every write, across restarts.
func (s *Store) Load(ctx context.Context) (records []model.Record, damaged []Damaged, revision int64, err error) {
	pointers, err := s.get(ctx, s.pointerKey(""), clientv3.WithPrefix())
	if err != nil {
		return nil, nil, 0, s.explain("read the networks", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved, s.unsure, s.looked = map[string]int64{}, map[string][]string{}, map[string]time.Time{}
	s.told = max(s.told, pointers.Header.Revision)
	for _, kv := range pointers.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.pointerKey(""))
		s.moved[name] = kv.ModRevision
		p, err := decodePointer(kv.Value)
		if e := s.layOver(name, p, kv.ModRevision); e != nil {
			records = append(records, e.record)
			continue
		}
		if err != nil {
			damaged = append(damaged, Damaged{name, p.Index, p.VNI, damage(name, err)})
			continue
		}
		record, err := s.read(ctx, name, p, pointers.Header.Revision)
		var failed *requestError
		switch {
		case errors.As(err, &failed):
			return nil, nil, 0, err
		case err != nil:
			damaged = append(damaged, Damaged{name, p.Index, p.VNI, damage(name, err)})
		default:
			records = append(records, record)
		}
	}
	for _, e := range s.entries(pointerKeys) {
		if s.moved[strings.TrimPrefix(e.Key, pointerKeys)] == 0 {
			s.drop(e)
		}
	}
	return records, damaged, s.told, nil
}

func damage(name string, err error) error {
	return fmt.Errorf("the stored record of network %s cannot be read: %w", name, err)
}

// read fetches the chunks one by one, at the revision that the pointer was read at.
func (s *Store) read(ctx context.Context, name string, p pointer, revision int64) (model.Record, error) {
	if p.Chunks > p.Size {
		return model.Record{}, errors.New("its entry is damaged: more parts than bytes")
	}
	var chunks [][]byte
	for i := range p.Chunks {
		resp, err := s.get(ctx, s.chunkKey(name, p.Write, i), clientv3.WithRev(revision))
		if err != nil {
			return model.Record{}, s.explain("read network "+name, err)
		}
		if len(resp.Kvs) == 0 {
			return model.Record{}, fmt.Errorf("part %d of %d is missing", i+1, p.Chunks)
		}
		chunks = append(chunks, resp.Kvs[0].Value)
	}
	return assemble(name, p, chunks)
}

func (s *Store) chunkKey(network, write string, i int) string {
	return fmt.Sprintf("%s%s/%06d", s.chunksKey(network), write, i)
}

// Delete forgets a network and returns the store's revision. A network that is not there is no error.
//
// That it was deleted, its index, and whose it was, are kept.
func (s *Store) Delete(ctx context.Context, name string, was model.Deleted) (int64, error) {
	s.makeRoom()
	s.mu.Lock()
	defer s.mu.Unlock()
	return patiently(ctx, func() (int64, error) {
		for {
			revision, again, err := s.delete(ctx, name, was)
			if !again {
				return revision, err
			}
		}
	})
}

// makeRoom has the reserve make room for what removes something: that is never refused.
func (s *Store) makeRoom() {
	if s.room != nil {
		s.room(mostUrgent) //nolint:errcheck // see above
	}
}

// delete tells whether it is worth trying again.
func (s *Store) delete(ctx context.Context, name string, was model.Deleted) (revision int64, again bool, err error) {
	key := s.pointerKey(name)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	operations := []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(s.chunksKey(name), clientv3.WithPrefix())}
	commit := func(operations ...clientv3.Op) (*clientv3.TxnResponse, error) {
		return s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", s.moved[name])).
			Then(operations...).Else(clientv3.OpGet(key)).Commit()
	}
	resp, err := commit(append(operations, s.bury(name, was))...)
	if errors.Is(err, rpctypes.ErrNoSpace) { // which takes nothing but deletions
		resp, err = commit(operations...)
	}
	switch {
	case err != nil:
		return 0, false, s.explain("delete network "+name, err)
	// an earlier attempt was carried out, its answer lost
	case resp.Succeeded, len(resp.Responses[0].GetResponseRange().Kvs) == 0:
		delete(s.moved, name)
		delete(s.unsure, name)
		s.stored(pointerKeys + name)
		return s.reach(ctx, resp.Header.Revision), false, nil
	case s.late(resp):
		return 0, true, nil
	}
	return 0, false, fmt.Errorf("delete network %s: %w", name, ErrConflict)
}

// Sweep removes chunks that a crash left behind: all except those of current records, and of records that cannot be
// read. Only one process may use the store meanwhile.
func (s *Store) Sweep(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pointers, err := s.get(ctx, s.pointerKey(""), clientv3.WithPrefix())
	if err != nil {
		return s.explain("sweep the store", err)
	}
	current := map[string]string{} // write by network; empty where it is not known
	for _, kv := range pointers.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.pointerKey(""))
		p, err := decodePointer(kv.Value)
		if current[name] = p.Write; err != nil {
			current[name] = ""
		}
	}
	root := s.chunksKey("")
	root = root[:len(root)-1]
	chunks, err := s.get(ctx, root, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return s.explain("sweep the store", err)
	}
	swept := map[string]bool{}
	for _, kv := range chunks.Kvs {
		name, rest, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
		write, _, _ := strings.Cut(rest, "/")
		keep, known := current[name]
		prefix := s.chunksKey(name) + write + "/"
		if known && (keep == "" || keep == write) || swept[prefix] {
			continue
		}
		swept[prefix] = true
		if err := s.deleteAll(ctx, prefix); err != nil {
			return s.explain("sweep the store", err)
		}
	}
	return nil
}

func (s *Store) deleteAll(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.kv.Delete(ctx, prefix, clientv3.WithPrefix())
	return err
}

func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.kv.Get(ctx, key, options...)
}

// requestError is a failure to talk to etcd, as opposed to damaged contents.
type requestError struct {
	what, place string
	err         error
}

func (e *requestError) Error() string { return fmt.Sprintf("%s (%s etcd): %v", e.what, e.place, e.err) }
func (e *requestError) Unwrap() error { return e.err }

// explain says for people what etcd's error means, and what they can do. The kinds of errors that callers tell apart
// stay in it.
func (s *Store) explain(what string, err error) error {
	switch {
	case errors.Is(err, ErrSilent):
	case errors.Is(err, rpctypes.ErrNoSpace):
		hint := "delete networks that are no longer needed"
		if s.reclaim == nil {
			hint = "compact and defragment the cluster, raise its quota, and disarm the alarm (`etcdctl alarm disarm`)"
		}
		err = fmt.Errorf("%w: %s; what runs goes on running", ErrFull, hint)
	case errors.Is(err, ErrOther):
		err = fmt.Errorf("%w (%s, made %s): nothing is read from it or written to it, and what runs goes on running. "+
			"Put the right one back in its place, and all goes on; or start the manager again (`polyplane down`, "+
			"`polyplane up`) to follow the one that is there: what it does not know stays as it is and is held", err,
			s.identity.ID, s.identity.Made.Local().Format(time.DateTime))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v: is the cluster up and does it have a leader? (%w)", requestTimeout, err)
	}
	return &requestError{what, s.place, err}
}
