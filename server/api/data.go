package api

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// Data is backups, the trash, and recovery from what nodes hold.
type Data interface {
	// Backup writes a backup of everything that the instance cannot do without.
	Backup(ctx context.Context, w io.Writer) (int64, error)
	// Trash is what is in the nodes' trash, or, for an owner, what was the owner's; RestoreTrash gives items back to
	// elements, EmptyTrash deletes items, or all.
	Trash(ctx context.Context) (model.TrashList, error)
	RestoreTrash(ctx context.Context, request model.TrashRequest) error
	EmptyTrash(ctx context.Context, items []string) error
	// Recover puts networks together from what nodes were told to have.
	Recover(ctx context.Context, request model.RecoverRequest) (model.RecoverResult, error)
}

type trashInput struct{ Body model.TrashRequest }

type recoverInput struct{ Body model.RecoverRequest }

// dataRoutes are about what outlives elements, and the store.
func (s *Server) dataRoutes(api huma.API) {
	op := operation("backup", http.MethodGet, "/backup", "A backup of everything that the instance cannot do without",
		"data")
	op.Responses = map[string]*huma.Response{"200": {Description: "a stream",
		Content: map[string]*huma.MediaType{"application/octet-stream": {}}}}
	api.OpenAPI().AddOperation(&op)
	s.guard.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		out := &answered{ResponseWriter: w}
		if _, err := s.data.Backup(r.Context(), out); err != nil {
			if !out.begun {
				writeProblem(w, err)
				return
			}
			panic(http.ErrAbortHandler) // so that whoever reads it learns that it is not whole
		}
	})
	reply(api, operation("trash", http.MethodGet, "/trash", "What removed elements owned on disk", "data"),
		func(ctx context.Context, _ *struct{}) (model.TrashList, error) { return s.data.Trash(ctx) })
	obey(api, operation("restore-trash", http.MethodPost, "/trash/restore",
		"Give disks out of the trash back to elements of their names, which must be stopped", "data"),
		func(ctx context.Context, in *trashInput) error {
			err := s.keyItems(ctx, &in.Body)
			if err == nil {
				err = s.data.RestoreTrash(ctx, in.Body)
			}
			return err
		})
	obey(api, operation("empty-trash", http.MethodPost, "/trash/empty",
		"Delete items of the trash for good; all, where none is named", "data"),
		func(ctx context.Context, in *trashInput) error {
			err := s.keyItems(ctx, &in.Body)
			if err == nil {
				err = s.data.EmptyTrash(ctx, in.Body.Items)
			}
			return err
		})
	reply(api, operation("recover", http.MethodPost, "/recover",
		"Put networks that the store does not know together again, from what nodes were told to have", "data"),
		func(ctx context.Context, in *recoverInput) (model.RecoverResult, error) {
			for i, reference := range in.Body.Networks {
				key, err := s.guard.key(callerOf(ctx), reference)
				if err != nil {
					return model.RecoverResult{}, err
				}
				in.Body.Networks[i] = key
			}
			return s.data.Recover(ctx, in.Body)
		})
}

// answered notes that an answer has begun.
type answered struct {
	http.ResponseWriter
	begun bool
}

func (a *answered) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// keyItems puts keys in the place of what whoever asks calls the networks of items of the trash.
func (s *Server) keyItems(ctx context.Context, request *model.TrashRequest) error {
	if len(request.Items) == 0 || callerOf(ctx).asker().Keys {
		return nil
	}
	list, err := s.data.Trash(ctx)
	if err != nil {
		return err
	}
	names, of := s.namesOf(ctx), map[string]string{}
	for _, i := range list.Items {
		of[names.Of(i.ID, i.Element.Network)] = i.ID
	}
	request.Items = slices.Clone(request.Items)
	for i, item := range request.Items {
		if id, there := of[item]; there {
			request.Items[i] = id
		}
	}
	return nil
}
