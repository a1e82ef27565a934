package netns

import (
	"bytes"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/model"
)

// addFiles keeps files that are put into elements, by their paths.
func (r *registry) addFiles(t testing.TB, files map[string]string) model.File {
	t.Helper()
	var given []image.Given
	size := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		size += len(files[path])
		given = append(given, image.Given{Path: path, Size: int64(len(files[path])), Perm: 0o640,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[path])), nil }})
	}
	img, err := image.NewFiles(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	if r.kept == nil {
		r.kept = map[string][]byte{}
	}
	r.kept[string(img.ID)] = b.Bytes()
	return model.File{Tree: string(img.ID), Size: model.Bytes(size)}
}

// TestGivenTrees follows what is too large for a network's document: it comes to the node once, and what holds for
// other files that elements are given holds for each of its files.
func TestGivenTrees(t *testing.T) {
	n := newNode(t)
	var r registry
	n.serveImages(t, &r)
	jobs := lineOf("lab", 63, 3)
	id := jobs[0].ID
	files := map[string]string{"index": "first\n", "same": "same\n", "old": "old\n", "deep/er/x": strings.Repeat("x", 300_000),
		"mine": "first mine\n"}
	tree := r.addFiles(t, files)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
	}
	el := &jobs[0].Element
	el.Disk = 32 << 20
	el.Service = model.Service{Run: "cat /srv/www/index; exec sleep 1000", Contents: map[string]model.File{"/srv/www": tree,
		"/etc/app": {Text: "app\n"}}}
	jobs[1].Element.Service = model.Service{Contents: map[string]model.File{"/srv/www": tree}}
	jobs[2].Element.Service = model.Service{Contents: map[string]model.File{"/root/f": r.addFiles(t, map[string]string{"": "one file\n"})}}
	r.away.Store(true)
	if res := n.Apply(t.Context(), jobs)[0]; res.Err == nil && !strings.Contains(res.Message, "waits for its files at /srv/www: ") ||
		res.Err != nil && !strings.Contains(res.Err.Error(), "nobody is there") {
		t.Errorf("it is %s: %s %v", res.Phase, res.Message, res.Err)
	}
	r.away.Store(false)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if gave := r.gave.Load(); gave != 2 {
		t.Errorf("two trees were sent %d times", gave)
	}
	has := func(id model.ID, want map[string]string) {
		t.Helper()
		for path, content := range want {
			if got := n.run(t, id, "sh", "-c", "cat "+path+"; stat -c ' %a %u %g' "+path); got != content+" 640 0 0\n" {
				t.Errorf("%s of %s is %.100q, want %.100q", path, id, got, content)
			}
		}
	}
	www := func(files map[string]string) map[string]string {
		all := map[string]string{}
		for path, content := range files {
			all["/srv/www/"+path] = content
		}
		return all
	}
	has(id, www(files))
	has(jobs[1].ID, www(files))
	has(jobs[2].ID, map[string]string{"/root/f": "one file\n"})
	own := func() (paths []string) {
		t.Helper()
		is, err := n.Running(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range is.Files {
			paths = append(paths, f.Path)
		}
		return paths
	}
	if made := own(); len(made) > 0 {
		t.Errorf("what it was given counts as made inside: %q", made)
	}
	kept := func(want string) {
		t.Helper()
		n.awaitPhases(t, jobs, model.PhaseRunning)
		if got := n.apply(t, jobs)[0].Warning.Message; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("what is kept is told as %q, want %q", got, want)
		}
	}
	give := func(at string, f model.File) {
		el.Contents = maps.Clone(el.Contents)
		el.Contents[at] = f
	}
	kept("")

	// One of them changes, one comes and one goes; the service is started again; what was edited inside stays.
	n.run(t, id, "sh", "-c", "echo edited > /srv/www/mine; echo new > /srv/www/own")
	inode := n.run(t, id, "stat", "-c", "%i %y", "/srv/www/same")
	files["index"], files["new"], files["mine"] = "other\n", "new\n", "second mine\n"
	delete(files, "old")
	give("/srv/www", r.addFiles(t, files))
	kept("keeps its own files: /srv/www/mine was edited inside")
	n.restart(t)
	n.serveImages(t, &r)
	kept("keeps its own files: /srv/www/mine was edited inside")
	delete(files, "mine")
	has(id, www(files))
	if got := n.run(t, id, "sh", "-c", "cat /srv/www/mine /srv/www/own; ls /srv/www; stat -c '%i %y' /srv/www/same"); got !=
		"edited\nnew\ndeep\nindex\nmine\nnew\nown\nsame\n"+inode {
		t.Errorf("there is %q; it was %q", got, inode)
	}
	if log := n.logs(t, id); !strings.Contains(log, "other\n") {
		t.Errorf("its service has seen %q", log)
	}
	if made := own(); !slices.Equal(made, []string{"/srv/www/mine", "/srv/www/own"}) {
		t.Errorf("made inside are %q", made)
	}
	el.Overwrites++
	kept("")
	files["mine"] = "second mine\n"
	has(id, www(files))

	// What was deleted inside comes back at the next start, and what was interrupted is finished: the notes are lost.
	n.run(t, id, "rm", "-r", "/srv/www/deep", "/srv/www/new")
	el.Restarts++
	kept("")
	has(id, www(files))
	if err := os.Remove(n.treePath(id)("/srv/www")); err != nil {
		t.Fatal(err)
	}
	files["index"] = "third\n"
	give("/srv/www", r.addFiles(t, files))
	kept("/srv/www/index was edited inside") // nobody knows better
	el.Overwrites++
	kept("")
	has(id, www(files))

	// It becomes small, and large again; nothing of that counts as edited.
	small := maps.Clone(el.Contents)
	delete(small, "/srv/www")
	for path, content := range files {
		small["/srv/www/"+path] = model.File{Text: content, Mode: "0640"}
	}
	small["/srv/www/index"] = model.File{Text: "fourth\n", Mode: "0640"}
	large := el.Contents
	el.Contents = small
	kept("")
	files["index"] = "fourth\n"
	has(id, www(files))
	files["index"] = "fifth\n"
	el.Contents = large
	give("/srv/www", r.addFiles(t, files))
	kept("")
	has(id, www(files))

	// What its disk has no room for is told, and what is there stays.
	files["large"] = strings.Repeat("large", int(el.Limits().Disk)/5)
	was := el.Contents["/srv/www"]
	give("/srv/www", r.addFiles(t, files))
	for said := ""; !strings.Contains(said, "free, and the files that are put into it need"); {
		if res := n.Apply(t.Context(), jobs)[0]; res.Err != nil {
			said = res.Err.Error()
		}
		if t.Context().Err() != nil {
			t.Fatal(said)
		}
	}
	delete(files, "large")
	has(id, www(files))
	give("/srv/www", was)
	kept("")

	// It goes, and what was made inside stays.
	el.Contents = map[string]model.File{"/etc/app": {Text: "app\n"}}
	kept("")
	if got := n.run(t, id, "sh", "-c", "find /srv -type f"); got != "/srv/www/own\n" {
		t.Errorf("left are %q", got)
	}
}
