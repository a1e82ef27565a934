package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// target is an element or a link that a command acts on.
type target struct {
	id   model.ID
	link bool // then id.Element is the link's name
}

// byEnds is a link named by its ends, as files have it: NET/a -- b, NET/a:eth0 -- b:eth1.
var byEnds = regexp.MustCompile(`^([^/\s]*(?:/[^/\s:]+)?)/(\S+)\s+--\s+(\S+)$`)

// joinDashes makes one word of `NET/a -- b` again. A shell hands it over as three words, and cobra takes the `--` for
// the end of the flags.
func joinDashes(cmd *cobra.Command, given []string) []string {
	if at := cmd.ArgsLenAtDash(); at == 1 && len(given) == 2 {
		return []string{given[0] + " -- " + given[1]}
	}
	return given
}

// targets finds elements and, with links, links by what people call them. It changes nothing.
func (c *CLI) targets(ctx context.Context, cl Client, given []string, links bool) ([]target, error) {
	refs := c.refs(ctx)
	found := make([]target, len(given))
	for i, s := range given {
		m := byEnds.FindStringSubmatch(s)
		if m != nil && links {
			network, err := refs.network(m[1])
			if err != nil {
				return nil, err
			}
			name, err := linkByEnds(ctx, cl, network, m[2], m[3])
			if err != nil {
				return nil, err
			}
			found[i] = target{model.ID{Network: network, Element: name}, true}
			continue
		}
		id, err := refs.element(s)
		if err != nil && links && exitCode(err) == ExitUsage {
			err = usageError(nil, "%q is neither an element nor a link: NET/ELEMENT is expected, such as lab/r1, or "+
				"NET/LINK, such as lab/r1--r2 or 'lab/r1 -- r2'", s)
		}
		if err != nil {
			return nil, err
		}
		found[i].id = id
	}
	for i := range found {
		t := &found[i]
		if t.link {
			continue
		}
		of := ref{network: t.id.Network, element: t.id.Element}
		missing := lookUp(ctx, cl, of)
		if missing == nil {
			continue
		}
		all, err := cl.Links(ctx, t.id.Network)
		if err != nil {
			return nil, missing
		}
		is := slices.ContainsFunc(all, func(l model.LinkStatus) bool {
			return l.Network == t.id.Network && l.Link.Name == t.id.Element
		})
		switch {
		case is && !links:
			return nil, failed("%s is a link; links can be started and stopped, the rest is for elements", t.id)
		case is:
			t.link = true
		case links:
			return nil, lookUpObject(ctx, cl, of)
		default:
			return nil, missing
		}
	}
	return found, nil
}

// linkByEnds is the name of the only link between two ends, in whichever order they are given.
func linkByEnds(ctx context.Context, cl Client, network, a, b string) (string, error) {
	if err := lookUp(ctx, cl, ref{network: network}); err != nil {
		return "", err
	}
	links, err := cl.Links(ctx, network)
	if err != nil {
		return "", err
	}
	is := func(e model.End, said string) bool {
		element, iface, stated := strings.Cut(said, ":")
		return e.Element == element && (!stated || e.Interface == iface)
	}
	var names []string
	for _, l := range links {
		if e := l.Link.Ends; l.Network == network && (is(e[0], a) && is(e[1], b) || is(e[0], b) && is(e[1], a)) {
			names = append(names, l.Link.Name)
		}
	}
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", notFound("network %s has no link %s -- %s; `polyplane get links %s` lists those there are", network,
			a, b, network)
	}
	return "", failed("network %s has %d links %s -- %s: name one of %s", network, len(names), a, b,
		strings.Join(names, ", "))
}

// actOnLink stops or starts a link. What it starts is as the network's document says again.
func (c *CLI) actOnLink(ctx context.Context, cl Client, id model.ID, action model.Action, wait bool,
	timeout time.Duration) (changed bool, err error) {
	state := map[model.Action]model.LinkState{model.ActionStop: model.LinkDown}[action] // up is the default
	of := ref{network: id.Network, element: id.Element}
	result, err := cl.Set(ctx, id.Network, model.SetRequest{Object: id.Element,
		Values: []model.Assignment{{Key: "state", Value: string(state)}}})
	if err != nil {
		return false, err
	}
	if !wait || !result.Changed {
		return result.Changed, nil
	}
	if err := awaitSet(ctx, cl, of, id.String(), result, timeout); err != nil || action != model.ActionStop {
		return true, err
	}
	// Commands that follow shall find the link stopped.
	err = poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		all, err := cl.Links(ctx, id.Network)
		return !slices.ContainsFunc(all, func(l model.LinkStatus) bool {
			return l.Network == id.Network && l.Link.Name == id.Element && l.Up && l.LastTold == 0
		}), err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = &Error{Code: ExitTimeout, Err: fmt.Errorf("its ends still have carrier after %s; `polyplane describe "+
			"%s` tells more", timeout, id)}
	}
	return true, err
}

// completeLinks offers a network's links once the network is typed.
func (c *CLI) completeLinks(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	network := within(ctx, cl, typed)
	if network == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	links, err := cl.Links(ctx, network)
	names := each.Of(links, func(l model.LinkStatus) string { return fmt.Sprintf("%s/%s", l.Network, l.Link.Name) })
	return offer(names, err, typed)
}
