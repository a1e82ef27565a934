package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// TestCrashBetweenWritesOfSeveral kills the writer before each of its writes in turn, and after the last whose answer
// it does not see: all records are as they were, or all are new.
func TestCrashBetweenWritesOfSeveral(t *testing.T) {
	for name, elements := range map[string]int{"small": 2, "of several chunks": 20_000} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			old := []model.Record{record("a", 1, elements), record("b", 1, elements)}
			if _, err := s.Put(t.Context(), old...); err != nil {
				t.Fatal(err)
			}
			next := []model.Record{record("b", 2, elements+1), record("a", 2, elements), record("new", 1, elements)}
			kv := s.kv
			writes := 0
			for ; ; writes++ {
				s.kv = &failingKV{KV: kv, left: writes}
				_, err := s.Put(t.Context(), next...)
				s.kv = kv
				if err == nil {
					break
				}
				if !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				got := load(t, s)
				if len(got) != 2 {
					t.Fatalf("killed before write %d: %d networks are there, two were", writes, len(got))
				}
				equal(t, got["a"], old[0])
				equal(t, got["b"], old[1])
			}
			if wanted := map[int]int{2: 1, 20_000: 4}[elements]; writes < wanted-1 {
				t.Fatalf("%d writes: the test means at least %d", writes, wanted)
			}
			got := load(t, s)
			for _, r := range next {
				equal(t, got[r.Network.Name], r)
			}
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, key := range keysOf(t, s, s.prefix+"records/") {
				if !strings.Contains(key, "/2-") && !strings.Contains(key, "/new/") {
					t.Errorf("chunk %s remains", key)
				}
			}
			equal(t, load(t, s)["new"], next[2])
		})
	}
}

// As many as one Put takes go into a transaction of an etcd with its default limits, and a second writer is refused
// there, too.
func TestAsManyAsOnePutTakes(t *testing.T) {
	s := open(t, t.TempDir())
	all := make([]model.Record, MaxTogether)
	for i := range all {
		all[i] = record(fmt.Sprintf("n%d", i), 1, 60)
	}
	if _, err := s.Put(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s); len(got) != MaxTogether {
		t.Fatalf("%d networks are there", len(got))
	}
	if _, err := s.Put(t.Context(), append(all, record("more", 1, 1))...); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("from 1 to %d", MaxTogether)) {
		t.Error(err)
	}
	other := &Store{kv: s.kv, prefix: s.prefix, place: s.place, moved: map[string]int64{}, unsure: map[string][]string{},
		versions: map[string]version{}}
	load(t, other)
	if _, err := other.Put(t.Context(), record("n7", 2, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].Revision = 2
	}
	if _, err := s.Put(t.Context(), all...); !errors.Is(err, ErrConflict) {
		t.Errorf("a second writer of %d networks got %v", len(all), err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, s, s.prefix+"records/"); len(keys) != MaxTogether {
		t.Errorf("%d chunks remain of the %d networks", len(keys), MaxTogether)
	}
	load(t, s)
	if _, err := s.Put(t.Context(), all...); err != nil {
		t.Errorf("after reading again: %v", err)
	}
}

// A write of several that was given up and is carried out later is replaced by the next write of any of them.
func TestWriteOfSeveralThatIsCarriedOutLate(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Put(t.Context(), record("a", 1, 2), record("b", 1, 2)); err != nil {
		t.Fatal(err)
	}
	kv := s.kv
	slow := &slowKV{KV: kv}
	s.kv = slow
	if _, err := s.Put(t.Context(), record("a", 2, 2), record("b", 2, 2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	s.kv = kv
	if resp, err := slow.release(); err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	for _, r := range []model.Record{record("b", 2, 3), record("a", 2, 3)} {
		if _, err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		equal(t, load(t, s)[r.Network.Name], r)
	}
	if _, err := s.Put(t.Context(), record("a", 3, 3), record("c", 1, 3)); err != nil {
		t.Fatal(err)
	}
}

// A store whose disk is full refuses to write, says so, and goes on when there is room.
func TestFullDiskRefusesWritesOnly(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, "size=96m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // a temporary directory of this test's
	s := open(t, disk)
	old := record("a", 1, 2)
	if _, err := s.Put(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	free := fill(t, disk)
	for range 3 {
		_, err := s.Put(t.Context(), record("a", 2, 2))
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "the disk is full: 0MiB are free") {
			t.Fatalf("a store whose disk is full says %v", err)
		}
	}
	equal(t, load(t, s)["a"], old)
	if err := s.PutSubstrate(t.Context(), model.Substrate{}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	free()
	next := record("a", 2, 3)
	if _, err := s.Put(t.Context(), next); err != nil {
		t.Fatal("with room again:", err)
	}
	equal(t, load(t, s)["a"], next)
}
