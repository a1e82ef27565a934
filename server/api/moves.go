package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// Moves moves elements between nodes.
type Moves interface {
	// Move begins a move, or tells what it would do.
	Move(ctx context.Context, id model.ID, request model.MoveRequest) (model.MoveResult, error)
	// Moves are those under way, and the latest that have ended, as far as whoever asks may see them.
	Moves(ctx context.Context, network string) ([]model.MoveStatus, error)
}

type moveInput struct {
	ElementPath
	Body model.MoveRequest
}

func (s *Server) moveRoutes(api huma.API) {
	reply(api, operation("move", http.MethodPost, "/networks/{network}/elements/{element}/move",
		"Move an element to another node with what it owns on disk", "elements"),
		func(ctx context.Context, in *moveInput) (model.MoveResult, error) {
			return s.moves.Move(ctx, in.id(), in.Body)
		})
	reply(api, operation("moves", http.MethodGet, "/moves",
		"The moves of elements that are under way, and the latest that have ended", "elements"),
		func(ctx context.Context, in *OfNetwork) ([]model.MoveStatus, error) {
			if c := callerOf(ctx); c.owner() && in.Network != "" {
				if err := s.guard.owns(c, in.Network); err != nil {
					return nil, err
				}
			}
			all, err := s.moves.Moves(ctx, in.Network)
			return list(all), err
		})
}
