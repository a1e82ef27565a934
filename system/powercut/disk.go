// Package powercut cuts the power of a machine at its writes. An instance keeps its data on a disk of the test's own,
// which notes every write and every flush in their order. From any moment of that log the test makes the disk again as
// a power cut would have left it there. An instance must then come up from it with everything that had been
// acknowledged.
package powercut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/polyplane/polyplane/linux"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 4096

// record is one entry of the log: a write, or a flush where length is 0.
type record struct {
	disk   int64 // where on the disk
	log    int64 // where its data is in the log's file
	length int
}

// disk is a file in a FUSE file system. On it are a loop device and, on that, the file system under test. So every
// write that the kernel sends to the device comes here, and every flush comes as an fsync.
type disk struct {
	fs.Inode
	size int64
	now  *os.File // as it is
	data *os.File // what was written, one after the other

	mu      sync.Mutex // held during a write, so that the log has the writes in the order in which they are on the disk
	records []record
	end     int64 // of data
	server  *fuse.Server
}

var (
	_ fs.NodeOpener    = (*disk)(nil)
	_ fs.NodeReader    = (*disk)(nil)
	_ fs.NodeWriter    = (*disk)(nil)
	_ fs.NodeFsyncer   = (*disk)(nil)
	_ fs.NodeGetattrer = (*disk)(nil)
)

// root is the directory that the disk is in.
type root struct {
	fs.Inode
	disk *disk
}

var _ fs.NodeOnAdder = (*root)(nil)

func (r *root) OnAdd(ctx context.Context) {
	r.AddChild("disk", r.NewPersistentInode(ctx, r.disk, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// newDisk makes a disk below dir; path is its file. begin is what it has on it.
func newDisk(dir string, size int64, begin string) (d *disk, path string, err error) {
	d = &disk{size: size}
	if d.now, err = os.OpenFile(begin, os.O_RDWR, 0); err != nil {
		return nil, "", err
	}
	if d.data, err = os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600); err != nil {
		return nil, "", err
	}
	mount := filepath.Join(dir, "fuse")
	if err := os.MkdirAll(mount, 0o700); err != nil {
		return nil, "", err
	}
	options := &fs.Options{}
	options.MountOptions = fuse.MountOptions{DirectMountStrict: true, FsName: "powercut",
		Name: "powercut", MaxWrite: 1 << 20}
	if d.server, err = fs.Mount(mount, &root{disk: d}, options); err != nil {
		return nil, "", fmt.Errorf("mount a FUSE file system on %s: %w", mount, err)
	}
	return d, filepath.Join(mount, "disk"), nil
}

// close takes the disk away; what it noted can still be used.
func (d *disk) close() error { return errors.Join(d.server.Unmount(), d.now.Close()) }

func (d *disk) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (d *disk) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Blksize, out.Blocks = syscall.S_IFREG|0o600, uint64(d.size), sector, uint64(d.size)/512
	return 0
}

func (d *disk) Read(_ context.Context, _ fs.FileHandle, into []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.now.ReadAt(into, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(into[:n]), 0
}

func (d *disk) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.data.WriteAt(data, d.end); err != nil {
		return 0, syscall.EIO
	}
	if _, err := d.now.WriteAt(data, at); err != nil {
		return 0, syscall.EIO
	}
	d.records = append(d.records, record{disk: at, log: d.end, length: len(data)})
	d.end += int64(len(data))
	return uint32(len(data)), 0
}

func (d *disk) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = append(d.records, record{})
	return 0
}

// position is how long the log is.
func (d *disk) position() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.records)
}

// flushes returns the positions right after each flush that had something to flush.
func (d *disk) flushes() (all []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	written := false
	for i, r := range d.records {
		if r.length > 0 {
			written = true
		} else if written {
			all, written = append(all, i+1), false
		}
	}
	return all
}

// replay writes into an image what the disk may hold when the power is cut at a position of the log. Everything that
// was written up to the last flush before it is certain. Of what was written since, any part may be there. A disk
// without a cache has all of it: then random is nil.
func (d *disk) replay(begin, image string, position int, random *rand.Rand) error {
	if err := os.Remove(image); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := linux.CopySparse(begin, image); err != nil {
		return err
	}
	out, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	certain := position
	for random != nil && certain > 0 && d.records[certain-1].length > 0 {
		certain--
	}
	var buffer []byte
	for i, r := range d.records[:position] {
		if len(buffer) < r.length {
			buffer = make([]byte, r.length)
		}
		data := buffer[:r.length]
		if _, err := d.data.ReadAt(data, r.log); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		for from := 0; from < len(data); from += sector {
			if i >= certain && random.IntN(2) == 0 {
				continue
			}
			if _, err := out.WriteAt(data[from:min(from+sector, len(data))], r.disk+int64(from)); err != nil {
				return err
			}
		}
	}
	return nil
}
