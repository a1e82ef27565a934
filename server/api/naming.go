package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// putNetwork names the network in its document, too.
const putNetwork = "PUT /v1/networks/{network}"

// naming tells whether a request wants networks called as people call them, and who root says to be.
func naming(r *http.Request) (as string, names bool) {
	all, names := r.Header[model.NamesHeader]
	if !names {
		return "", false
	}
	return all[0], true
}

// asker is the caller as one who names networks.
func (c Caller) asker() model.Asker {
	return model.Asker{Name: cmp.Or(c.Name, c.As), Only: c.owner(), Keys: !c.owner() && !c.Names}
}

// Asking is whoever makes a request, as one who names networks.
func Asking(ctx context.Context) model.Asker { return callerOf(ctx).asker() }

// names are the networks that a caller may name, and those of which only something is left.
func (g *guard) names(c Caller) *model.Names {
	as, narrow := c.asker(), ""
	if as.Only {
		narrow = as.Name
	}
	names := as.Among(g.gate.Names(narrow))
	for _, is := range g.gate.Left(narrow) {
		names.Add(is)
	}
	return names
}

// resolve puts keys in the place of what a request calls networks. It is done once, before it is looked at what the
// caller may do, and nobody behind it knows anything but keys. What there is not stays as it is, and so has the same
// answers as if it were somebody else's.
func (g *guard) resolve(c Caller, pattern string, r *http.Request) error {
	if c.Role == "" || pattern == putNetwork {
		return nil // documents name themselves: the manager finds out which they are, under its lock
	}
	if reference := r.PathValue("network"); reference != "" {
		key, err := g.key(c, reference)
		if err != nil {
			return err
		}
		setNetwork(r, key)
	}
	if r.PathValue("kind") == string(model.QuotaOfNetwork) {
		key, err := g.key(c, r.PathValue("name"))
		if err != nil {
			return err
		}
		r.SetPathValue("name", key)
	}
	query := r.URL.Query()
	if reference := query.Get("network"); reference != "" {
		key, err := g.key(c, reference)
		if err != nil {
			return err
		}
		query.Set("network", key)
		r.URL.RawQuery = query.Encode()
	}
	return nil
}

// key is the key of the network that a caller means.
func (g *guard) key(c Caller, reference string) (string, error) {
	names := g.names(c)
	is, err := names.Find(reference)
	switch {
	case err == nil:
		return is.Key, nil
	case err != model.ErrNoNetwork: //nolint:errorlint // Find gives these two
		return "", Conflict("network %v", err)
	case c.owner(): // who has nothing but what was found
		return reference, nil
	}
	return names.FindLeft(reference), nil
}

// setNetwork has a request be about the network of a key: also in its path, with which an agent is asked.
func setNetwork(r *http.Request, key string) {
	was := r.PathValue("network")
	r.SetPathValue("network", key)
	path := strings.Replace(r.URL.EscapedPath(), "/networks/"+escaped(r.URL.EscapedPath()),
		"/networks/"+url.PathEscape(key), 1)
	if plain, err := url.PathUnescape(path); err == nil && was != key {
		r.URL.Path, r.URL.RawPath = plain, path
	}
}

// escaped is the network in a path, as it is written there.
func escaped(path string) string {
	_, rest, _ := strings.Cut(path, "/networks/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

type wordsKey struct{}

// wordsOf calls networks as whoever asks calls them.
func wordsOf(ctx context.Context) func(string) string {
	if words, ok := ctx.Value(wordsKey{}).(func(string) string); ok && !callerOf(ctx).asker().Keys {
		return words
	}
	return func(text string) string { return text }
}

// inWords is an error in which networks are called as whoever asks calls them.
func inWords(ctx context.Context, err error) error {
	return Retold(err, wordsOf(ctx), func(key string) string { return key })
}

// Retold is an error with other words, and with other names of the networks that it is about.
func Retold(err error, words, name func(string) string) error {
	var several *Problem
	var one model.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several): // what is answered
		p := &Problem{Kind: several.Kind, Detail: words(several.Detail)}
		for _, reason := range several.Reasons {
			p.Reasons = append(p.Reasons, Retold(reason, words, name))
		}
		return p
	case errors.As(err, &one):
		return retoldProblem(one, words, name)
	}
	if text := words(err.Error()); text != err.Error() {
		return &retold{text, err}
	}
	return err
}

func retoldProblem(p model.Problem, words, name func(string) string) model.Problem {
	if p.Network != "" {
		p.Network = name(p.Network)
	}
	if p.About == model.AboutNetwork {
		p.Name = name(p.Name)
	}
	p.Message = words(p.Message)
	return p
}

// retold is an error in other words.
type retold struct {
	text string
	err  error
}

func (r *retold) Error() string { return r.text }

func (r *retold) Unwrap() error { return r.err }

// nameList are the networks that whoever asks may name.
func (s *Server) nameList(ctx context.Context) model.NameList {
	as, narrow := Asking(ctx), ""
	if as.Only {
		narrow = as.Name
	}
	all := s.gate.Names(narrow)
	names := as.Among(all)
	list := model.NameList{User: as.Name, Only: as.Only, Networks: make([]model.CalledNetwork, len(all))}
	for i, is := range all {
		list.Networks[i] = model.CalledNetwork{Name: names.Name(is), Owner: is.Owner, Title: is.Title}
		if !as.Only {
			list.Networks[i].Key = is.Key
		}
	}
	slices.SortFunc(list.Networks, func(a, b model.CalledNetwork) int { return strings.Compare(a.Name, b.Name) })
	return list
}
