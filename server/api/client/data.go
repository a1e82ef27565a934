package client

import (
	"context"
	"io"
	"net/http"

	"github.com/polyplane/polyplane/model"
)

// Recover puts networks together again from what nodes were told to have.
func (c *Client) Recover(ctx context.Context, request model.RecoverRequest) (model.RecoverResult, error) {
	return ask[model.RecoverResult](ctx, c, http.MethodPost, path("recover"), nil, request)
}

// Backup copies a backup of everything that the instance cannot do without.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	resp, err := c.open(ctx, http.MethodGet, path("backup"), nil, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return c.explain(err)
}

// Trash lists what removed elements owned on disk: of all nodes, or, of an agent's client, of its node.
func (c *Client) Trash(ctx context.Context) (model.TrashList, error) {
	var out model.TrashList
	return out, c.within(ctx, http.MethodGet, path("trash"), nil, nil, &out, min(c.most, maxTrashAnswer))
}

// maxTrashAnswer is how long the list of one node's trash may be, in bytes: 80,000 items' is.
const maxTrashAnswer = 16 << 20

// RestoreTrash gives disks out of the trash back to elements of their names.
func (c *Client) RestoreTrash(ctx context.Context, request model.TrashRequest) error {
	return c.do(ctx, http.MethodPost, path("trash", "restore"), nil, request, nil)
}

// OrderTrash has an agent give items back.
func (c *Client) OrderTrash(ctx context.Context, order model.TrashOrder) error {
	return c.do(ctx, http.MethodPost, path("trash", "restore"), nil, order, nil)
}

// EmptyTrash deletes items of the trash for good; all, where none is named.
func (c *Client) EmptyTrash(ctx context.Context, items []string) error {
	return c.do(ctx, http.MethodPost, path("trash", "empty"), nil, model.TrashRequest{Items: items}, nil)
}

// RenewDisk has an element get a new disk when it is started next; the one that it has goes to the trash.
func (c *Client) RenewDisk(ctx context.Context, id model.ID) error {
	return c.do(ctx, http.MethodPost, element(id, "disk"), nil, struct{}{}, nil)
}

// Kept asks an agent what its node was told to have, as it is kept there.
func (c *Client) Kept(ctx context.Context) (model.NodeState, error) {
	return ask[model.NodeState](ctx, c, http.MethodGet, path("kept"), nil, nil)
}
