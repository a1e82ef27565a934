package linux

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a file system of 80 MiB, of which 20 stay free.
func smallDisk(t *testing.T) string {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=80m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}

// TestRooms: who was promised room has it, whoever else asks, in whichever process; what is written into the file that it
// is for counts, and nothing else that is written; who is gone holds nothing.
func TestRooms(t *testing.T) {
	at, account := smallDisk(t), filepath.Join(t.TempDir(), "rooms")
	one, other := NewRooms(account), NewRooms(account)
	file := filepath.Join(at, "filled")
	images, err := one.Promise(at, 30<<20, file)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(need int64, want bool) {
		t.Helper()
		if has := other.Has(at, need); has != want {
			t.Errorf("there is room for %d MiB: %t", need>>20, has)
		}
		p, err := other.Promise(at, need, "")
		if (err == nil) != want || !want && !errors.Is(err, ErrNoRoom) {
			t.Errorf("%d MiB are promised: %v", need>>20, err)
		}
		p.End()
	}
	write := func(path string, size int) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask(30<<20, true)
	ask(31<<20, false)
	write(file, 20<<20) // it is in the account and on the disk once
	ask(30<<20, true)
	ask(31<<20, false)
	write(filepath.Join(at, "another"), 10<<20) // nobody was promised this
	ask(20<<20, true)
	ask(21<<20, false)
	elements, err := other.Promise(at, 20<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(at, "theirs"), 5<<20) // not on the disk yet, as far as was told
	if one.Has(at, 1) {
		t.Error("what may not be on the disk yet counts as there")
	}
	elements.Set(15 << 20)
	if one.Has(at, 1) || !one.Has(at, 0) {
		t.Error("what is on the disk counts twice")
	}
	var got bytes.Buffer
	if n, err := one.Copy(&got, bytes.NewReader(make([]byte, 1<<20)), at); err != nil || n != 1<<20 {
		t.Errorf("with room as promised, %d bytes are copied: %v", n, err)
	}
	write(filepath.Join(at, "one more"), 1<<20)
	if _, err := one.Copy(&got, bytes.NewReader(make([]byte, 1<<20)), at); !errors.Is(err, ErrNoRoom) {
		t.Errorf("what was promised to others is taken: %v", err)
	}
	elements.file.Close() // its process was killed
	if err := os.Remove(filepath.Join(at, "one more")); err != nil {
		t.Fatal(err)
	}
	ask(15<<20, true)
	images.End()
	ask(25<<20, true)
	ask(26<<20, false)
	if left, err := filepath.Glob(filepath.Join(account, "promise-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
	// Another file system has an account of its own, and without any there is what is free.
	elsewhere := smallDisk(t)
	p, err := one.Promise(at, 25<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	if !one.Has(elsewhere, 60<<20) || one.Has(elsewhere, 61<<20) {
		t.Error("what one disk promised counts for another")
	}
	var none *Rooms
	p, err = none.Promise(at, 25<<20, "")
	p.End()
	if err != nil || !none.Has(at, 25<<20) || none.Has(at, 26<<20) {
		t.Errorf("without an account: %v", err)
	}
}

// TestRoomsWithoutAccount: where the account cannot be opened, is held by somebody who does not come on, or has no room,
// what is free counts. Nothing that was promised is lost then.
func TestRoomsWithoutAccount(t *testing.T) {
	at := smallDisk(t)
	ask := func(r *Rooms) {
		t.Helper()
		if !r.Has(at, 60<<20) || r.Has(at, 61<<20) {
			t.Error("what is free does not count")
		}
		p, err := r.Promise(at, 60<<20, "")
		p.Set(1)
		p.End()
		if _, more := r.Promise(at, 61<<20, ""); err != nil || !errors.Is(more, ErrNoRoom) {
			t.Errorf("what is free is promised: %v; what is not: %v", err, more)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ask(NewRooms(filepath.Join(file, "rooms")))

	run := smallDisk(t)
	r := NewRooms(filepath.Join(run, "rooms"))
	p, err := r.Promise(at, 40<<20, "")
	if err != nil || p == nil {
		t.Fatalf("promised are %v: %v", p, err)
	}
	filler, err := os.Create(filepath.Join(run, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if err := filler.Close(); err != nil || freeAt(t, run) != 0 {
		t.Fatalf("it is not full: %v", err)
	}
	for _, need := range []int64{9 << 20, 50 << 20, -1, 30 << 20} {
		p.Set(need)
		if need = max(0, need); !r.Has(at, 60<<20-need) || r.Has(at, 60<<20-need+1) {
			t.Errorf("%d MiB that are promised are not what counts", need>>20)
		}
	}
	if other, err := r.Promise(at, 30<<20, ""); err != nil || other != nil {
		t.Errorf("without room for the account: %v, %v", other, err)
	}
	p.End()
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(filepath.Join(run, "rooms", roomsLock))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ask(r)
}

// freeAt is what is free.
func freeAt(t *testing.T, at string) int64 {
	t.Helper()
	room, err := RoomAt(at)
	if err != nil {
		t.Fatal(err)
	}
	return room.Free
}
