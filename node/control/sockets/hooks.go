package sockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// hook is where the kernel asks its security modules, and a program of ours answers.
type hook struct {
	load func() (*ebpf.CollectionSpec, error)
	pin  string // no dots: a bpffs takes none
	// asModule is the program as a security module, before the one that runs in front of the function that asks them
	// all. A kernel that was built with such programs may have been started without them (lsm= on its command line).
	asModule, before string
	// limits and seen are tables: which namespaces are bounded, and how often the program ran.
	limits, seen string
	// prepare, if there is one, fills further tables.
	prepare func(*ebpf.Collection) error
	// ask has the kernel ask, harmlessly.
	ask func() error
}

var errNotRun = errors.New("it was attached, and the kernel did not run it")

// attach attaches the hook's program, in place of an earlier one, and checks that the kernel runs it. The caller closes
// what it returns.
func (h *hook) attach(pins string, limits *ebpf.Map) (*ebpf.Collection, error) {
	all, err := h.attachOne(h.asModule, pins, limits)
	if err == nil {
		return all, nil
	}
	if errors.Is(err, errNotRun) {
		err = fmt.Errorf("%w: it was started without (\"bpf\" in lsm= on its command line)", err)
	}
	all, failed := h.attachOne(h.before, pins, limits)
	if failed == nil {
		return all, nil
	}
	return nil, errors.Join(fmt.Errorf("as a security module: %w", err),
		fmt.Errorf("before the security modules: %w", failed))
}

// attachOne does so with one of the two programs.
func (h *hook) attachOne(name, pins string, limits *ebpf.Map) (_ *ebpf.Collection, err error) {
	spec, err := h.load()
	if err != nil {
		return nil, err
	}
	for other := range spec.Programs { // a kernel that lacks the place of one would refuse both
		if other != name {
			delete(spec.Programs, other)
		}
	}
	all, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{h.limits: limits}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			all.Close()
		}
	}()
	if h.prepare != nil {
		if err := h.prepare(all); err != nil {
			return nil, err
		}
	}
	var l link.Link
	if name == h.asModule {
		l, err = link.AttachLSM(link.LSMOptions{Program: all.Programs[name]})
	} else {
		l, err = link.AttachTracing(link.TracingOptions{Program: all.Programs[name]})
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := h.runs(all.Maps[h.seen]); err != nil {
		return nil, err
	}
	// The program of such a link cannot be replaced. The old link goes when nothing refers to it any more, and by then
	// the new one works.
	pin, next := filepath.Join(pins, h.pin), filepath.Join(pins, "next-"+h.pin)
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := l.Pin(next); err != nil {
		return nil, err
	}
	return all, os.Rename(next, pin)
}

// runs checks whether the program counts what the kernel is asked.
func (h *hook) runs(seen *ebpf.Map) error {
	count := func() (n uint64, err error) { err = seen.Lookup(uint32(0), &n); return n, err }
	before, err := count()
	if err != nil {
		return err
	}
	if err := h.ask(); err != nil {
		return err
	}
	after, err := count()
	if err == nil && after == before {
		err = errNotRun
	}
	return err
}
