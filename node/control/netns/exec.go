package netns

import (
	"context"
	"io"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

func (d *Driver) Exec(ctx context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error) {
	return 0, nil
}
func (d *Driver) Console(id model.ID) ([]string, error)                                 { return nil, nil }
func (d *Driver) Logs(ctx context.Context, id model.ID, follow bool, w io.Writer) error { return nil }
