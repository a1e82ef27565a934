package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polyplane/polyplane/model"
)

// MaxTogether is how many records one Put takes: what fits into one transaction of an etcd with its default settings.
// That takes 128 operations, and fewer inside an operation that is a transaction itself.
const MaxTogether = mostGroups * groupSize

const (
	groupSize  = 16 // records a nested transaction, each of at most four operations
	mostGroups = 63 // and the store's mark
	// mostConditions is how many pointers are compared one by one. Beyond, one comparison speaks for all that there
	// are.
	mostConditions = 50
	// mostTravelling bounds the chunks that travel with the pointers, in bytes, well below etcd's limit of a request.
	mostTravelling = 2 * chunkSize
)

// write is one record on its way into the store.
type write struct {
	name    string
	id      string // names the chunks
	sum     string // of the content
	pointer string
	chunks  [][]byte
}

// newWrite packs a record. Its chunks have names that no other write has: they are written before the pointer moves,
// while the record before is still the current one.
func newWrite(record model.Record) (*write, error) {
	name := record.Network.Name
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("store a network: %q is no name", name)
	}
	packed, err := encode(record)
	if err != nil {
		return nil, fmt.Errorf("store network %s: %w", name, err)
	}
	w := &write{name: name, id: fmt.Sprintf("%d-%s", record.Revision, rand.Text()), sum: sum(packed),
		chunks: split(packed, chunkSize)}
	value, err := json.Marshal(pointer{Layout: Layout, Revision: record.Revision, Index: record.Assigned.Index,
		VNI: HighestVNI(record.Assigned), Write: w.id, Chunks: len(w.chunks), Size: len(packed), Sum: w.sum})
	if err != nil {
		return nil, fmt.Errorf("store network %s: %w", name, err)
	}
	w.pointer = string(value)
	return w, nil
}

// HighestVNI is the highest tunnel number that a network was given.
func HighestVNI(a model.Assigned) uint32 {
	return slices.Max(append(a.VNIs(), 0))
}

// Put makes records current, all in one step, and returns the store's revision. After an error the records before are
// still current. The records are of different networks, at most MaxTogether. The errors wrap ErrConflict or ErrFull.
func (s *Store) Put(ctx context.Context, records ...model.Record) (int64, error) {
	if len(records) == 0 || len(records) > MaxTogether {
		return 0, fmt.Errorf("store %d networks: from 1 to %d can be stored together", len(records), MaxTogether)
	}
	what := "store network " + records[0].Network.Name
	if len(records) > 1 {
		what = fmt.Sprintf("store %d networks, %s first", len(records), records[0].Network.Name)
	}
	if s.room != nil {
		if err := s.room(urgencyOf(ctx)); err != nil {
			return 0, &requestError{what, s.place, err}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	within, cancel := s.inHaste(ctx)
	defer cancel()
	var unsure *unsureError // of any try
	revision, err := patiently(within, func() (int64, error) {
		revision, err := s.put(within, what, records)
		errors.As(err, &unsure)
		if errors.Is(err, ErrFull) && s.reclaim != nil && s.reclaim(ctx) == nil {
			revision, err = s.put(ctx, what, records)
		}
		return revision, err
	})
	if err != nil && s.hurried(ctx) && laidAside(err) {
		return s.layRecords(records, err)
	}
	if last := (*unsureError)(nil); err != nil && unsure != nil && !errors.As(err, &last) {
		err = &unsureError{err}
	}
	return revision, err
}

// patiently tries a change again for a while when a member of the cluster, or its leader, is gone. The next member
// carries out what was not carried out; what was carried out is recognised as ours.
func patiently(ctx context.Context, change func() (int64, error)) (int64, error) {
	const first, last, tries = 50 * time.Millisecond, time.Second, 10
	for wait, left := first, tries; ; wait, left = min(2*wait, last), left-1 {
		revision, err := change()
		if err == nil || left == 0 || !passing(err) {
			return revision, err
		}
		select {
		case <-ctx.Done():
			return revision, err
		case <-time.After(wait):
		}
	}
}

// passing tells of an error that another member, or the next leader, may not make.
func passing(err error) bool {
	if errors.Is(err, ErrSilent) {
		return false
	}
	if answered, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return answered.Code() == codes.Unavailable
	}
	var refused interface{ GRPCStatus() *status.Status }
	return errors.As(err, &refused) && refused.GRPCStatus().Code() == codes.Unavailable
}

// put writes the chunks, and then moves all pointers in one transaction, if nobody else has moved one meanwhile. The
// caller holds the lock of records.
func (s *Store) put(ctx context.Context, what string, records []model.Record) (int64, error) {
	writes := make([]*write, len(records))
	last := 0 // bytes of all last chunks
	for i, r := range records {
		var err error
		if writes[i], err = newWrite(r); err != nil {
			return 0, err
		}
		last += len(writes[i].chunks[len(writes[i].chunks)-1])
	}
	// The last chunks travel with the pointers: records of one chunk are one request and one write to disk.
	travelling := 0
	if last <= mostTravelling {
		travelling = 1
	}
	var anchor *write // the first with chunks that were written before the pointers
	for _, w := range writes {
		for i, chunk := range w.chunks[:len(w.chunks)-travelling] {
			anchor = cmp.Or(anchor, w)
			if err := s.putChunk(ctx, s.chunkKey(w.name, w.id, i), chunk); err != nil {
				s.discard(ctx, anchor, writes)
				return 0, s.explain(what, err)
			}
		}
	}
	conditions := s.unmoved(writes)
	if anchor != nil { // should this be carried out after we gave it up, its chunks may have been discarded
		conditions = append(conditions,
			clientv3.Compare(clientv3.CreateRevision(s.chunkKey(anchor.name, anchor.id, 0)), ">", 0))
	}
	commit, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.kv.Txn(commit).If(conditions...).Then(s.groups(writes, travelling)...).
		Else(clientv3.OpGet(s.pointerKey(""), clientv3.WithPrefix())).Commit()
	switch {
	// nothing of it was carried out, and nothing can be looked up
	case errors.Is(err, ErrOther), errors.Is(err, ErrSilent):
		return 0, s.explain(what, err)
	case err != nil:
		return s.settle(ctx, what, anchor, writes, err)
	}
	if !resp.Succeeded {
		s.discard(ctx, anchor, writes)
		if s.late(resp) {
			return s.put(ctx, what, records)
		}
		return 0, fmt.Errorf("%s: %w", what, ErrConflict)
	}
	s.done(writes, resp.Header.Revision)
	return s.reach(ctx, resp.Header.Revision), nil
}

// unmoved demands that nobody else has moved the writes' pointers.
func (s *Store) unmoved(writes []*write) []clientv3.Cmp {
	var conditions []clientv3.Cmp
	if len(writes) <= mostConditions {
		for _, w := range writes {
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(s.pointerKey(w.name)),
				"=", s.moved[w.name]))
		}
		return conditions
	}
	latest := int64(0)
	for _, moved := range s.moved {
		latest = max(latest, moved)
	}
	return append(conditions, clientv3.Compare(clientv3.ModRevision(s.pointerKey("")), "<", latest+1).WithPrefix())
}

// groups are the operations that make the writes current, and remove the networks' other chunks.
func (s *Store) groups(writes []*write, travelling int) []clientv3.Op {
	var groups, group []clientv3.Op
	for i, w := range writes {
		all := s.chunksKey(w.name)
		ours := all + w.id + "/"
		if travelling > 0 {
			last := len(w.chunks) - 1
			group = append(group, clientv3.OpPut(s.chunkKey(w.name, w.id, last), string(w.chunks[last])))
		}
		group = append(group, clientv3.OpPut(s.pointerKey(w.name), w.pointer),
			clientv3.OpDelete(all, clientv3.WithRange(ours)),
			clientv3.OpDelete(clientv3.GetPrefixRangeEnd(ours), clientv3.WithRange(clientv3.GetPrefixRangeEnd(all))))
		if (i+1)%groupSize == 0 || i == len(writes)-1 {
			groups, group = append(groups, clientv3.OpTxn(nil, group, nil)), nil
		}
	}
	return groups
}

// done notes that the writes are current.
func (s *Store) done(writes []*write, revision int64) {
	for _, w := range writes {
		s.moved[w.name] = revision
		delete(s.unsure, w.name)
		delete(s.looked, w.name)
		s.stored(pointerKeys + w.name)
	}
}

// late tells whether earlier writes of ours, given up and carried out after all, are what stands in the way of a
// change. The next attempt then replaces them.
func (s *Store) late(refused *clientv3.TxnResponse) bool {
	found := false
	for _, kv := range refused.Responses[0].GetResponseRange().Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.pointerKey(""))
		if kv.ModRevision == s.moved[name] {
			continue
		}
		if p, err := decodePointer(kv.Value); err != nil || !slices.Contains(s.unsure[name], p.Sum) {
			return false
		}
		s.moved[name], found = kv.ModRevision, true
		delete(s.unsure, name)
	}
	return found
}

// discard removes the chunks of writes that are not current. They take room, which a full store has none of; where even
// this fails, the networks' next writes or the next start remove them.
func (s *Store) discard(ctx context.Context, anchor *write, writes []*write) {
	// The transaction demands the anchor's chunks: once they are gone it cannot be carried out any more.
	if anchor == nil || s.brief(ctx) || !s.discardOne(anchor) {
		return
	}
	for _, w := range writes {
		if w != anchor {
			s.discardOne(w)
		}
	}
}

// discardOne tells whether the write's chunks are gone.
func (s *Store) discardOne(w *write) bool {
	key := s.pointerKey(w.name)
	resp, err := s.get(context.Background(), key)
	if err != nil {
		return false
	}
	moved := int64(0)
	if len(resp.Kvs) == 1 {
		if p, err := decodePointer(resp.Kvs[0].Value); err != nil || p.Write == w.id {
			return false
		}
		moved = resp.Kvs[0].ModRevision
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	// Only while the pointer stays there: the write's own transaction may still be on its way.
	gone, err := s.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", moved)).
		Then(clientv3.OpDelete(s.chunksKey(w.name)+w.id+"/", clientv3.WithPrefix())).Commit()
	return err == nil && gone.Succeeded
}

func (s *Store) putChunk(ctx context.Context, key string, chunk []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.kv.Put(ctx, key, string(chunk))
	return err
}

// mostUnsure is how many earlier contents of a network, or a document, are remembered whose answers were lost.
const mostUnsure = 1023

// alsoUnsure adds what got no answer. The same content counts once, however often it was tried.
func alsoUnsure(before []string, sum string) []string {
	if slices.Contains(before, sum) {
		return before
	}
	return append(before[max(0, len(before)-mostUnsure):], sum)
}

// settle finds out whether a transaction whose answer was lost was carried out. If it was, then all of it was. What is
// brief does not wait for that.
func (s *Store) settle(ctx context.Context, what string, anchor *write, writes []*write, cause error) (int64, error) {
	if !s.brief(ctx) {
		resp, err := s.get(context.Background(), s.pointerKey(writes[0].name))
		if err == nil && len(resp.Kvs) == 1 {
			if p, err := decodePointer(resp.Kvs[0].Value); err == nil && p.Write == writes[0].id {
				s.done(writes, resp.Kvs[0].ModRevision)
				return s.reach(ctx, resp.Kvs[0].ModRevision), nil
			}
		}
	}
	for _, w := range writes {
		if errors.Is(cause, rpctypes.ErrNoSpace) {
			break // it was refused, so it cannot come late
		}
		// Whichever of them is carried out late, the others no longer can be: they demand that the pointer has not
		// moved.
		s.unsure[w.name] = alsoUnsure(s.unsure[w.name], w.sum)
	}
	s.discard(ctx, anchor, writes)
	err := s.explain(what, cause)
	if unanswered(cause) {
		err = &unsureError{err}
	}
	return 0, err
}

// unanswered tells of an error after which nobody knows whether a request was carried out.
func unanswered(err error) bool {
	var refused interface{ GRPCStatus() *status.Status }
	return errors.Is(err, context.DeadlineExceeded) || passing(err) ||
		errors.As(err, &refused) && refused.GRPCStatus().Code() == codes.DeadlineExceeded
}

// unsureError tells of a write without an answer.
type unsureError struct{ error }

func (e *unsureError) Error() string {
	return e.error.Error() + ". It may have been written all the same: the manager takes it back once the store " +
		"answers; if the manager is started again before, it counts"
}

func (e *unsureError) Unwrap() error { return e.error }
