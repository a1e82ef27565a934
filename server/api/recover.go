package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// Data is what is done for data's sake.
type Data interface {
	// Recover puts networks together from what nodes were told to have.
	Recover(ctx context.Context, request model.RecoverRequest) (model.RecoverResult, error)
}

type recoverInput struct{ Body model.RecoverRequest }

func (s *Server) dataRoutes(api huma.API) {
	huma.Register(api, operation("recover", http.MethodPost, "/recover",
		"Put networks that the store does not know together again, from what nodes were told to have", "data"),
		func(ctx context.Context, in *recoverInput) (*body[model.RecoverResult], error) {
			r, err := s.data.Recover(ctx, in.Body)
			return &body[model.RecoverResult]{r}, statusError(err)
		})
}
