package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/polyplane/polyplane/model"
)

const (
	substrateDocument = "substrate"
	quotasDocument    = "quotas"
)

// Quotas reads the quotas; none when none were stored yet.
func (s *Store) Quotas(ctx context.Context) (out model.Quotas, err error) {
	_, err = s.document(ctx, quotasDocument, &out)
	return out, err
}

// PutQuotas stores the quotas.
func (s *Store) PutQuotas(ctx context.Context, quotas model.Quotas) error {
	return s.putDocument(ctx, quotasDocument, quotas)
}

// Substrate reads the substrate; false tells that none was stored yet.
func (s *Store) Substrate(ctx context.Context) (model.Substrate, bool, error) {
	var out model.Substrate
	found, err := s.document(ctx, substrateDocument, &out)
	return out, found, err
}

// PutSubstrate stores the substrate.
func (s *Store) PutSubstrate(ctx context.Context, substrate model.Substrate) error {
	return s.putDocument(ctx, substrateDocument, substrate)
}

// document is what a small document is wrapped in.
type document struct {
	Layout int             `json:"layout"`
	Value  json.RawMessage `json:"value"`
}

func (s *Store) document(ctx context.Context, name string, out any) (bool, error) {
	if e := s.beside(documentKeys + name); e != nil {
		return true, decodeDocument(name, e.Value, out)
	}
	resp, err := s.get(ctx, s.documentKey(name))
	if err != nil {
		return false, s.explain("read the "+name, err)
	}
	if len(resp.Kvs) == 0 {
		return false, nil
	}
	if err := decodeDocument(name, resp.Kvs[0].Value, out); err != nil {
		return false, err
	}
	return true, nil
}

func decodeDocument(name string, b []byte, out any) error {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("the stored %s is damaged: %w", name, err)
	}
	if d.Layout > Layout {
		return fmt.Errorf("the stored %s cannot be read: %w", name, &tooNewError{d.Layout})
	}
	if err := json.Unmarshal(d.Value, out); err != nil {
		return fmt.Errorf("the stored %s is damaged: %w", name, err)
	}
	return nil
}

func (s *Store) putDocument(ctx context.Context, name string, value any) error {
	b, err := encodeDocument(name, value)
	if err != nil {
		return err
	}
	if s.room != nil {
		if err := s.room(urgencyOf(ctx)); err != nil {
			return &requestError{"store the " + name, s.place, err}
		}
	}
	within, cancel := s.inHaste(ctx)
	defer cancel()
	put := func() error {
		_, err := patiently(within, func() (int64, error) {
			ctx, cancel := context.WithTimeout(within, requestTimeout)
			defer cancel()
			_, err := s.kv.Put(ctx, s.documentKey(name), string(b))
			return 0, err
		})
		if err == nil {
			s.stored(documentKeys + name)
		}
		return err
	}
	err = put()
	if err == nil {
		return nil
	}
	if err = s.explain("store the "+name, err); errors.Is(err, ErrFull) && s.reclaim != nil && s.reclaim(ctx) == nil {
		if err = put(); err == nil {
			return nil
		}
		err = s.explain("store the "+name, err)
	}
	if s.hurried(ctx) && laidAside(err) {
		return s.lay(&entry{Key: documentKeys + name, Value: b}, err)
	}
	return err
}
