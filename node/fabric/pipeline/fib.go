package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MaxRouters is how many routers of a node the data path can forward for; their numbers begin with 1.
const MaxRouters = 4096 - 1

// FIB is the memory of the forwarding tables: what package fib writes (its Memory) and the programs read. It is pinned,
// so that what is in it outlives the agent, and grows by chunks.
type FIB struct {
	tables, hops []uint64
	chunks       *ebpf.Map
	chunk        *ebpf.MapSpec
	known        map[int][]uint32
	memory       *[][]byte // the pipeline's, which unmaps it
}

// Table is the number of a router's table.
func Table(router int, ipv6 bool) int {
	if ipv6 {
		return 2*router + 1
	}
	return 2 * router
}

// RouterName is the name by which the data path knows a router.
func RouterName(id string) [16]uint8 {
	h := sha256.Sum256([]byte(id))
	return [16]uint8(h[:16])
}

// FlowSeed is the initial value of the hash that chooses among a router's next hops.
func FlowSeed(id string) uint32 {
	name := RouterName(id)
	return binary.LittleEndian.Uint32(name[:])
}

// Tables has a word for each table, two a router.
func (f *FIB) Tables() []uint64 { return f.tables }

// NextHops has four words for each next hop.
func (f *FIB) NextHops() []uint64 { return f.hops }

// Chunks tells how many chunks there are.
func (f *FIB) Chunks() (int, error) {
	n := 0
	for ; n < int(f.chunks.MaxEntries()); n++ {
		m, err := f.pinned(n)
		if err != nil {
			return 0, err
		}
		if m == nil {
			break
		}
		m.Close()
	}
	return n, nil
}

// pinned opens a chunk's map; nil when there is none.
func (f *FIB) pinned(i int) (*ebpf.Map, error) {
	var m *ebpf.Map
	err := f.chunks.Lookup(uint32(i), &m)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open chunk %d of the forwarding tables: %w", i, err)
	}
	return m, nil
}

// Chunk gives chunk i, which it makes if it is not there.
func (f *FIB) Chunk(i int) ([]uint32, error) {
	if c, ok := f.known[i]; ok {
		return c, nil
	}
	if i < 0 || i >= int(f.chunks.MaxEntries()) {
		return nil, fmt.Errorf("all %d chunks of the forwarding tables, %d KiB each, are in use", f.chunks.MaxEntries(),
			f.chunk.ValueSize/1024)
	}
	m, err := f.pinned(i)
	if err != nil {
		return nil, err
	}
	made := m == nil
	if made {
		if m, err = ebpf.NewMap(f.chunk); err != nil {
			return nil, fmt.Errorf("make chunk %d of the forwarding tables (%d KiB): %w", i,
				f.chunk.ValueSize/1024, err)
		}
	}
	defer m.Close() // the table of chunks keeps it, and so does what is mapped
	size := int(f.chunk.ValueSize)
	data, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map chunk %d of the forwarding tables into memory: %w", i, err)
	}
	if made {
		if err := f.chunks.Put(uint32(i), m); err != nil {
			return nil, errors.Join(fmt.Errorf("enter chunk %d of the forwarding tables: %w", i,
				err), unix.Munmap(data))
		}
	}
	*f.memory = append(*f.memory, data)
	f.known[i] = unsafe.Slice((*uint32)(unsafe.Pointer(&data[0])), size/4)
	return f.known[i], nil
}

// Free gives all chunks back. Nobody may look at them any more.
func (f *FIB) Free() error {
	for i := range int(f.chunks.MaxEntries()) {
		if err := f.chunks.Delete(uint32(i)); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("give chunk %d of the forwarding tables back: %w", i, err)
		}
	}
	for i, chunk := range f.known {
		data := unsafe.Slice((*byte)(unsafe.Pointer(&chunk[0])), 4*len(chunk))
		*f.memory = slices.DeleteFunc(*f.memory, func(m []byte) bool { return &m[0] == &data[0] })
		if err := unix.Munmap(data); err != nil {
			return fmt.Errorf("unmap chunk %d of the forwarding tables: %w", i, err)
		}
		delete(f.known, i)
	}
	return nil
}

// openFIB maps the tables' memory.
func (p *Pipeline) openFIB(spec *ebpf.MapSpec) error {
	f := &FIB{chunks: p.fibChunks, chunk: spec.InnerMap, known: map[int][]uint32{}, memory: &p.memory}
	var hops []tcFibHop
	if err := errors.Join(mapped(p, p.fibTables, &f.tables), mapped(p, p.fibHops, &hops)); err != nil {
		return err
	}
	f.hops = unsafe.Slice(&hops[0].Word[0], len(hops)*len(hops[0].Word))
	p.FIB = f
	return nil
}
