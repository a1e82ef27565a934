package netns

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// holds are the elements whose processes are being held, or let go, right now.
type holds struct {
	mu    sync.Mutex // guards of; it is not held while processes are
	freed *sync.Cond // some element is nobody's again
	of    map[model.ID]bool
}

// take waits until nobody else is doing so with this element.
func (h *holds) take(id model.ID) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of, h.freed = map[model.ID]bool{}, sync.NewCond(&h.mu)
	}
	for h.of[id] {
		h.freed.Wait()
	}
	h.of[id] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.of, id)
		h.freed.Broadcast()
	}
}

var _ control.Holder = (*Driver)(nil)

// holdWait bounds how long Hold waits for processes that are busy in the kernel.
const holdWait = 100 * time.Millisecond

// Hold is control.Holder's. It uses the control groups only, since its callers must not wait for the elements' lock.
func (d *Driver) Hold(id model.ID) (release func()) {
	done := d.holds.take(id)
	var held []string
	for _, container := range []string{containerID(id), shellID(id)} {
		if !d.frozen(container) && d.freeze(container) == nil {
			held = append(held, container)
		}
	}
	return func() {
		defer done()
		for _, container := range held {
			if err := d.thaw(container); err != nil {
				d.log.Error("processes that were held for a moment stay held", "element", id, "error", err)
			}
		}
	}
}

// freeze holds a container's processes, if it has any.
func (d *Driver) freeze(container string) error {
	for file, word := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
		err := os.WriteFile(d.groupPath("freezer", container, file), []byte(word), 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		for end := time.Now().Add(holdWait); err == nil && !d.held(container) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return err
	}
	return fs.ErrNotExist
}

// held returns whether none of a container's processes runs any more.
func (d *Driver) held(container string) bool {
	if data, err := d.readGroup("freezer", container, "freezer.state"); err == nil {
		return strings.TrimSpace(string(data)) == "FROZEN"
	}
	return d.groupFields("freezer", container, "cgroup.events")["frozen"] == 1
}
