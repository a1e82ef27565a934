package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api/client"
)

func (f *fake) Images(context.Context) ([]model.Image, error) { return f.images, nil }

func (f *fake) NameImage(_ context.Context, id, name string) (model.Image, error) {
	for i := range f.images {
		if f.images[i].ID == id {
			if name != "" {
				f.images[i].Names = append(f.images[i].Names, name)
			}
			return f.images[i], nil
		}
	}
	return model.Image{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no image"}
}

func (f *fake) KeptTree(_ context.Context, id string) (io.ReadCloser, error) {
	data, ok := f.keptTrees[id]
	if !ok {
		return nil, &client.Error{Status: http.StatusNotFound, Detail: "there is no tree"}
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (f *fake) PutImage(ctx context.Context, id, name string, size int64, r io.Reader) (model.Image, error) {
	if f.cut > 0 { // the manager ends
		f.cut--
		io.CopyN(io.Discard, r, 1<<10) //nolint:errcheck // as it is
		return model.Image{}, fmt.Errorf("write unix: %w", syscall.EPIPE)
	}
	if f.stuck {
		<-ctx.Done()
		return model.Image{}, ctx.Err()
	}
	data, err := io.ReadAll(r)
	n := int64(len(data))
	if name == "" {
		if f.keptTrees == nil {
			f.keptTrees = map[string][]byte{}
		}
		f.keptTrees[id] = data
	}
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes were sent, and %d announced", n, size)
	}
	is := model.Image{ID: id, Names: []string{name}, Size: model.Bytes(n), Unpacked: 1 << 20, Files: 1}
	f.images = append(f.images, is)
	return is, err
}

func (f *fake) RemoveImage(_ context.Context, of string) (model.Image, error) {
	for i, is := range f.images {
		if slices.Contains(is.Names, of) {
			f.images = slices.Delete(f.images, i, i+1)
			return is, nil
		}
	}
	return model.Image{}, &client.Error{Status: http.StatusNotFound, Detail: "there is no image " + of}
}

func (f *fake) Trash(context.Context) (model.TrashList, error) { return f.trash, nil }

func (f *fake) RestoreTrash(_ context.Context, request model.TrashRequest) error {
	f.restored = append(f.restored, request)
	return nil
}

func (f *fake) EmptyTrash(context.Context, []string) error { return nil }

func (f *fake) RenewDisk(context.Context, model.ID) error { return nil }

func (f *fake) Recover(context.Context, model.RecoverRequest) (model.RecoverResult, error) {
	return model.RecoverResult{}, nil
}

func (f *fake) Forget(_ context.Context, name string, _ bool) error {
	f.deleted = append(f.deleted, "held "+name)
	return nil
}

func (f *fake) Delete(_ context.Context, name string, _ bool) error {
	f.deleted = append(f.deleted, name)
	for i, n := range f.dump.Networks {
		if n.Name == name {
			f.dump.Networks = append(f.dump.Networks[:i:i], f.dump.Networks[i+1:]...)
			return nil
		}
	}
	return &client.Error{Status: http.StatusNotFound, Detail: "there is no network " + name}
}

func (f *fake) Exec(_ context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error) {
	if err := f.up(); err != nil {
		return 0, err
	}
	f.commands = append(f.commands, command)
	if f.inside != nil {
		return f.inside(command, stdio)
	}
	for _, e := range f.dump.Elements {
		if e.ID == id && e.Phase != model.PhaseRunning {
			return 0, errors.New("container is not running")
		}
		if e.ID == id {
			if stdio.In != nil {
				io.Copy(stdio.Out, stdio.In)
			}
			io.WriteString(stdio.Err, "on stderr\n")
			return f.exit, nil
		}
	}
	return 0, &client.Error{Status: http.StatusNotFound, Detail: "no such element"}
}

func (f *fake) Console(context.Context, model.ID, control.Size, control.Stdio) (int, error) {
	return 0, errors.New("not in this test")
}

func (f *fake) Logs(context.Context, model.ID, bool) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("zebra started\n")), f.up()
}

func (f *fake) Capture(context.Context, model.PortID) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.capture)), f.up()
}

func (f *fake) FIB(_ context.Context, id model.ID, q model.FIBRequest) (model.FIB, error) {
	if f.fib == nil {
		return model.FIB{}, &client.Error{Status: http.StatusConflict, Detail: id.String() +
			": its packets are forwarded by its own stack"}
	}
	return f.fib(q), f.up()
}

func (f *fake) Tree(_ context.Context, id model.ID) (model.Tree, error) {
	if f.tree == nil {
		return model.Tree{}, &client.Error{Status: http.StatusConflict, Detail: id.String() +
			": it runs no spanning tree"}
	}
	return *f.tree, f.up()
}

func (f *fake) Running(_ context.Context, id model.ID) (model.Running, error) {
	r, ok := f.running[id.Element]
	if !ok {
		return r, &client.Error{Status: http.StatusServiceUnavailable, Detail: "node n2 says nothing"}
	}
	return r, nil
}

func (f *fake) Pack(_ context.Context, id model.ID) (io.ReadCloser, error) {
	tree, ok := f.trees[id.Element]
	if !ok {
		return nil, &client.Error{Status: http.StatusServiceUnavailable, Detail: "node n2 says nothing"}
	}
	return io.NopCloser(bytes.NewReader(tree)), nil
}

func (f *fake) Unpack(_ context.Context, id model.ID, tree []byte) error {
	if id.Element == f.full {
		return &client.Error{Status: http.StatusInternalServerError, Detail: "no space left on device"}
	}
	if f.unpacked == nil {
		f.unpacked = map[model.ID][]byte{}
	}
	f.unpacked[id] = tree
	return nil
}

func (f *fake) Keep(_ context.Context, name string) error {
	f.kept = append(f.kept, name)
	return nil
}

func (f *fake) Trace(_ context.Context, id model.ID, q model.TraceRequest) (model.Trace, error) {
	return f.traced[id.String()], f.up()
}
