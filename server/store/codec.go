package store

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/polyplane/polyplane/model"
)

// Layout is the version of everything this package writes. A store with a higher one was written by a newer polyplane
// and is refused.
const Layout = 1

// maxRecord bounds what a record may unpack to, in bytes: about 200,000 elements.
const maxRecord = 256 << 20

// pointer makes one write of a record the current one.
type pointer struct {
	Layout   int   `json:"layout"`
	Revision int64 `json:"revision"` // the record's
	// Index and VNI (the highest) are the network's: known, and not given to another, even when the record is damaged.
	Index uint32 `json:"index"`
	VNI   uint32 `json:"vni,omitempty"`

	Write  string `json:"write"` // names the chunks
	Chunks int    `json:"chunks"`
	Size   int    `json:"size"` // of all chunks, in bytes
	Sum    string `json:"sum"`  // SHA-256 of them
}

// tooNewError tells that something was written by a newer polyplane.
type tooNewError struct{ layout int }

func (e *tooNewError) Error() string {
	return fmt.Sprintf("it was written by a newer polyplane (layout %d, this one knows up to %d): use that version or "+
		"a later one", e.layout, Layout)
}

// encode packs a record; decode is its inverse.
func encode(record model.Record) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(record); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode unpacks a record. How much it may unpack to is bounded: a few damaged bytes can stand for gigabytes.
func decode(b []byte) (model.Record, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return model.Record{}, fmt.Errorf("unpack: %w", err)
	}
	limited := &io.LimitedReader{R: z, N: maxRecord}
	d := json.NewDecoder(limited)
	var record model.Record
	if err := d.Decode(&record); err != nil {
		if limited.N <= 0 {
			return model.Record{}, fmt.Errorf("it unpacks to more than %d MiB", maxRecord>>20)
		}
		return model.Record{}, fmt.Errorf("decode: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return model.Record{}, errors.New("something follows the record")
	}
	return record, nil
}

func decodePointer(b []byte) (pointer, error) {
	var p pointer
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("its entry is damaged: %w", err)
	}
	if p.Layout > Layout {
		return p, &tooNewError{p.Layout}
	}
	if p.Layout < 1 || p.Write == "" || p.Chunks < 1 || p.Size < 1 {
		return p, errors.New("its entry is damaged: values are missing")
	}
	return p, nil
}

// assemble checks a record's chunks against the pointer and decodes them.
func assemble(name string, p pointer, chunks [][]byte) (model.Record, error) {
	if len(chunks) != p.Chunks {
		return model.Record{}, fmt.Errorf("it has %d parts where %d were written", len(chunks), p.Chunks)
	}
	whole := bytes.Join(chunks, nil)
	if len(whole) != p.Size || sum(whole) != p.Sum {
		return model.Record{}, errors.New("its checksum does not match")
	}
	record, err := decode(whole)
	if err != nil {
		return model.Record{}, err
	}
	if record.Network.Name != name {
		return model.Record{}, fmt.Errorf("it holds the network %q", record.Network.Name)
	}
	return record, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// split cuts b into chunks of at most size bytes.
func split(b []byte, size int) [][]byte {
	var chunks [][]byte
	for len(b) > size {
		chunks = append(chunks, b[:size])
		b = b[size:]
	}
	return append(chunks, b)
}
