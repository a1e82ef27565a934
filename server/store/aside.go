package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
)

// An external cluster may take no writes: its space is used up, or it does not answer. Whoever attacks others must be
// stopped all the same. So what is urgent is laid aside then, in a directory on the manager's machine. Whoever stores
// it goes on as if the store had it. The next start reads it beside the store, which gets it as soon as it takes it.
//
// What is laid aside is believed only beside the store that it was for, and only while what the store has of it is what
// it was made from.

const (
	// hurriedTimeout is how long the store may take for what is urgent before that is laid aside.
	hurriedTimeout = 3 * time.Second
	asideSuffix    = ".json"
)

// entry is what is laid aside for one key.
type entry struct {
	Key   string `json:"key"`   // pointerKeys or documentKeys, and a name
	Store string `json:"store"` // the store's ID
	// Revision is what the nodes are told as the store's.
	Revision int64  `json:"revision,omitempty"`
	Value    []byte `json:"value"`
	// Base is the revision of etcd that last moved the pointer of the network, or the document, as far as is known
	// here; 0 if there was none. Writes are the sums of what we wrote without an answer, which may still come.
	Base   int64    `json:"base,omitempty"`
	Writes []string `json:"writes,omitempty"`
	// Sum is the SHA-256 of the value.
	Sum string `json:"sum"`

	record model.Record
	why    string // the store did not take it
}

// aside is what is laid aside, by key.
type aside struct {
	dir string // empty where there is no such place

	// mu guards the two below, for readers. Files are written before it is taken: what keeps two writers of a key apart
	// is the store's lock of records, or of documents, which may be held while this one is taken.
	mu        sync.Mutex
	all       map[string]*entry
	overtaken []string // keys
}

// hurried tells that a write must not wait for the store.
func (s *Store) hurried(ctx context.Context) bool {
	return s.aside.dir != "" && urgencyOf(ctx) != ordinary
}

// hasteKey marks writes of our own that others must not wait for: they are tried again later.
type hasteKey struct{}

func hasten(ctx context.Context) context.Context { return context.WithValue(ctx, hasteKey{}, true) }

// brief tells that after a write without an answer nothing is looked up or tidied up.
func (s *Store) brief(ctx context.Context) bool {
	return s.hurried(ctx) || ctx.Value(hasteKey{}) != nil
}

// inHaste bounds how long the store may take for a brief write.
func (s *Store) inHaste(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.brief(ctx) {
		return context.WithTimeout(ctx, hurriedTimeout)
	}
	return ctx, func() {}
}

// laidAside tells of an error for which what is urgent is laid aside: the store takes nothing, or says nothing.
func laidAside(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, ErrSilent) || unanswered(err)
}

// TakesNothing tells of an error of a store that others keep, which takes nothing or says nothing.
func (s *Store) TakesNothing(err error) bool { return s.External() && laidAside(err) }

// openAside reads what was laid aside for this store. What is for another one stays where it is. A store without an
// identity, which has had no room for one, cannot be told from others: for it nothing is laid aside.
func (s *Store) openAside(dir string) error {
	if dir == "" || s.identity.ID == "" {
		return nil
	}
	s.aside.dir, s.aside.all = dir, map[string]*entry{}
	paths, err := filepath.Glob(filepath.Join(dir, "*"+asideSuffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		var e entry
		if err == nil {
			err = json.Unmarshal(b, &e)
		}
		if err == nil && e.Sum != sum(e.Value) {
			err = errors.New("its checksum does not match")
		}
		if name, is := strings.CutPrefix(e.Key, pointerKeys); is && err == nil {
			if e.record, err = decode(e.Value); err == nil && e.record.Network.Name != name {
				err = fmt.Errorf("it holds the network %q", e.record.Network.Name)
			}
		}
		if err != nil {
			return fmt.Errorf("%s, which has what was decided while the store took nothing, cannot be read: %w. If it "+
				"is lost, put it aside (`mv %s %s.damaged`), start, and see whether somebody runs who was stopped or "+
				"cut off", path, err, path, path)
		}
		if e.Store == s.identity.ID {
			e.why = "it was laid aside before this start"
			s.aside.all[e.Key] = &e
			if name, is := strings.CutPrefix(e.Key, documentKeys); is {
				s.versions[name] = version{e.Base, e.Writes}
			}
		}
	}
	return nil
}

// pathOf is where an entry is: names of documents have owners' names in them.
func (a *aside) pathOf(key, store string) string {
	h := sha256.Sum256([]byte(store + "\n" + key))
	return filepath.Join(a.dir, hex.EncodeToString(h[:12])+asideSuffix)
}

// lay lays something aside, and returns when it is on the disk. The caller holds the lock of records, or of documents.
func (s *Store) lay(e *entry, cause error) error {
	e.Store, e.Sum, e.why = s.identity.ID, sum(e.Value), shortCause(cause)
	b, err := json.Marshal(e)
	if err == nil {
		err = os.MkdirAll(s.aside.dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(s.aside.pathOf(e.Key, e.Store), append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("%w; nor can it be kept on this machine until then: %w", cause, err)
	}
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	s.aside.all[e.Key] = e
	return nil
}

func shortCause(err error) string {
	switch {
	case errors.Is(err, ErrFull):
		return "its space is used up"
	default:
		return "it does not answer"
	}
}

// stored forgets what was laid aside for a key: the store has it, or something newer. The caller holds the lock of
// records, or of documents, so that nothing newer is laid aside meanwhile.
func (s *Store) stored(key string) {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	e := s.aside.all[key]
	delete(s.aside.all, key)
	if e != nil && os.Remove(s.aside.pathOf(key, e.Store)) == nil {
		durable.Sync(s.aside.dir) //nolint:errcheck // what comes back after a power cut, the store has moved beyond
	}
}

// beside is what is laid aside for a key, or nil.
func (s *Store) beside(key string) *entry {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	return s.aside.all[key]
}

// entries are all that is laid aside whose keys begin so, in order.
func (s *Store) entries(prefix string) (all []*entry) {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.aside.all)) {
		if strings.HasPrefix(key, prefix) {
			all = append(all, s.aside.all[key])
		}
	}
	return all
}

// Aside says what is kept on this machine until the store takes it, and why; empty if that is nothing.
func (s *Store) Aside() string {
	all := s.entries("")
	if len(all) == 0 {
		return ""
	}
	what := "a decision is"
	if len(all) > 1 {
		what = fmt.Sprintf("%d decisions are", len(all))
	}
	return fmt.Sprintf("%s carried out, and kept in %s until the store (%s) takes it: %s", what, s.aside.dir, s.place,
		all[len(all)-1].why)
}

// AsideOf tells why the store has not taken what was decided of a network last; empty if it has.
func (s *Store) AsideOf(network string) string {
	if e := s.beside(pointerKeys + network); e != nil {
		return fmt.Sprintf("it is carried out, and kept in %s until the store (%s) takes it: %s", s.aside.dir, s.place,
			e.why)
	}
	return ""
}

// layRecords lays records aside that the store has not taken: all, or none. The caller holds the lock.
func (s *Store) layRecords(records []model.Record, cause error) (int64, error) {
	revision := s.told + 1
	all, before := make([]*entry, len(records)), make([]*entry, len(records))
	for i, r := range records {
		name := r.Network.Name
		packed, err := encode(r)
		if err != nil {
			return 0, errors.Join(cause, err)
		}
		all[i], before[i] = &entry{Key: pointerKeys + name, Revision: revision, Value: packed, Base: s.moved[name],
			Writes: slices.Clone(s.unsure[name]), record: r}, s.beside(pointerKeys+name)
	}
	for i, e := range all {
		err := s.lay(e, cause)
		if err == nil {
			continue
		}
		for k := range i {
			s.stored(all[k].Key)
			if before[k] != nil {
				again := *before[k]
				if failed := s.lay(&again, cause); failed != nil {
					err = errors.Join(err, fmt.Errorf("what was kept before of network %s is lost: %w",
						again.record.Network.Name, failed))
				}
			}
		}
		return 0, err
	}
	s.told = revision
	return revision, nil
}

// layOver puts what was laid aside in the place of a network's record in the store, of which p is the pointer. It
// returns nil if there is nothing, or if another has changed the network since: then that counts.
func (s *Store) layOver(name string, p pointer, moved int64) *entry {
	e := s.beside(pointerKeys + name)
	switch {
	case e == nil:
		return nil
	case p.Sum == e.Sum: // it was stored just before the last manager ended
		s.stored(e.Key)
		return nil
	case moved == e.Base, slices.Contains(e.Writes, p.Sum):
		s.unsure[name] = slices.Clone(e.Writes)
		s.told = max(s.told, e.Revision)
		return e
	}
	s.drop(e)
	return nil
}

// drop puts away what cannot count any more, since somebody else has changed that in the store.
func (s *Store) drop(e *entry) {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	path := s.aside.pathOf(e.Key, e.Store)
	os.Rename(path, strings.TrimSuffix(path, asideSuffix)+".overtaken") //nolint:errcheck // it is for people to look at
	delete(s.aside.all, e.Key)
	s.aside.overtaken = append(s.aside.overtaken, e.Key)
}

// Overtaken are the networks and documents of which something was laid aside that does not count, since another manager
// has changed them in the store. They are told once.
func (s *Store) Overtaken() (networks, documents []string) {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	for _, key := range s.aside.overtaken {
		if name, is := strings.CutPrefix(key, documentKeys); is {
			documents = append(documents, name)
		} else {
			networks = append(networks, strings.TrimPrefix(key, pointerKeys))
		}
	}
	s.aside.overtaken = nil
	return networks, documents
}

// Takes tells why the store takes no writes now, within a few seconds and without anybody's lock: nobody else waits for
// what is only tried.
func (s *Store) Takes(ctx context.Context) error {
	const what = "look whether the store takes writes"
	if s.room != nil {
		if err := s.room(urgencyOf(ctx)); err != nil {
			return &requestError{what, s.place, err}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, hurriedTimeout)
	defer cancel()
	if _, err := s.kv.Put(ctx, s.layoutKey(), fmt.Sprint(Layout)); err != nil {
		return s.explain(what, err)
	}
	return nil
}

// StoreAside has the store take what was laid aside. What it refuses for a reason of its own does not hold up the
// others. The error tells why it has not taken all of it.
func (s *Store) StoreAside(ctx context.Context) error {
	if s.Silent() != nil || s.Aside() == "" {
		return s.Silent()
	}
	if err := s.Takes(ctx); err != nil {
		return err
	}
	var refused error
	for _, e := range s.entries("") {
		store := s.storeRecord
		if strings.HasPrefix(e.Key, documentKeys) {
			store = s.storeLaidDocument
		}
		err := store(ctx, e)
		refused = errors.Join(refused, err)
		if laidAside(err) {
			break
		}
	}
	return refused
}

func (s *Store) storeRecord(ctx context.Context, e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside(e.Key) != e {
		return nil // meanwhile there is a newer one
	}
	ctx, cancel := context.WithTimeout(ctx, hurriedTimeout)
	defer cancel()
	_, err := s.put(hasten(ctx), "store network "+e.record.Network.Name, []model.Record{e.record})
	if errors.Is(err, ErrConflict) {
		s.drop(e)
	}
	return err
}

// reach has the store's revision come to what nodes were told while it took nothing: one that is lower after a restart
// would count as an older copy. It returns what nodes are told, which is never lower. The caller holds the lock.
func (s *Store) reach(ctx context.Context, revision int64) int64 {
	for revision < s.told {
		ctx, cancel := context.WithTimeout(ctx, hurriedTimeout)
		resp, err := s.kv.Put(ctx, s.layoutKey(), fmt.Sprint(Layout))
		cancel()
		if err != nil {
			break // the next write goes on with it
		}
		revision = resp.Header.Revision
	}
	s.told = max(s.told, revision)
	return s.told
}

// withAside are all keys for a backup, with what was laid aside in the place of what the store has.
func (s *Store) withAside(lines []backupLine) ([]backupLine, error) {
	over := map[string][]byte{}
	var gone []string // what the keys begin with that are replaced
	for _, e := range s.entries("") {
		if !strings.HasPrefix(e.Key, pointerKeys) {
			over[e.Key] = e.Value
			continue
		}
		w, err := newWrite(e.record)
		if err != nil {
			return nil, err
		}
		gone = append(gone, strings.TrimPrefix(s.chunksKey(w.name), s.prefix))
		over[e.Key] = []byte(w.pointer)
		for i, chunk := range w.chunks {
			over[strings.TrimPrefix(s.chunkKey(w.name, w.id, i), s.prefix)] = chunk
		}
	}
	if len(over) == 0 {
		return lines, nil
	}
	lines = slices.DeleteFunc(lines, func(l backupLine) bool {
		_, replaced := over[l.Key]
		return replaced || slices.ContainsFunc(gone, func(p string) bool { return strings.HasPrefix(l.Key, p) })
	})
	for key, value := range over {
		lines = append(lines, backupLine{Key: key, Value: value})
	}
	slices.SortFunc(lines, func(a, b backupLine) int { return strings.Compare(a.Key, b.Key) })
	return lines, nil
}
