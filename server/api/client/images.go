package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/polyplane/polyplane/model"
)

// Images are those that elements can be made from.
func (c *Client) Images(ctx context.Context) ([]model.Image, error) {
	var out model.ImageList
	return out.Images, c.do(ctx, http.MethodGet, path("images"), nil, nil, &out)
}

// NameImage gives a name to an image that is there.
func (c *Client) NameImage(ctx context.Context, id, name string) (is model.Image, err error) {
	return c.putImage(ctx, id, name, nil, 0)
}

// PutImage sends an image of so many bytes, in the form in which images are kept.
func (c *Client) PutImage(ctx context.Context, id, name string, size int64, content io.Reader) (model.Image, error) {
	return c.putImage(ctx, id, name, content, size)
}

func (c *Client) putImage(ctx context.Context, id, name string, content io.Reader, size int64) (is model.Image,
	err error) {
	header := http.Header{"Content-Type": {"application/x-tar"}}
	if content != nil {
		header.Set("Expect", "100-continue") // what is refused for its size is not sent
	}
	resp, err := c.send(ctx, http.MethodPut, path("images", id), url.Values{"name": {name}}, header, content, size)
	if err != nil {
		return is, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&is); err != nil {
		return is, fmt.Errorf("send image %s: the manager's answer: %w", name, c.explain(err))
	}
	return is, nil
}

// RemoveImage removes an image, or one of its names.
func (c *Client) RemoveImage(ctx context.Context, of string) (is model.Image, err error) {
	return is, c.do(ctx, http.MethodDelete, path("images", of), nil, nil, &is)
}

// KeptTree opens files that networks put into elements, as they are kept. Its end is an error where it is not whole.
func (c *Client) KeptTree(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, path("trees", id), nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Image opens an image for a node, and tells how many bytes it has; -1 where that is not known. Its end is an error
// where it is not whole.
func (c *Client) Image(ctx context.Context, node, id string) (r io.ReadCloser, size int64, err error) {
	resp, err := c.open(ctx, http.MethodGet, path("nodes", node, "images", id), nil, nil, nil)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}
