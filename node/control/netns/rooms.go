package netns

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Elements' disks are sparse files on one disk of the machine's. Files that are put into elements may be large, and
// many elements may get them at the same time: what each is going to take is promised before any of it is written. Of
// what is written to an element's disk, the machine's learns only once it is written back. So that is had done now and
// then, and what is there then is promised no more.

const (
	// takeAtLeast is what is put into an element without asking the machine's disk: as much as it may take by itself.
	takeAtLeast = 1 << 20
	// syncEvery is how much is written before it is had on the disk.
	syncEvery = 64 << 20
)

// amount is what files take of a disk.
type amount struct{ bytes, files int64 }

// placing is what is done with one file: what it brings, and what goes once that is there.
type placing struct{ brings, frees amount }

// needsOf is what is needed at most from the beginning of each on, beyond what is there then.
func needsOf(all []placing) []amount {
	needs := make([]amount, len(all)+1)
	for i := len(all) - 1; i >= 0; i-- {
		is, then := &all[i], needs[i+1]
		needs[i] = amount{is.brings.bytes + max(0, then.bytes-is.frees.bytes),
			is.brings.files + max(0, then.files-is.frees.files)}
	}
	return needs
}

// placings are what is done, in this order: files of trees that go, files by themselves, files of trees that are
// written.
func (p *planting) placings(f *elementFiles, block int64) (gone, small, trees []placing) {
	there := func(at string) amount {
		if info, err := f.root.Lstat(rel(at)); err == nil && info.Mode().IsRegular() {
			if is, ok := info.Sys().(*syscall.Stat_t); ok && is.Nlink == 1 { // else it has another name
				return amount{is.Blocks * 512, 1}
			}
		}
		return amount{}
	}
	write := func(at string, size int64) placing {
		return placing{amount{(size + block - 1) / block * block, 1}, there(at)}
	}
	for _, t := range p.trees {
		for _, below := range t.remove {
			gone = append(gone, placing{frees: there(t.full(below))})
		}
		for _, below := range t.write {
			trees = append(trees, write(t.full(below), t.sizes[below]))
		}
	}
	for _, at := range p.remove {
		small = append(small, placing{frees: there(at)})
	}
	for _, file := range p.write {
		small = append(small, write(file.Path, int64(len(file.Content))))
	}
	return gone, small, trees
}

// taking is what is promised of the machine's disk while files are put into an element.
type taking struct {
	room    *linux.Promise
	needs   []int64 // of the files of trees: what may be needed from the beginning of each on
	brought int64   // of the first of these
	loose   int64   // of what was brought: what may not be on the disk
	sync    func() error
}

// roomFor refuses to begin what the element's disk, or the machine's, has no room for. A file that is replaced is there
// until the new one is whole beside it. What the machine's has is this element's until it is done.
func (d *Driver) roomFor(id model.ID, f *elementFiles, p *planting) (*taking, error) {
	t := &taking{sync: func() error { return d.syncFiles(id) }}
	var s unix.Statfs_t
	if err := unix.Statfs(d.dirs.Files(id), &s); err != nil {
		return nil, fmt.Errorf("look how much room its disk has: %w", err)
	}
	gone, small, trees := p.placings(f, s.Bsize)
	// Files by themselves may have what only the agent can use of the element's disk.
	need, free := needsOf(slices.Concat(gone, trees))[0], int64(s.Bavail)*s.Bsize
	if s.Files > 0 && need.files > int64(s.Ffree) {
		return nil, fmt.Errorf("its disk has room for %d more files, and %d are put into it: `disk:` gives it a "+
			"larger one", s.Ffree, need.files)
	}
	if need.bytes > free {
		return nil, fmt.Errorf("its disk has %s free, and the files that are put into it need %s: `disk:` gives it a "+
			"larger one", model.Bytes(free).Rounded(), model.Bytes(need.bytes).Rounded())
	}
	return t, t.ask(d, slices.Concat(gone, small, trees), len(trees))
}

// ask has the machine's disk promised. What goes is free there only a while later.
func (t *taking) ask(d *Driver, all []placing, ofTrees int) (err error) {
	total, needs := int64(0), needsOf(all)
	t.needs = make([]int64, len(needs))
	for i := len(all) - 1; i >= 0; i-- {
		total += all[i].brings.bytes
		t.needs[i] = min(total, needs[i].bytes+syncEvery)
	}
	need := t.needs[0]
	if t.needs = t.needs[len(all)-ofTrees:]; total < takeAtLeast {
		return nil
	}
	t.room, err = d.rooms.Promise(d.dirs.Data, need, "")
	if errors.Is(err, linux.ErrNoRoom) {
		room, _ := linux.RoomAt(d.dirs.Data)
		// These words stay the same as long as it is so: it is tried again and again.
		err = fmt.Errorf("the machine's disk is too full: the files that are put into it take %s, and %s must stay "+
			"free: make room in %s, and they are put there then", model.Bytes(need).Rounded(),
			model.Bytes(room.Spare()).Rounded(), d.dirs.Data)
	}
	return err
}

// Write counts what is written of a file.
func (t *taking) Write(b []byte) (int, error) {
	n := int64(len(b))
	t.brought, t.loose = t.brought+n, t.loose+n
	if t.room == nil || t.loose < syncEvery {
		return len(b), nil
	}
	if err := t.sync(); err != nil {
		return 0, err
	}
	t.loose = 0
	t.room.Set(t.needs[0] - t.brought)
	return len(b), nil
}

// next goes on with the next file.
func (t *taking) next() { t.needs, t.brought = t.needs[1:], 0 }

// end has all of it on the disk.
func (t *taking) end() error {
	if t.room == nil {
		return nil
	}
	return t.sync()
}
