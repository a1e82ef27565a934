package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/watch"
)

// cuts are the elements that the node has cut off by itself and that the manager has not decided about yet. This way an
// attack is stopped while the manager is away as well. They are kept in a file, so that no restart or reboot joins
// their links again.
type cuts struct {
	path string
	log  *slog.Logger

	mu  sync.Mutex // guards all, and the file. The agent's cutting may be held; nothing else is taken under it.
	all map[model.ID]*model.Incident
}

// readCuts reads what an earlier life of the agent cut off.
func readCuts(path string, log *slog.Logger) *cuts {
	c := &cuts{path: path, log: log, all: map[model.ID]*model.Incident{}}
	var kept []struct {
		ID model.ID
		*model.Incident
	}
	if err := readJSON(path, &kept); err != nil {
		log.Error("the elements that this node had cut off cannot be read", "error", err)
	}
	for _, k := range kept {
		if k.Incident != nil {
			c.all[k.ID] = k.Incident
		}
	}
	return c
}

func (c *cuts) is(id model.ID) bool { return c.of(id) != nil }

func (c *cuts) of(id model.ID) *model.Incident {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[id]
}

// add returns whether the element was not cut off before.
func (c *cuts) add(id model.ID, i model.Incident) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[id] != nil {
		return false
	}
	c.all[id] = &i
	c.write()
	return true
}

// decided forgets an element that the manager has decided about since it was cut off.
func (c *cuts) decided(id model.ID, is model.Override) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.all[id]; i != nil && is.Decided >= i.At.UnixNano() {
		delete(c.all, id)
		c.write()
	}
}

// keep forgets elements that no longer exist.
func (c *cuts) keep(there func(model.ID) bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.all)
	maps.DeleteFunc(c.all, func(id model.ID, _ *model.Incident) bool { return !there(id) })
	if len(c.all) != before {
		c.write()
	}
}

func (c *cuts) write() {
	type kept struct {
		ID model.ID
		*model.Incident
	}
	all := make([]kept, 0, len(c.all))
	for id, i := range c.all {
		all = append(all, kept{id, i})
	}
	if err := writeJSON(c.path, all); err != nil {
		c.log.Error("elements that were cut off are not kept over a restart", "error", err)
	}
}

// rememberUsual gives the watch what an earlier life of the agent learnt to be usual.
func (a *Agent) rememberUsual(w *watch.Watch) {
	var all []watch.Memory
	if err := readJSON(a.Dirs.Usual(), &all); err != nil {
		a.Log.Warn("what was usual for the elements is not known any more", "error", err)
	}
	w.Remember(all, time.Now())
}

func (a *Agent) keepUsual(w *watch.Watch) {
	if err := writeJSON(a.Dirs.Usual(), w.Memories()); err != nil {
		a.Log.Warn("keep what is usual for the elements", "error", err)
	}
}

// readJSON reads a file. If there is none, it leaves the value as it is.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err
}

// writeJSON replaces a file in one step. When it returns, the file is on the disk.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, b, 0o600)
}
