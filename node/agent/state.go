package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/polyplane/polyplane/model"
)

// readState reads a kept desired state; nil when there is none.
func readState(path string) (*model.NodeState, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s model.NodeState
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(&s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &s, nil
}

// writeState replaces the file in one step, and returns when it is on the disk: networks may have to be made from it again.
func writeState(path string, s *model.NodeState) error {
	return replaceFile(path, func(f *os.File) error {
		w := bufio.NewWriter(f)
		if err := json.NewEncoder(w).Encode(s); err != nil {
			return err
		}
		return w.Flush()
	})
}
