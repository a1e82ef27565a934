package store

import (
	"context"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/model"
)

// What administrators have decided about elements that their owners have deleted is one value for each owner. The
// manager bounds how much there is for an owner. Nobody bounds the number of owners, and etcd takes at most 1.5 MB in
// one value.
//
// Earlier versions had one value for all. It is read, and goes with the first change.
const restraintsDocument = "restraints"

func restraintsOf(owner string) string { return restraintsDocument + "/" + owner }

// Restraints reads what administrators have decided about elements that their owners have deleted.
func (s *Store) Restraints(ctx context.Context) (out []model.Restraint, err error) {
	values, err := s.restraints(ctx)
	if err != nil {
		return nil, err
	}
	for name, of := range values {
		for _, r := range of {
			// Of a change that was cut short, an owner's own value counts.
			if _, own := values[restraintsOf(r.Owner)]; !own || name != restraintsDocument {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// restraints are all values, by their documents' names.
func (s *Store) restraints(ctx context.Context) (map[string][]model.Restraint, error) {
	s.documents.Lock()
	defer s.documents.Unlock()
	resp, err := s.get(ctx, s.documentKey(restraintsDocument), clientv3.WithPrefix())
	if err != nil {
		return nil, s.explain("read the "+restraintsDocument, err)
	}
	all, there := map[string][]model.Restraint{}, map[string][]*mvccpb.KeyValue{}
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.documentKey(""))
		there[name] = []*mvccpb.KeyValue{kv}
		s.readOver(name, there[name])
		var of []model.Restraint
		if err := decodeDocument(name, kv.Value, &of); err != nil {
			return nil, err
		}
		all[name] = of
	}
	for _, e := range s.entries(documentKeys + restraintsDocument) {
		var of []model.Restraint
		name := strings.TrimPrefix(e.Key, documentKeys)
		if s.readOver(name, there[name]) == nil {
			continue
		}
		if err := decodeDocument(name, e.Value, &of); err != nil {
			return nil, err
		}
		all[name] = of
	}
	return all, nil
}

// PutRestraints stores them.
func (s *Store) PutRestraints(ctx context.Context, restraints []model.Restraint) error {
	was, err := s.restraints(ctx)
	if err != nil {
		return err
	}
	next := map[string][]model.Restraint{}
	for name := range was {
		next[name] = nil
	}
	for _, r := range was[restraintsDocument] { // whose value may become empty
		next[restraintsOf(r.Owner)] = nil
	}
	for _, r := range restraints {
		next[restraintsOf(r.Owner)] = append(next[restraintsOf(r.Owner)], r)
	}
	delete(next, restraintsDocument)
	_, old := was[restraintsDocument]
	for name, of := range next {
		switch there, known := was[name]; {
		case known && slices.Equal(there, of):
		case len(of) == 0 && !old:
			err = s.forget(ctx, name)
		default:
			err = s.putDocument(ctx, name, of)
		}
		if err != nil {
			return err
		}
	}
	if old {
		err = s.forget(ctx, restraintsDocument)
	}
	return err
}

func (s *Store) forget(ctx context.Context, document string) error {
	s.documents.Lock()
	defer s.documents.Unlock()
	if err := s.deleteKey(ctx, s.documentKey(document)); err != nil {
		return s.explain("delete the "+document, err)
	}
	delete(s.versions, document)
	s.stored(documentKeys + document)
	return nil
}
