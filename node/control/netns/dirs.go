package netns

import (
	"maps"
	"path"
	"slices"
)

// Directories that were made for what an element is given go with the last of it, if nothing else is in them. They are
// noted before they are made: those that were there before, or that were made inside, stay. Those below a tree's own go
// by themselves (trees_write.go), since there may be thousands.

// dirsToMake are those that were made before, and those that are about to be.
func (f *elementFiles) dirsToMake(p *planting, made []string) []string {
	all := map[string]bool{}
	for _, dir := range made {
		all[dir] = true
	}
	for way := range f.ways {
		dir := "/" + way
		if info, err := f.root.Stat(way); (err != nil || !info.IsDir()) && !slices.ContainsFunc(p.trees,
			func(t *planted) bool {
				_, in := belowTree(t.at, dir)
				return in && dir != t.at
			}) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// removeMade removes those in which nothing is left and that nothing needs, and returns those that are still there.
func (f *elementFiles) removeMade(made []string, s *seeds) (left []string) {
	needed := map[string]bool{}
	need := func(dir string) {
		for ; dir != "/" && !needed[dir]; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	for file := range s.Given {
		need(path.Dir(file))
	}
	for at := range s.Trees {
		need(at)
	}
	for _, dir := range slices.Backward(made) {
		if f.isOwnDir(dir) && (needed[dir] || f.root.Remove(rel(dir)) != nil) {
			left = append(left, dir)
		}
	}
	slices.Reverse(left)
	return left
}

// isOwnDir tells whether there is a directory at a path, and no link on the way, which may lead to somebody else's.
func (f *elementFiles) isOwnDir(at string) bool {
	for ; at != "/"; at = path.Dir(at) {
		if !f.isDir(at) {
			return false
		}
	}
	return true
}
