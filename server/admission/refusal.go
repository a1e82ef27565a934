package admission

import (
	"errors"
	"fmt"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// Kind is what kind of no a refusal is: what whoever asked can do about it.
type Kind int

const (
	Wrong    Kind = iota // another document would do
	NotYours             // an administrator may do it
	Conflict             // something else must be settled first
	NotYet               // the same may be right in a moment
)

// Refusal is why a network is not admitted.
type Refusal struct {
	Kind    Kind
	Detail  string
	Reasons []error // none where Detail says all; of several networks the Refusal of each
}

func (r *Refusal) Error() string {
	if len(r.Reasons) == 0 {
		return r.Detail
	}
	return r.Detail + ": " + errors.Join(r.Reasons...).Error()
}

// Unwrap makes the reasons known to errors.Is and errors.As.
func (r *Refusal) Unwrap() []error { return r.Reasons }

// wrong refuses a network for all these reasons.
func wrong(network, what string, reasons ...error) *Refusal {
	return &Refusal{Kind: Wrong, Detail: "network " + network + " " + what, Reasons: reasons}
}

// unfit refuses a document that is wrong by itself.
func unfit(network string, problems []model.Problem) *Refusal {
	reasons := each.Of(problems, func(p model.Problem) error { return withoutName(network, p) })
	return wrong(network, "is refused", reasons...)
}

// unplaced refuses a network that the embedding has no place for.
func unplaced(network string, err error) *Refusal {
	var r *embedding.Refusal
	if !errors.As(err, &r) {
		return wrong(network, "is refused", err)
	}
	reasons := each.Of(r.Problems, func(p model.Problem) error { return p })
	return wrong(network, "does not fit onto the substrate", reasons...)
}

// withoutName is a reason that stands behind words which name the network already.
func withoutName(network string, err error) error {
	rest, ok := strings.CutPrefix(err.Error(), "network "+network+": ")
	if !ok {
		return err
	}
	if p, ok := errors.AsType[model.Problem](err); ok {
		p.Message = rest
		return p
	}
	return errors.New(rest)
}

// mostRefused is how many refused networks of one request are told.
const mostRefused = 8

// Refused makes one refusal of those of several documents, by the networks' names; nil where there is none. Each reason
// then says which network it is about.
func Refused(documents []model.Network, refusals map[string]error) error {
	if len(refusals) == 0 {
		return nil
	}
	all := &Refusal{Kind: NotYet,
		Detail: fmt.Sprintf("%d of %d networks are refused (each was tried beside those before it), "+
			"so none is changed", len(refusals), len(documents))}
	for i := range documents {
		err := refusals[documents[i].Name]
		if err == nil {
			continue
		}
		var r *Refusal
		if !errors.As(err, &r) {
			return err
		}
		r = r.about(documents[i].Name)
		if len(documents) == 1 {
			return r
		}
		if r.Kind != NotYet {
			all.Kind = Wrong // what will not pass by waiting
		}
		if len(all.Reasons) == mostRefused {
			all.Reasons = append(all.Reasons, fmt.Errorf("and %d more", len(refusals)-mostRefused))
			return all
		}
		all.Reasons = append(all.Reasons, r)
	}
	return all
}

// about is the refusal with the network's name in each of its reasons.
func (r *Refusal) about(network string) *Refusal {
	told := &Refusal{Kind: r.Kind, Detail: r.Detail, Reasons: make([]error, len(r.Reasons))}
	for i, reason := range r.Reasons {
		p := model.Problem{About: model.AboutNetwork, Name: network, Message: reason.Error()}
		errors.As(reason, &p)
		p.Network, p.Index = network, 0
		told.Reasons[i] = p
	}
	return told
}
