package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// owned is an instance with networks of several owners. Of one of mine an element is called as one of ann's networks is.
func owned() *fake {
	f := &fake{me: "me"}
	for _, is := range [][3]string{{"duo", "me", "duo"}, {"ann/duo", "ann", "duo"}, {"ann/lab", "ann", "lab"},
		{"ann", "me", "ann"}, {"ben/duo", "ben", "duo"}, {"ben/solo", "ben", "solo"}, {"ann/two", "ann", "two"},
		{"ben/two", "ben", "two"}, {"free", "", "free"}} {
		f.dump.Networks = append(f.dump.Networks, model.NetworkStatus{Name: is[0], Owner: is[1], Title: is[2]})
	}
	for _, network := range []string{"duo", "ann/duo", "ann/lab", "ben/solo"} {
		f.dump.Elements = append(f.dump.Elements, model.ElementView{ElementStatus: model.ElementStatus{
			ID: model.ID{Network: network, Element: "r1"}}})
	}
	f.dump.Elements = append(f.dump.Elements, model.ElementView{ElementStatus: model.ElementStatus{
		ID: model.ID{Network: "ann", Element: "lab"}}})
	f.dump.Links = []model.LinkStatus{{Network: "ann", Link: model.Link{Name: "two"}}}
	return f
}

// What users type names networks of theirs and of others, elements, links and interfaces of them.
func TestWhatIsNamed(t *testing.T) {
	const wrong = "!"
	c := New(func(string) (Client, error) { return owned(), nil })
	for _, test := range []struct{ typed, network, any, element, port string }{
		{typed: "duo", network: "duo", any: "duo||", element: wrong, port: wrong},
		{typed: "me/duo", network: "duo", any: "duo||", element: "me|duo|", port: wrong},
		{typed: "duo/r1", network: "duo/r1", any: "duo|r1|", element: "duo|r1|", port: wrong},
		{typed: "ann/duo", network: "ann/duo", any: "ann/duo||", element: "ann|duo|", port: wrong},
		{typed: "ann/duo/r1", network: wrong, any: "ann/duo|r1|", element: "ann/duo|r1|", port: wrong},
		{typed: "me/duo/r1", network: wrong, any: "duo|r1|", element: "duo|r1|", port: wrong},
		{typed: "duo/r1:ge-0/0/1", network: wrong, any: "duo|r1|ge-0/0/1", element: wrong, port: "duo|r1|ge-0/0/1"},
		{typed: "ann/duo/r1:et-0/0/1:0", network: wrong, any: "ann/duo|r1|et-0/0/1:0", element: wrong,
			port: "ann/duo|r1|et-0/0/1:0"},
		{typed: "solo", network: "ben/solo", any: "ben/solo||", element: wrong, port: wrong},
		{typed: "solo/r1", network: "solo/r1", any: "ben/solo|r1|", element: "ben/solo|r1|", port: wrong},
		{typed: "ann/lab", network: "ann/lab", any: "? ann/lab may be", element: "ann|lab|", port: wrong},
		{typed: "ann/two", network: "ann/two", any: "? me/ann/two", element: "ann|two|", port: wrong}, // a link
		{typed: "me/ann/lab", network: wrong, any: "ann|lab|", element: "ann|lab|", port: wrong},
		{typed: "ann/lab/r1", network: wrong, any: "ann/lab|r1|", element: "ann/lab|r1|", port: wrong},
		{typed: "two", network: "? ann/two or ben/two", any: "? ann/two or ben/two", element: wrong, port: wrong},
		{typed: "two/r1", network: "two/r1", any: "? ann/two or ben/two", element: "? ann/two or ben/two", port: wrong},
		{typed: "node/n1", network: "node/n1", any: "node|n1|", element: "node|n1|", port: wrong},
		{typed: "nothing", network: "nothing", any: "nothing||", element: wrong, port: wrong},
		{typed: "free/r1", network: "free/r1", any: "free|r1|", element: "free|r1|", port: wrong},
		{typed: "/free/r1", network: wrong, any: "free|r1|", element: "free|r1|", port: wrong},
		{typed: "a/b/c/d", network: wrong, any: wrong, element: wrong, port: wrong},
		{typed: "a//c", network: wrong, any: wrong, element: wrong, port: wrong},
		{typed: "", network: wrong, any: wrong, element: wrong, port: wrong},
		{typed: "duo/r1:", network: wrong, any: wrong, element: wrong, port: wrong},
	} {
		check := func(what, want string, got func(*refs) (string, error)) {
			t.Helper()
			is, err := got(c.refs(context.Background()))
			switch {
			case want == wrong && err != nil && exitCode(err) != ExitRefused:
			case strings.HasPrefix(want, "? ") && exitCode(err) == ExitRefused &&
				strings.Contains(err.Error(), want[2:]):
			case err != nil || is != want:
				t.Errorf("%q as %s is %q, %v; want %q", test.typed, what, is, err, want)
			}
		}
		of := func(r ref, err error) (string, error) { return r.network + "|" + r.element + "|" + r.iface, err }
		check("a network", test.network, func(r *refs) (string, error) { return r.network(test.typed) })
		check("anything", test.any, func(r *refs) (string, error) { return of(r.any(test.typed)) })
		check("an element", test.element, func(r *refs) (string, error) {
			id, err := r.element(test.typed)
			return of(ref{network: id.Network, element: id.Element}, err)
		})
		check("a port", test.port, func(r *refs) (string, error) {
			id, err := r.port(test.typed)
			return of(ref{id.Network, id.Element, id.Interface}, err)
		})
	}
}

// Links are named by their ends within others' networks, too.
func TestEndsOfOthersLinks(t *testing.T) {
	for typed, want := range map[string][]string{
		"duo/a -- b":               {"duo", "a", "b"},
		"ann/duo/a -- b":           {"ann/duo", "a", "b"},
		"/duo/a -- b":              {"/duo", "a", "b"},
		"duo/a:ge-0/0/1 -- b:e/1":  {"duo", "a:ge-0/0/1", "b:e/1"},
		"ann/duo/a:ge-0/0/1 -- b":  {"ann/duo", "a:ge-0/0/1", "b"},
		"ann/duo/a:ge-0/0/1 --  b": {"ann/duo", "a:ge-0/0/1", "b"},
	} {
		if got := byEnds.FindStringSubmatch(typed); len(got) != 4 || !slices.Equal(got[1:], want) {
			t.Errorf("%q is %q, want %q", typed, got, want)
		}
	}
}

// Completion goes on from an owner to the network and to its elements.
func TestOthersAreCompleted(t *testing.T) {
	for typed, want := range map[string]string{
		"ann/":      "ann/duo/ ann/lab ann/lab/ ann/two/",
		"ann/duo/":  "ann/duo/r1",
		"ben/s":     "ben/solo/",
		"duo/":      "duo/r1",
		"ben/solo/": "ben/solo/r1",
	} {
		f := owned()
		c := New(func(string) (Client, error) { return f, nil })
		names, _ := c.completeElements(context.Background(), f, typed)
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q is completed to %q, want %q", typed, got, want)
		}
	}
}
