package admission

import (
	"slices"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// Admit decides about a draft: whether there is room for the network beside the others, and where. The order matters:
// what is cheap and what needs no placement comes first, and a node is blamed for its silence only where nothing else
// is wrong.
func (s *Situation) Admit(d *Draft) (Network, error) {
	doc, old, resolved := &d.next.Network, d.old, &d.resolved
	taken := make([]model.Assigned, 0, len(s.Others)+1)
	for i := range s.Others {
		taken = append(taken, s.Others[i].Assigned)
	}
	numbers := resolve.NewNumbers(append(taken, d.was)...)
	assigned, err := numbers.Renumber(resolved, d.assigned, d.was)
	if err != nil {
		return Network{}, wrong(doc.Name, "is refused", withoutName(doc.Name, err))
	}
	if problems := s.checkQuotas(&d.next, old); len(problems) > 0 {
		return Network{}, wrong(doc.Name, "does not fit into its quota", problems...)
	}
	if problems := checkDisks(old, resolved); len(problems) > 0 {
		return Network{}, wrong(doc.Name, "is refused", problems...)
	}
	if problems := slices.Concat(checkSoftware(resolved), checkSlice(&resolved.Slice, s.Substrate)); len(problems) > 0 {
		return Network{}, wrong(doc.Name, "is refused", problems...)
	}
	current := embedding.Current{Placement: d.was.Placement}
	if old != nil {
		current.Network = old.Resolved
	}
	assigned.Placement, err = embedding.Embed(s.Substrate, s.Offers, embedding.UsageOf(s.Others), *resolved, current)
	if err != nil {
		return Network{}, unplaced(doc.Name, err)
	}
	if s.checkRefusing(old, doc.Name, assigned.Placement.Elements) != nil {
		// It goes where it is taken, if it can. Otherwise the reason why it is not is told below.
		current.Shut = s.Refusing
		if p, err := embedding.Embed(s.Substrate, s.Offers, embedding.UsageOf(s.Others), *resolved,
			current); err == nil {
			assigned.Placement = p
		}
	}
	placed := assigned.Placement.Elements
	if problems := slices.Concat(checkEdges(doc, placed, s.Others), s.checkDevices(old, doc, placed),
		s.checkForwards(old, doc, placed), s.checkTables(doc, placed)); len(problems) > 0 {
		return Network{}, wrong(doc.Name, "does not fit onto the substrate", problems...)
	}
	if err := s.checkHeard(old, resolved, placed); err != nil {
		return Network{}, err
	}
	if err := s.checkRefusing(old, doc.Name, placed); err != nil {
		return Network{}, err
	}
	if err := assigned.Turn(&d.was, s.Substrate, numbers.VNI); err != nil {
		return Network{}, wrong(doc.Name, "is refused", err)
	}
	next := d.next
	next.Assigned = assigned
	if old != nil {
		if m := old.Record.Moving; m != nil && placed[m.Element] == m.To {
			next.Moving = m // what it has been sent is still to be taken up
		}
	}
	if s.restrain(&next, old); s.Overwrite {
		next.Overrides = overwriteAll(next.Overrides, resolved)
	}
	if s.Owner {
		if err := checkTaken(&next, old); err != nil {
			return Network{}, err
		}
	}
	// Last, since whoever allows it shall not learn of something else then.
	if problems := s.checkMoves(old, placed); len(problems) > 0 {
		return Network{}, wrong(doc.Name, "would lose files, which only --lose-files allows", problems...)
	}
	return Network{next, *resolved}, nil
}

// Together decides about networks that are applied together, in the order of their documents. One that is decided about
// sees those before it as they will be. Those behind it have what they will ask for, where they are now: what one gives
// up another of the same file may have, in whatever order they stand. The error, if there is one, tells of all that are
// refused.
func (s Situation) Together(documents []model.Network, drafts []*Draft) ([]Network, error) {
	hoped := make([]model.Record, len(documents))
	for i, d := range drafts {
		if d.old != nil {
			hoped[i] = expected(d.old.Record, documents[i])
		}
	}
	others := s.Others
	admitted := make([]Network, len(documents))
	refusals := map[string]error{}
	for i, d := range drafts {
		s.Others = slices.Clone(others)
		for k := range documents {
			switch {
			case k < i && refusals[documents[k].Name] == nil:
				s.Others = append(s.Others, admitted[k].Record)
			case k != i && drafts[k].old != nil:
				s.Others = append(s.Others, hoped[k])
			}
		}
		var err error
		if admitted[i], err = s.Admit(d); err != nil {
			refusals[documents[i].Name] = err
		}
	}
	return admitted, Refused(documents, refusals)
}

// expected is what a network that is to become like the document takes until it is worked out: what the document, and
// what was set and stays, asks for of what is there, and the numbers that it has.
func expected(r model.Record, doc model.Network) model.Record {
	doc, _ = model.Inherit(doc, r.Network, r.Set)
	bandwidth := make(map[string]model.Bandwidth, len(doc.Links))
	for i := range doc.Links {
		bandwidth[doc.Links[i].Name] = doc.Slice.Reserves(&doc.Links[i])
	}
	links := make(map[string][]model.LinkPath, len(r.Assigned.Placement.Links))
	for name, paths := range r.Assigned.Placement.Links {
		rate, stays := bandwidth[name]
		for _, p := range paths {
			if stays {
				links[name] = append(links[name], model.LinkPath{Nodes: p.Nodes, Bandwidth: rate})
			}
		}
	}
	r.Network, r.Assigned.Placement.Links = doc, links
	return r
}
