package agent

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

func (a *Agent) fib(w http.ResponseWriter, r *http.Request) error {
	var request model.FIBRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	found, err := inspect(a, idOf(r), func(p forward.Inspector) (model.FIB, error) { return p.FIB(idOf(r), request) })
	if err != nil {
		return err
	}
	return answer(w, found)
}

func (a *Agent) trace(w http.ResponseWriter, r *http.Request) error {
	var request model.TraceRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	now := a.Drivers.Fabric.Steered()[idOf(r)]
	found, err := inspect(a, idOf(r),
		func(p forward.Inspector) (model.Trace, error) { return p.Trace(idOf(r), now, request) })
	if err != nil {
		return err
	}
	return answer(w, found)
}

// inspect asks the plane that forwards for an element.
func inspect[T any](a *Agent, id model.ID, ask func(forward.Inspector) (T, error)) (T, error) {
	var none T
	if _, err := driver[control.Driver](a, id, ""); err != nil {
		return none, err
	}
	for _, p := range a.Drivers.Planes {
		inspector, ok := p.(forward.Inspector)
		if !ok {
			continue
		}
		found, err := ask(inspector)
		switch {
		case err == nil:
			return found, nil
		case !errors.Is(err, forward.ErrNotForwarded):
			return none, &httpError{http.StatusUnprocessableEntity, fmt.Sprintf("%s: %s", id, err)}
		}
	}
	return none, &httpError{http.StatusConflict,
		fmt.Sprintf("%s: %s: it has no tables in a fast path (`polyplane set NET/ROUTER forwarding=xdp` gives a "+
			"router that runs some)", id, forward.ErrNotForwarded)}
}

func (a *Agent) tree(w http.ResponseWriter, r *http.Request) error {
	tree, err := a.treeOf(idOf(r))
	if err != nil {
		return err
	}
	return answer(w, tree)
}

// treeOf asks the plane that forwards for a switch about its spanning tree.
func (a *Agent) treeOf(id model.ID) (model.Tree, error) {
	if _, err := driver[control.Driver](a, id, ""); err != nil {
		return model.Tree{}, err
	}
	for _, p := range a.Drivers.Planes {
		treed, ok := p.(forward.Treed)
		if !ok {
			continue
		}
		tree, err := treed.Tree(id)
		switch {
		case err == nil:
			return tree, nil
		case !errors.Is(err, forward.ErrNotForwarded):
			return tree, &httpError{http.StatusUnprocessableEntity, fmt.Sprintf("%s: %s", id, err)}
		}
	}
	return model.Tree{}, &httpError{http.StatusConflict, fmt.Sprintf("%s: it runs no spanning tree", id)}
}
