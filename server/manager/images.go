package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/images"
)

// shelf is what is done with images of elements.
type shelf struct {
	*known
	kept      *images.Store
	verifying turns
	allowed   func(owner string) model.Quota
}

var _ api.Images = (*shelf)(nil)

// imageProblem is a refusal of the images' store as the API tells it.
func imageProblem(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, images.ErrNone):
		return api.NotFound("%v", err)
	case errors.Is(err, images.ErrWrong), errors.Is(err, images.ErrQuota):
		return api.Invalid(err.Error())
	case errors.Is(err, images.ErrBusy):
		return &api.Problem{Kind: api.KindTooMany, Detail: err.Error()}
	case errors.Is(err, linux.ErrNoRoom):
		return &api.Problem{Kind: api.KindFull, Detail: err.Error()}
	}
	return err
}

// Images are those that whoever asks may use.
func (s *shelf) Images(ctx context.Context) model.ImageList {
	all := s.kept.List(api.Only(ctx))
	used := s.relying()
	for i := range all {
		for _, network := range used[images.Holder{Owner: all[i].Owner, ID: all[i].ID}] {
			if s.checkMine(ctx, network) == nil {
				all[i].UsedBy = append(all[i].UsedBy, network)
			}
		}
	}
	return model.ImageList{Images: all}
}

func (s *shelf) checkMine(ctx context.Context, network string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.networks[network]
	if n == nil {
		return errors.New("it is gone")
	}
	return checkMine(ctx, n)
}

// used are the networks, in order, that use each image.
func (s *shelf) used() map[string][]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	used := map[string][]string{}
	for name, n := range s.networks {
		if n.damaged != nil {
			continue
		}
		for i := range n.record.Network.Elements {
			for _, id := range n.record.Network.Elements[i].ImageIDs() {
				if !slices.Contains(used[id], name) {
					used[id] = append(used[id], name)
				}
			}
		}
	}
	for _, networks := range used {
		slices.Sort(networks)
	}
	return used
}

// relying are the networks, in order, that use what somebody has: the network's owner, else an administrator, else
// whoever has it.
func (s *shelf) relying() map[images.Holder][]string {
	holders, all := s.kept.Holders(), map[images.Holder][]string{}
	used := s.used()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, networks := range used {
		for _, name := range networks {
			n := s.networks[name]
			if n == nil || n.damaged != nil {
				continue
			}
			of := holders[id]
			for _, owner := range []string{n.record.WhoseItIs(), ""} {
				if slices.Contains(of, owner) {
					of = []string{owner}
					break
				}
			}
			for _, owner := range of {
				at := images.Holder{Owner: owner, ID: id}
				all[at] = append(all[at], name)
			}
		}
	}
	return all
}

// inherit gives the new owner of a network what it uses, where the owner has changed. The caller holds changing.
func (s *shelf) inherit(was, is *model.Record) error {
	if was.WhoseItIs() == is.WhoseItIs() {
		return nil
	}
	var ids []string
	for i := range is.Network.Elements {
		ids = append(ids, is.Network.Elements[i].ImageIDs()...)
	}
	return imageProblem(s.kept.Share(ids, is.WhoseItIs(), s.quota(is.WhoseItIs())))
}

// forgetLost forgets images whose files are gone, and tells of them.
func (s *shelf) forgetLost() {
	lost, err := s.kept.ForgetLost()
	if err != nil {
		slog.Warn("images whose files are gone are not forgotten", "error", err)
	}
	for _, is := range lost {
		words := fmt.Sprintf("image %s (%s) is lost: its file is gone from the manager's disk; import or pull it again",
			model.FewNames(3, is.Names), model.ShortImage(is.ID))
		if is.Tree {
			words = fmt.Sprintf("files of %s (%s) are lost: they are gone from the manager's disk; `polyplane apply "+
				"-f` of the networks that use them brings them again", is.Unpacked.Rounded(), model.ShortImage(is.ID))
		}
		s.event(model.Warning, "manager", "ImageLost", words, "")
	}
}

// unusedTrees is how much of an owner's are files that no network uses.
func (s *shelf) unusedTrees(owner string) (size model.Bytes) {
	used := s.relying()
	for _, i := range s.kept.List(owner) {
		if i.Tree && i.Owner == owner && len(used[images.Holder{Owner: owner, ID: i.ID}]) == 0 {
			size += max(i.Size, i.Unpacked)
		}
	}
	return size
}

// relyOn are the networks that use an image and could not if this owner had it no longer. The caller holds changing.
func (s *shelf) relyOn(is model.Image) (networks []string) {
	others := slices.DeleteFunc(s.kept.List(""), func(i model.Image) bool {
		return i.ID != is.ID || i.Owner == is.Owner
	})
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, n := range s.networks {
		if n.damaged != nil || !slices.ContainsFunc(n.record.Network.Elements, func(e model.Element) bool {
			return slices.Contains(e.ImageIDs(), is.ID)
		}) {
			continue
		}
		whose := n.record.WhoseItIs()
		if !slices.ContainsFunc(others, func(i model.Image) bool { return i.Owner == "" || i.Owner == whose }) {
			networks = append(networks, name)
		}
	}
	slices.Sort(networks)
	return networks
}

// quota is how many bytes of images whoever asks may have; zero bounds nothing.
func (s *shelf) quota(owner string) model.Bytes {
	if owner == "" {
		return 0
	}
	return s.allowed(owner).Images
}

// AddImage takes an image, or gives one that is there another name where nothing is sent.
func (s *shelf) AddImage(ctx context.Context, id, name string, content io.Reader) (model.Image, error) {
	owner := api.Only(ctx)
	s.forgetLost()
	if content == nil {
		is, err := s.kept.Name(owner, id, name, s.quota(owner))
		return is, imageProblem(err)
	}
	is, err := s.kept.Add(ctx, owner, id, name, s.quota(owner), content)
	if errors.Is(err, images.ErrQuota) {
		if unused := s.unusedTrees(owner); unused > 0 {
			err = fmt.Errorf("%w; %s are files that no network uses any more: they go an hour after they were sent, "+
				"`polyplane image list` names them, and `polyplane image remove ID` removes them at once", err,
				unused.Rounded())
		}
	}
	if err == nil {
		words := fmt.Sprintf("image %s (%s) is here", name, model.ShortImage(id))
		if is.Tree {
			words = fmt.Sprintf("files of %s (%s) are here", is.Unpacked.Rounded(), model.ShortImage(id))
		}
		s.event(model.Info, "manager", "ImageAdded", words, "")
		s.collect(ctx)
	}
	return is, imageProblem(err)
}

// RemoveImage removes an image that no network uses, or one of its names.
func (s *shelf) RemoveImage(ctx context.Context, of string) (model.Image, error) {
	if err := s.changing.LockFor(ctx, api.User(ctx)); err != nil { // no network may begin to use it meanwhile
		return model.Image{}, api.Unavailable(fmt.Errorf("the request was given up before its turn came: %w", err))
	}
	defer s.changing.Unlock()
	owner := api.Only(ctx)
	is, err := s.kept.Find(owner, of)
	if err != nil {
		var none error
		if is, none = s.kept.FindTree(owner, of); none != nil {
			return is, imageProblem(err)
		}
	}
	if owner != "" && is.Owner != owner {
		return is, api.Forbidden("image %s is not user %s's", of, owner)
	}
	name, _ := model.SplitImage(of)
	if networks := s.relyOn(is); len(networks) > 0 && (len(is.Names) < 2 || !slices.Contains(is.Names, name)) {
		return is, api.Conflict("image %s is used by %s: delete them first, or give them another image", of,
			model.FewNames(5, networks))
	}
	err = s.kept.Remove(is.Owner, is.ID, name)
	if err == nil {
		s.collectNow()
	}
	return is, imageProblem(err)
}

// ReadImage opens an image for a node. One that joined gets those of elements that are placed on it: whoever knows the
// ID of an image, as of one that is public elsewhere, must not learn by it that somebody has the image here.
func (s *shelf) ReadImage(node, id string) (*os.File, error) {
	if !s.needs(node, id) {
		return nil, api.NotFound("there is no image %s for node %s: no element that is placed there is made from it",
			model.ShortImage(id), node)
	}
	f, err := s.kept.Read(id)
	if errors.Is(err, images.ErrNone) {
		s.forgetLost()
	}
	return f, imageProblem(err)
}

// needs tells whether an element on a node is made from an image; of this machine's own nodes it is not asked.
func (s *shelf) needs(node, id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.nodes[node]; n == nil || !n.Joined {
		return true
	}
	for _, n := range s.networks {
		if n.damaged != nil {
			continue
		}
		for i := range n.record.Network.Elements {
			e := &n.record.Network.Elements[i]
			if slices.Contains(e.ImageIDs(), id) && n.record.Assigned.Placement.Elements[e.Name] == node {
				return true
			}
		}
	}
	return false
}

// collectEvery is how often images without a name are looked at that a network may have ceased to use.
const collectEvery = 10 * time.Minute

// tend removes images that have become nobody's until the context ends.
func (s *shelf) tend(ctx context.Context) {
	tick := time.Tick(collectEvery)
	for {
		s.collect(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// collect removes images that have no name any more and that nobody uses.
func (s *shelf) collect(ctx context.Context) {
	if s.changing.LockFor(ctx, api.User(ctx)) != nil {
		return // the next import does it
	}
	defer s.changing.Unlock()
	s.collectNow()
}

// collectNow does the work of collect. The caller holds changing, so no network begins to use one meanwhile.
func (s *shelf) collectNow() {
	s.forgetLost()
	used := map[images.Holder]bool{}
	for of := range s.relying() {
		used[of] = true
	}
	if err := s.kept.Collect(used); err != nil {
		slog.Warn("images that nobody uses are not removed", "error", err)
	}
}

// access is what somebody may use of the trees. It is looked up once for as many as a request may name.
type access struct {
	*shelf
	ctx   context.Context
	trees map[string]images.Tree // all, by ID
	used  map[string][]string    // the networks that use each, once that counts
}

func (s *shelf) accessOf(ctx context.Context) *access {
	return &access{shelf: s, ctx: ctx, trees: s.kept.Trees()}
}

// lacks adds which trees of an element are not here, as long as they are told one by one.
func (a *access) lacks(n *model.Network, e *model.Element, missing []error) []error {
	for _, at := range slices.Sorted(maps.Keys(e.Contents)) {
		tree := e.Contents[at].Tree
		if tree == "" || len(missing) >= model.MostNamed {
			continue
		}
		if err := a.mayUse(tree); err != nil {
			missing = append(missing, fmt.Errorf("%s/%s: files: %s: %w: `polyplane apply -f` brings it where the file "+
				"names it by its path", n.Name, e.Name, model.Shorten(at, model.MaxName), err))
		}
	}
	return missing
}

// mayUse tells why somebody may not use a tree: it is no tree, or another's and in no network of the own. An image that
// elements are made from is never one: its links lead where they would in an element, and nowhere else.
func (a *access) mayUse(id string) error {
	tree, is := a.trees[id]
	if !is {
		return images.NoTree(id)
	}
	if owner := api.Only(a.ctx); owner == "" || slices.Contains(tree.Owners, owner) {
		return nil
	}
	if a.used == nil {
		a.used = a.shelf.used()
	}
	if slices.ContainsFunc(a.used[id], func(network string) bool { return a.checkMine(a.ctx, network) == nil }) {
		return nil
	}
	return images.NoTree(id)
}

// sized are an element's files with the sizes that trees have, whatever a document says of them; nil where it is right.
func (a *access) sized(all map[string]model.File) (sized map[string]model.File) {
	for at, f := range all {
		if is := a.trees[f.Tree].Bytes; f.Tree != "" && is > 0 && f.Size != is {
			if sized == nil {
				sized = maps.Clone(all)
			}
			f.Size = is
			sized[at] = f
		}
	}
	return sized
}

// ReadTree opens a tree for whoever may use it.
func (s *shelf) ReadTree(ctx context.Context, id string) (*os.File, error) {
	if err := s.accessOf(ctx).mayUse(id); err != nil {
		return nil, imageProblem(err)
	}
	f, err := s.kept.Read(id)
	return f, imageProblem(err)
}

// pin returns the documents with the IDs of their images. In a plan those that are not here are let be: apply
// brings them.
func (s *shelf) pin(ctx context.Context, documents []model.Document, dry bool) ([]model.Document, error) {
	owner := api.Only(ctx)
	s.forgetLost()
	trees := s.accessOf(ctx)
	var missing []error
	what := "images"
	out := slices.Clone(documents)
	for i := range out {
		elements := out[i].Network.Elements
		cloned := false
		own := func() { // what was given stays as it is
			if !cloned {
				elements, cloned = slices.Clone(elements), true
				out[i].Network.Elements = elements
			}
		}
		for k := range elements {
			if sized := trees.sized(elements[k].Contents); sized != nil {
				own()
				elements[k].Contents = sized
			}
			if !dry {
				if all := trees.lacks(&out[i].Network, &elements[k], missing); len(all) > len(missing) {
					missing, what = all, "images or files"
				}
			}
			of := elements[k].Image
			if of == "" {
				continue
			}
			is, err := s.kept.Find(owner, of)
			if err != nil {
				if !dry && len(missing) < model.MostNamed {
					missing = append(missing, fmt.Errorf("%s/%s: %w: `polyplane image import FILE` brings one, "+
						"`polyplane image pull NAME` has it from a registry",
						out[i].Network.Name, elements[k].Name, err))
				}
				continue
			}
			own()
			name, _ := model.SplitImage(of)
			if name == is.ID || model.IsImageID("sha256:"+name) {
				name = ""
			}
			elements[k].Image = model.PinImage(name, is.ID)
		}
	}
	if len(missing) > 0 {
		return nil, api.Invalid("some "+what+" are not here", missing...)
	}
	return out, nil
}
