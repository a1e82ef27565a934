package model

import (
	"errors"
	"strings"
	"testing"
)

// What people call networks becomes keys, and keys become what people call them, for each who may ask.
func TestReferences(t *testing.T) {
	all := []NetworkName{
		{"duo", "root", "duo"}, {"duo.1111", "ann", "duo"}, {"duo.2222", "ben", "duo"},
		{"solo.3333", "ann", "solo"}, {"free", "", "free"}, {"lab", "", "lab"}, {"lab.4444", "vic", "lab"},
		{"old", "ann", "old"}, {"duo.1111.5555", "ben", "duo.1111"}, // a title that is somebody else's key
	}
	root, keys := Asker{Name: "root"}, Asker{Name: "root", Keys: true}
	ann, ben, zoe := Asker{Name: "ann", Only: true}, Asker{Name: "ben", Only: true}, Asker{Name: "zoe", Only: true}
	vic, nobody := Asker{Name: "vic"}, Asker{}
	const none, several = "", "?"
	for _, c := range []struct {
		asker           Asker
		reference, want string
	}{
		{root, "duo", "duo"}, {ann, "duo", "duo.1111"}, {ben, "duo", "duo.2222"}, {zoe, "duo", none},
		{root, "ann/duo", "duo.1111"}, {ann, "ann/duo", "duo.1111"}, {ann, "ben/duo", none}, {ann, "root/duo", none},
		{vic, "duo", several}, {nobody, "duo", several}, // and not the one whose key it is
		{root, "solo", "solo.3333"}, {vic, "solo", "solo.3333"}, {ben, "solo", none},
		// What nobody owns comes before others', and behind one's own.
		{root, "lab", "lab"}, {vic, "lab", "lab.4444"}, {vic, "/lab", "lab"}, {nobody, "lab", "lab"},
		{ann, "lab", none}, {ann, "/lab", none}, {root, "free", "free"}, {ann, "free", none},
		// Keys, of what one may see, and only where no title is so.
		{root, "duo.2222", "duo.2222"}, {ann, "duo.1111", "duo.1111"}, {ann, "duo.2222", none},
		{ben, "duo.1111", "duo.1111.5555"}, {root, "duo.1111", "duo.1111.5555"}, {ann, "duo.1111.5555", none},
		{keys, "duo.1111", "duo.1111"}, {keys, "duo", "duo"}, {keys, "solo", "solo.3333"}, {keys, "ann/solo", "solo.3333"},
		{ann, "old", "old"}, {root, "nothing", none}, {root, "ann/nothing", none}, {root, "", none}, {root, "a/b/c", none},
	} {
		is, err := c.asker.Among(all).Find(c.reference)
		var ambiguous *SeveralError
		got := is.Key
		switch {
		case errors.As(err, &ambiguous):
			if got = several; !strings.Contains(err.Error(), "ann/duo or ben/duo or root/duo") {
				t.Errorf("%+v is told of %q: %v", c.asker, c.reference, err)
			}
		case err != nil && !errors.Is(err, ErrNoNetwork):
			t.Error(err)
		}
		if got != c.want {
			t.Errorf("%+v means by %q %q, want %q", c.asker, c.reference, got, c.want)
		}
	}
	// Whatever is told of a network finds it again.
	for _, a := range []Asker{root, keys, ann, ben, zoe, vic, nobody} {
		names := a.Among(all)
		for _, is := range all {
			told := names.Call(is.Key)
			if a.Only && is.Owner != a.Name {
				if told != is.Key {
					t.Errorf("%+v is told %q of %+v", a, told, is)
				}
				continue
			}
			if found, err := names.Find(told); err != nil || found != is {
				t.Errorf("%+v is told %q of %+v, and finds %+v, %v", a, told, is, found, err)
			}
		}
	}
}

func TestWordsOfNames(t *testing.T) {
	all := []NetworkName{{"duo.1111", "ann", "duo"}, {"duo", "root", "duo"}, {"duo.2222", "ben", "duo"}}
	const text = "network duo.1111 is full: duo.1111/r1, beside duo, duo.11112 and x-duo.1111. See duo.1111."
	for asker, want := range map[Asker]string{
		{Name: "ann", Only: true}: "network duo is full: duo/r1, beside duo, duo.11112 and x-duo.1111. See duo.",
		{Name: "root"}: "network ann/duo is full: ann/duo/r1, beside duo, duo.11112 and x-duo.1111. " +
			"See ann/duo.",
		{Name: "root", Keys: true}: text,
		{Name: "ben", Only: true}:  text,
	} {
		if got := asker.Among(all).Told(text); got != want {
			t.Errorf("%+v is told\n%s\nwant\n%s", asker, got, want)
		}
	}
}

// What is left of a network has its name, too; but what is there comes first.
func TestLeftNames(t *testing.T) {
	there := []NetworkName{{"duo.1111", "ann", "duo"}}
	gone := []NetworkName{{"solo.2222", "ann", "solo"}, {"lab.3333", "ann", "lab"}, {"lab.4444", "ben", "lab"}}
	for _, c := range []struct {
		asker           Asker
		reference, want string
	}{
		{Asker{Name: "root"}, "ann/solo", "solo.2222"}, {Asker{Name: "root"}, "solo", "solo.2222"},
		{Asker{Name: "root"}, "lab", "lab"}, {Asker{Name: "root"}, "ben/lab", "lab.4444"},
		{Asker{Name: "root", Keys: true}, "lab.3333", "lab.3333"}, {Asker{Name: "root", Keys: true}, "solo", "solo.2222"},
		{Asker{Name: "ann", Only: true}, "lab", "lab.3333"}, {Asker{Name: "ann", Only: true}, "ben/lab", "ben/lab"},
		{Asker{Name: "zoe", Only: true}, "solo", "solo"},
	} {
		names := c.asker.Among(there)
		for _, is := range gone {
			names.Add(is)
		}
		if got := names.FindLeft(c.reference); got != c.want {
			t.Errorf("%+v means by %q %q, want %q", c.asker, c.reference, got, c.want)
		}
	}
}

func TestCheckReference(t *testing.T) {
	for s, good := range map[string]bool{"duo": true, "ann/duo": true, "/duo": true, "ann@example.org/duo": true,
		"a/b/c": false, "ann/": false, "": false, "a b/duo": false, "a:b/duo": false, "ann/d uo": false, "\n/duo": false} {
		if err := CheckReference(s); (err == nil) != good {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Keys are names, whatever the titles are, and say nothing of who else has what.
func TestNumberedKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, title := range []string{"duo", "duo.1111", strings.Repeat("n", MaxName), strings.Repeat("n", MaxName-1) + "."} {
		for _, owner := range []string{"", "ann", "ben@example.org"} {
			for try := range KeyTries + 2 {
				key := NumberedKey("salt", owner, title, try)
				if err := CheckName(key); err != nil {
					t.Error(err)
				}
				if !FitsKey(key, title) {
					t.Errorf("%s is no key for %s", key, title)
				}
				if seen[key] && try < KeyTries {
					continue // then it is tried again
				}
				seen[key] = true
				if key != NumberedKey("salt", owner, title, try) {
					t.Errorf("%s is another one next time", key)
				}
				if key == NumberedKey("pepper", owner, title, try) && key == NumberedKey("oil", owner, title, try) {
					t.Errorf("%s can be told without the salt", key)
				}
			}
		}
	}
}

// What goes over the wire comes back as it was, whatever networks are called.
func TestIDsOfOwners(t *testing.T) {
	for _, network := range []string{"duo", "ann/duo", "/duo"} {
		for _, element := range []string{"", "r1"} {
			id := ID{network, element}
			text, err := id.MarshalText()
			var back ID
			if err == nil {
				err = back.UnmarshalText(text)
			}
			if err != nil || back != id {
				t.Errorf("%+v is %q, which is %+v, %v", id, text, back, err)
			}
		}
		port := PortID{ID{network, "r1"}, "et-0/0/1:0"}
		text, err := port.MarshalText()
		var back PortID
		if err == nil {
			err = back.UnmarshalText(text)
		}
		if err != nil || back != port {
			t.Errorf("%+v is %q, which is %+v, %v", port, text, back, err)
		}
	}
}

// A node that lies can call a network by nothing but what its key, which is sealed, allows.
func TestTitlesFitKeys(t *testing.T) {
	long := strings.Repeat("n", MaxName)
	for _, c := range []struct {
		key, title string
		fits       bool
	}{{"duo", "duo", true}, {"duo.1234", "duo", true}, {"duo.1234", "duo.1234", true}, {"duo.1234", "lab", false},
		{"duo", "lab", false}, {"duo.1234", "du", false}, {"duo.1234", "duo.", false}, {"duo.x", "duo", false},
		{"duo.", "duo", false}, {".1234", "", false}, {"duo.1234", "", false}, {long[:58] + ".1234", long, true},
		{long[:58] + ".1234", long[:58], true}, {long[:58] + ".1234", long[:57], false}, {"duo.1234", "duo\x1b", false}} {
		if got := FitsKey(c.key, c.title); got != c.fits {
			t.Errorf("%q of %q: %v", c.title, c.key, got)
		}
	}
}
