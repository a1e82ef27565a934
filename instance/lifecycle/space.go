package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
)

// What must be free where an instance begins to live, and where it comes back to. Its store's write-ahead log is two
// segments of 8 MiB, its database grows in steps of 16 MiB and more, and there are logs.
const (
	spaceToBegin  = model.Bytes(70 << 20)
	spaceToReturn = model.Bytes(24 << 20)
)

// checkSpace refuses to begin where the disk is too full to end well.
func checkSpace(d instance.Dirs) error {
	need := spaceToBegin
	if _, err := os.Stat(d.Store()); err == nil {
		need = spaceToReturn
	}
	free, err := freeSpace(d.Data)
	if err != nil {
		return err
	}
	if need == spaceToReturn { // the store gives its reserve up where it must
		free += model.Bytes(store.Reserved(d.Reserve()))
	}
	if free < need {
		return fmt.Errorf("polyplane '%s': the disk is too full: %s has %s free, and %s are needed: make room for %s "+
			"more", d.Name, d.Data, rounded(free), need, rounded(need-free+1<<20-1))
	}
	return nil
}

// rounded is in whole MiB, downwards.
func rounded(b model.Bytes) string { return fmt.Sprintf("%dMiB", b>>20) }

// freeSpace is what the file system of a path, or of its nearest parent that exists, has left.
func freeSpace(path string) (model.Bytes, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(path, &s)
		switch {
		case err == nil:
			return model.Bytes(s.Bavail) * model.Bytes(s.Bsize), nil
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
			path = filepath.Dir(path)
		default:
			return 0, fmt.Errorf("look how much room there is at %s: %w", path, err)
		}
	}
}
