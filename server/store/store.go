// Package store keeps what polyplane must remember – one record a network, the substrate, the layout's version – in
// etcd: embedded in this process, or an external cluster.
//
// A record is compressed, cut into chunks (etcd takes at most 1.5 MiB a request) under a name of their own, and made
// current by one pointer, in one transaction that demands that nobody else has moved the pointer and that removes every
// other chunk of the network. A crash before that transaction leaves the old record current.
package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	// requestTimeout is how long one request may take; an embedded store answers in milliseconds, a cluster may be
	// electing a leader.
	requestTimeout = 15 * time.Second
)

// DefaultPrefix is what all keys begin with.
const DefaultPrefix = "/polyplane/"

var (
	// ErrConflict tells that somebody else has written the network since this process read it.
	ErrConflict = errors.New("another manager has changed the network in the store")
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

// Store is a connection to etcd. Its methods may be called by several goroutines, but only one process may use the
// same keys at a time: the pointer's compare makes a second one fail, not work.
type Store struct {
	kv      clientv3.KV
	prefix  string
	place   string                      // what errors and `ping` call it
	reclaim func(context.Context) error // frees space after ErrFull; nil when that is not ours to do
	size    func() (file, used int64)   // of the database, in bytes; nil when that is not known here
	close   func() error
	closing sync.Once
	closed  error

	mu sync.Mutex
	// moved holds, by network, the revision of etcd that last moved the pointer; unsure the write of ours that was given
	// up without an answer, and may be carried out still.
	moved  map[string]int64
	unsure map[string]string
}

// Place is "embedded", or the URLs of the external cluster.
func (s *Store) Place() string { return s.place }

// Close ends the connection, and etcd where it is embedded. Further calls do nothing.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) pointerKey(network string) string { return s.prefix + "networks/" + network }

// chunksKey ends with a slash, which no network's name contains, so that no network's chunks are below another's.
func (s *Store) chunksKey(network string) string { return s.prefix + "records/" + network + "/" }

func (s *Store) documentKey(name string) string { return s.prefix + "documents/" + name }

func (s *Store) layoutKey() string { return s.prefix + "layout" }

// checkLayout refuses a store of a newer layout and marks a new one.
func (s *Store) checkLayout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := s.layoutKey()
	resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, strconv.Itoa(Layout))).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			return s.explain("open the store", err)
		}
		return nil // a full store has its mark already, or nothing to be read wrongly
	}
	if resp.Succeeded {
		return nil
	}
	value := resp.Responses[0].GetResponseRange().Kvs[0].Value
	layout, err := strconv.Atoi(string(value))
	if err != nil {
		return fmt.Errorf("open the store (%s): its layout mark is %q, a number was expected", s.place, value)
	}
	if layout > Layout {
		return fmt.Errorf("open the store (%s): %w", s.place, &tooNewError{layout})
	}
	return nil
}

// Load reads every network. Those that cannot be read are returned beside the others. The revision is the store's: it
// grows with every write to it, across restarts.
func (s *Store) Load(ctx context.Context) (records []model.Record, damaged []Damaged, revision int64, err error) {
	pointers, err := s.get(ctx, s.pointerKey(""), clientv3.WithPrefix())
	if err != nil {
		return nil, nil, 0, s.explain("read the networks", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved, s.unsure = map[string]int64{}, map[string]string{}
	for _, kv := range pointers.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.pointerKey(""))
		s.moved[name] = kv.ModRevision
		p, err := decodePointer(kv.Value)
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
	return records, damaged, pointers.Header.Revision, nil
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

// Put makes the record current and returns the store's revision. On an error the one before is current still. The
// errors wrap ErrConflict, ErrFull.
func (s *Store) Put(ctx context.Context, record model.Record) (int64, error) {
	name := record.Network.Name
	what := "store network " + name
	if name == "" || strings.Contains(name, "/") {
		return 0, fmt.Errorf("store a network: %q is no name", name)
	}
	packed, err := encode(record)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := s.put(ctx, record, packed)
	if errors.Is(err, ErrFull) && s.reclaim != nil {
		if s.reclaim(ctx) == nil {
			revision, err = s.put(ctx, record, packed)
		}
	}
	return revision, err
}

func (s *Store) put(ctx context.Context, record model.Record, packed []byte) (int64, error) {
	name := record.Network.Name
	what := "store network " + name
	chunks := split(packed, chunkSize)
	p := pointer{Layout: Layout, Revision: record.Revision, Index: record.Assigned.Index, VNI: HighestVNI(record.Assigned),
		Write: fmt.Sprintf("%d-%s", record.Revision, rand.Text()), Chunks: len(chunks), Size: len(packed), Sum: sum(packed)}
	value, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	// The last chunk travels with the pointer: a record of one chunk is one request and one write to disk.
	last := len(chunks) - 1
	for i, chunk := range chunks[:last] {
		if err := s.putChunk(ctx, s.chunkKey(name, p.Write, i), chunk); err != nil {
			s.discard(name, p.Write)
			return 0, s.explain(what, err)
		}
	}
	key, all := s.pointerKey(name), s.chunksKey(name)
	ours := all + p.Write + "/"
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.moved[name])}
	if last > 0 { // should this be carried out after we gave it up, its other chunks may have been discarded
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.chunkKey(name, p.Write, 0)), ">", 0))
	}
	commit, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.kv.Txn(commit).
		If(conditions...).
		Then(
			clientv3.OpPut(s.chunkKey(name, p.Write, last), string(chunks[last])),
			clientv3.OpPut(key, string(value)),
			clientv3.OpDelete(all, clientv3.WithRange(ours)),
			clientv3.OpDelete(clientv3.GetPrefixRangeEnd(ours), clientv3.WithRange(clientv3.GetPrefixRangeEnd(all))),
		).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return s.settle(what, name, p.Write, err)
	}
	if !resp.Succeeded {
		s.discard(name, p.Write)
		if s.late(name, resp) {
			return s.put(ctx, record, packed)
		}
		return 0, fmt.Errorf("%s: %w", what, ErrConflict)
	}
	s.moved[name] = resp.Header.Revision
	delete(s.unsure, name)
	return resp.Header.Revision, nil
}

// late tells whether what stands in the way of a write is an earlier one of ours, given up and carried out after all;
// the next attempt then replaces it.
func (s *Store) late(name string, refused *clientv3.TxnResponse) bool {
	kvs := refused.Responses[0].GetResponseRange().Kvs
	if len(kvs) != 1 {
		return false
	}
	p, err := decodePointer(kvs[0].Value)
	if err != nil || p.Write != s.unsure[name] {
		return false
	}
	s.moved[name] = kvs[0].ModRevision
	delete(s.unsure, name)
	return true
}

// discard removes the chunks of a write that is not current. They take room, which a full store has none of; where even
// this fails, the network's next write or the next start removes them.
func (s *Store) discard(name, write string) {
	key := s.pointerKey(name)
	resp, err := s.get(context.Background(), key)
	if err != nil {
		return
	}
	moved := int64(0)
	if len(resp.Kvs) == 1 {
		if p, err := decodePointer(resp.Kvs[0].Value); err != nil || p.Write == write {
			return
		}
		moved = resp.Kvs[0].ModRevision
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	// Only while the pointer stays there: the write's own transaction may still be on its way.
	_, _ = s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", moved)).
		Then(clientv3.OpDelete(s.chunksKey(name)+write+"/", clientv3.WithPrefix())).Commit()
}

// HighestVNI is the highest tunnel number that a network was given.
func HighestVNI(a model.Assigned) uint32 {
	highest := uint32(0)
	for _, l := range a.Links {
		highest = max(highest, l.VNI)
	}
	return highest
}

func (s *Store) putChunk(ctx context.Context, key string, chunk []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.kv.Put(ctx, key, string(chunk))
	return err
}

// settle finds out whether a transaction whose answer got lost was carried out.
func (s *Store) settle(what, name, write string, cause error) (int64, error) {
	resp, err := s.get(context.Background(), s.pointerKey(name))
	if err == nil && len(resp.Kvs) == 1 {
		if p, err := decodePointer(resp.Kvs[0].Value); err == nil && p.Write == write {
			s.moved[name] = resp.Kvs[0].ModRevision
			return resp.Kvs[0].ModRevision, nil
		}
	}
	s.unsure[name] = write
	s.discard(name, write)
	return 0, s.explain(what, cause)
}

// Delete forgets a network and returns the store's revision. A network that is not there is no error.
func (s *Store) Delete(ctx context.Context, name string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		revision, again, err := s.delete(ctx, name)
		if !again {
			return revision, err
		}
	}
}

// delete tells whether it is worth trying again.
func (s *Store) delete(ctx context.Context, name string) (revision int64, again bool, err error) {
	key := s.pointerKey(name)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", s.moved[name])).
		Then(clientv3.OpDelete(key), clientv3.OpDelete(s.chunksKey(name), clientv3.WithPrefix())).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return 0, false, s.explain("delete network "+name, err)
	case resp.Succeeded, len(resp.Responses[0].GetResponseRange().Kvs) == 0: // an earlier attempt was carried out, its answer lost
		delete(s.moved, name)
		delete(s.unsure, name)
		return resp.Header.Revision, false, nil
	case s.late(name, resp):
		return 0, true, nil
	}
	return 0, false, fmt.Errorf("delete network %s: %w", name, ErrConflict)
}

// Sweep removes chunks that a crash left behind: all but those of current records, and of records that cannot be read.
// Only one process may use the store meanwhile.
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

func (s *Store) explain(what string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		hint := "delete networks that are no longer needed"
		if s.reclaim == nil {
			hint = "compact and defragment the cluster, raise its quota, and disarm the alarm (`etcdctl alarm disarm`)"
		}
		err = fmt.Errorf("%w: %s; what runs goes on running", ErrFull, hint)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v: is the cluster up and does it have a leader? (%w)", requestTimeout, err)
	}
	return &requestError{what, s.place, err}
}
