package store

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
)

// A backup is one file: compressed lines of JSON – a header, every key with its value as they were at one revision,
// files that the instance cannot do without, and a last line with the number of lines and the SHA-256 of all before it.
// It says what the store holds, not how etcd keeps it, so that one of an external cluster is as good as one of the
// embedded store.

// backupFormat is what a backup begins with, and the version of its form.
const (
	backupFormat = "polyplane backup"
	backupLayout = 1
	// backupPage is how many keys are asked for at once; a value has at most chunkSize bytes.
	backupPage = 64
	// backupTries is how often a reading is begun again that a compaction has overtaken.
	backupTries = 5
	// mostInBackup bounds what one line of a backup may be, in bytes.
	mostInBackup = 16 << 20
)

// BackupHeader tells what a backup is of.
type BackupHeader struct {
	Format   string              `json:"format"`
	Layout   int                 `json:"layout"`
	Instance string              `json:"instance"`
	Version  string              `json:"version,omitempty"`
	Time     time.Time           `json:"time"`
	Identity model.StoreIdentity `json:"identity"`
	Revision int64               `json:"revision"`
	// Lacks are networks that the backup is without, since their records in the store were damaged.
	Lacks []string `json:"lacks,omitempty"`
}

// backupLine is a line of a backup behind the header, which is the first. Keys and files come in any order; the last
// line has the number of lines before it, and the SHA-256 of all of them as they are written.
type backupLine struct {
	Key   string `json:"key,omitempty"`  // behind the prefix
	File  string `json:"file,omitempty"` // below the instance's data directory
	Value []byte `json:"value,omitempty"`
	// Of the last line.
	Lines int    `json:"lines,omitempty"`
	Sum   string `json:"sum,omitempty"`
}

// Backup is one that was read and is whole.
type Backup struct {
	BackupHeader
	Keys     map[string][]byte
	Files    map[string][]byte
	Networks []string
}

// WriteBackup writes a backup of the store as it is now, while it is used. The files are put beside it.
func (s *Store) WriteBackup(ctx context.Context, w io.Writer, header BackupHeader,
	files map[string][]byte) (int64, error) {
	keys, revision, err := s.all(ctx)
	if err != nil {
		return 0, s.explain("read the store for a backup", err)
	}
	if keys, err = s.withAside(keys); err != nil {
		return 0, fmt.Errorf("read the store for a backup: %w", err)
	}
	header.Format, header.Layout, header.Revision, header.Identity = backupFormat, backupLayout, revision, s.identity
	keys, header.Lacks = withoutDamaged(keys)
	out := newBackupWriter(w)
	out.line(header)
	for _, kv := range keys {
		out.line(kv)
	}
	for name, b := range files {
		out.line(backupLine{File: name, Value: b})
	}
	return revision, out.end()
}

// What the keys of a network's entry and of its record begin with, behind the prefix.
const (
	pointerKeys = "networks/"
	recordKeys  = "records/"
)

// withoutDamaged leaves out the networks whose records are damaged: one such record must not spoil the backup of all
// others.
func withoutDamaged(keys []backupLine) (good []backupLine, lacks []string) {
	values := make(map[string][]byte, len(keys))
	for _, l := range keys {
		values[l.Key] = l.Value
	}
	damaged := map[string]bool{}
	for _, l := range keys {
		name, is := strings.CutPrefix(l.Key, pointerKeys)
		if is && checkRecord(values, name) != nil {
			damaged[name] = true
			lacks = append(lacks, name) // the keys are sorted
		}
	}
	for _, l := range keys {
		name, is := strings.CutPrefix(l.Key, pointerKeys)
		if !is {
			name, _, is = strings.Cut(strings.TrimPrefix(l.Key, recordKeys), "/")
			is = is && strings.HasPrefix(l.Key, recordKeys)
		}
		if !is || !damaged[name] {
			good = append(good, l)
		}
	}
	return good, lacks
}

// checkRecord looks into the record of one network.
func checkRecord(keys map[string][]byte, name string) error {
	_, err := recordIn(keys, name)
	return err
}

// recordIn reads the record of one network.
func recordIn(keys map[string][]byte, name string) (model.Record, error) {
	p, err := decodePointer(keys[pointerKeys+name])
	if err != nil {
		return model.Record{}, err
	}
	var chunks [][]byte
	for i := range p.Chunks {
		c, there := keys[fmt.Sprintf("%s%s/%s/%06d", recordKeys, name, p.Write, i)]
		if !there {
			break // a damaged entry may name more of them than there is room for
		}
		chunks = append(chunks, c)
	}
	return assemble(name, p, chunks)
}

// all reads every key at one revision.
func (s *Store) all(ctx context.Context) (lines []backupLine, revision int64, err error) {
	for range backupTries {
		lines, revision, err = s.allOnce(ctx)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return lines, revision, err
		}
	}
	return lines, revision, err
}

// allOnce reads page by page. All pages are of the revision of the first one, so the store may be written meanwhile.
// Only a compaction in between takes that revision away.
func (s *Store) allOnce(ctx context.Context) (lines []backupLine, revision int64, err error) {
	from, end := s.prefix, clientv3.GetPrefixRangeEnd(s.prefix)
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(backupPage),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend)}
		if revision != 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		resp, err := s.get(ctx, from, options...)
		if err != nil {
			return nil, 0, err
		}
		revision = cmp.Or(revision, resp.Header.Revision)
		for _, kv := range resp.Kvs {
			lines = append(lines, backupLine{Key: strings.TrimPrefix(string(kv.Key), s.prefix), Value: kv.Value})
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return lines, revision, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// backupWriter writes lines, and counts them. The first error stays, so that one look at the end is enough.
type backupWriter struct {
	z     *gzip.Writer
	sum   hash.Hash
	lines int
	err   error
}

func newBackupWriter(w io.Writer) *backupWriter {
	return &backupWriter{z: gzip.NewWriter(w), sum: sha256.New()}
}

func (b *backupWriter) line(v any) {
	text, err := json.Marshal(v)
	if err == nil && b.err == nil {
		text = append(text, '\n')
		b.sum.Write(text)
		_, err = b.z.Write(text)
		b.lines++
	}
	if b.err == nil {
		b.err = err
	}
}

func (b *backupWriter) end() error {
	b.line(backupLine{Lines: b.lines, Sum: hex.EncodeToString(b.sum.Sum(nil))})
	return errors.Join(b.err, b.z.Close())
}

// ReadBackup reads a backup and verifies all of it: its sum, each network's record, that this polyplane knows its form.
func ReadBackup(path string) (*Backup, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readBackup(f)
	if err != nil {
		return nil, fmt.Errorf("the backup %s cannot be used: %w", path, err)
	}
	return b, nil
}

// readBackup reads all lines before it believes any: what the sum at the end does not cover counts for nothing.
func readBackup(r io.Reader) (*Backup, error) {
	z, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("it is no backup of polyplane, or its beginning is damaged (%w)", err)
	}
	b := &Backup{Keys: map[string][]byte{}, Files: map[string][]byte{}}
	lines := bufio.NewScanner(z)
	lines.Buffer(make([]byte, 1<<16), mostInBackup)
	sum, count, ended := sha256.New(), 0, false
	for lines.Scan() {
		text := lines.Bytes()
		if count == 0 {
			if err := json.Unmarshal(text, &b.BackupHeader); err != nil || b.Format != backupFormat {
				return nil, errors.New("it is no backup of polyplane")
			}
			if b.Layout > backupLayout {
				return nil, &tooNewError{b.Layout}
			}
		} else {
			var l backupLine
			if err := json.Unmarshal(text, &l); err != nil || ended {
				return nil, fmt.Errorf("line %d is damaged", count+1)
			}
			switch {
			case l.Sum != "":
				if l.Lines != count || l.Sum != hex.EncodeToString(sum.Sum(nil)) {
					return nil, errors.New("its checksum does not match")
				}
				ended = true
			case l.File != "":
				b.Files[l.File] = l.Value
			default:
				b.Keys[l.Key] = l.Value
			}
		}
		sum.Write(text)
		sum.Write([]byte{'\n'})
		count++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if !ended {
		return nil, errors.New("its end is missing")
	}
	return b, b.check()
}

// check looks into every record.
func (b *Backup) check() error {
	for key := range b.Keys {
		if name, found := strings.CutPrefix(key, pointerKeys); found {
			b.Networks = append(b.Networks, name)
			if _, err := decodePointer(b.Keys[key]); err != nil {
				continue // an earlier version took over what was damaged in the store already; it is no worse here
			}
			if err := checkRecord(b.Keys, name); err != nil {
				return fmt.Errorf("network %s: %w", name, err)
			}
		}
	}
	return nil
}

// FillEmbedded makes an embedded store out of a backup, in a directory that is not there yet, with the identity given,
// and returns when it has been opened, read and closed again.
func FillEmbedded(ctx context.Context, options EmbeddedOptions, b *Backup, identity model.StoreIdentity) error {
	s, err := OpenEmbedded(ctx, options)
	if err != nil {
		return err
	}
	err = s.fill(ctx, b, identity)
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("make a store out of the backup: %w", err)
	}
	if s, err = OpenEmbedded(ctx, options); err != nil {
		return fmt.Errorf("open the store that was made out of the backup: %w", err)
	}
	records, damaged, _, err := s.Load(ctx)
	if err == nil && (len(records)+len(damaged) != len(b.Networks) || s.identity.ID != identity.ID ||
		s.identity.Generation != identity.Generation) {
		err = fmt.Errorf("it has %d networks, the backup %d", len(records)+len(damaged), len(b.Networks))
	}
	return errors.Join(err, s.Close())
}

func (s *Store) fill(ctx context.Context, b *Backup, identity model.StoreIdentity) error {
	kv := s.kv
	if g, ok := kv.(*guarded); ok { // the identity changes with this
		kv = g.KV
	}
	put := func(key, value string) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err := kv.Put(ctx, s.prefix+key, value)
		return err
	}
	for key, value := range b.Keys {
		if err := put(key, string(value)); err != nil {
			return err
		}
	}
	value, err := encodeDocument(identityDocument, identity)
	if err != nil {
		return err
	}
	return put(strings.TrimPrefix(s.documentKey(identityDocument), s.prefix), string(value))
}

// partSuffix is what a backup's name ends with while it is written.
const partSuffix = ".part"

// WriteFile has f write a file that appears when all of it is on the disk and has been found whole, or not at all.
func WriteFile(path string, f func(io.Writer) error) error {
	part := path + partSuffix
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	if err = f(buffered); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		_, err = ReadBackup(part)
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return durable.Sync(filepath.Dir(path))
}

// Equal tells whether two backups hold the same.
func (b *Backup) Equal(o *Backup) bool {
	if len(b.Keys) != len(o.Keys) {
		return false
	}
	for k, v := range b.Keys {
		if !bytes.Equal(v, o.Keys[k]) {
			return false
		}
	}
	return true
}
