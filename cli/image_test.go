package cli

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	serve "github.com/google/go-containerregistry/pkg/registry"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// anImage is a small image in a file, and its ID.
func anImage(t *testing.T, name, tag, content string) (path, id string) {
	t.Helper()
	layer := Layer(t, File{Name: "f", Content: content})
	config := Config(t, model.ImageRun{Cmd: []string{"/f"}}, layer)
	return Write(t, name, Saved(t, tag, config, layer)), string(Sum(config))
}

func TestImageCommands(t *testing.T) {
	f := &fake{}
	web, id := anImage(t, "web.tar", "", "one")
	tagged, other := anImage(t, "saved.tar", "lab/api:2", "two")
	if r := run(t, f, "image", "list"); r.code != 0 || !strings.HasPrefix(r.out, "there are no images: `polyplane image import") {
		t.Errorf("without any: %+v", r)
	}
	// It is called what the archive calls it, else what the file is called, and what --name says before both.
	for args, want := range map[string]string{web: "web.tar", tagged: "lab/api:2", web + " --name x/y:1": "x/y:1"} {
		f := &fake{}
		r := run(t, f, append([]string{"image", "import"}, strings.Fields(args)...)...)
		if r.code != 0 || len(f.images) != 1 || f.images[0].Names[0] != want ||
			!strings.HasPrefix(r.out, "image "+want+" (") || !strings.Contains(r.err, "sending ") {
			t.Errorf("import %s: %+v, %+v", args, r, f.images)
		}
	}
	data, err := os.ReadFile(tagged)
	if err != nil {
		t.Fatal(err)
	}
	if r := runWith(t, f, string(data), "image", "import", "-"); r.code != 0 || f.images[0].ID != other {
		t.Errorf("from standard input: %+v, %+v", r, f.images)
	}
	run(t, f, "image", "import", web)
	if r := run(t, f, "image", "import", web, "--name", "again"); r.code != 0 || !strings.Contains(r.out, "is there already") ||
		strings.Contains(r.err, "sending") || len(f.images) != 2 {
		t.Errorf("what is there is sent again: %+v", r)
	}
	// What is no image is refused before anything is sent.
	for path, want := range map[string]string{Write(t, "text", []byte(strings.Repeat("x", 2000))): "it is no tar",
		Write(t, "empty.tar", Tar(t, nil)): "it is no image", "nowhere.tar": "no such file"} {
		if r := run(t, f, "image", "import", path); r.code != ExitUsage || !strings.Contains(r.err, want) ||
			!strings.Contains(r.err, path) {
			t.Errorf("%s: %+v", filepath.Base(path), r)
		}
	}
	// The list.
	f.images[1].UsedBy, f.images[1].Owner = []string{"lab"}, "ann"
	r := run(t, f, "image", "list")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var columns [][]string
	for _, line := range lines {
		columns = append(columns, strings.Fields(line))
	}
	if len(lines) != 4 || columns[1][0] != "lab/api:2" || !strings.HasSuffix(lines[1], " everybody  -") ||
		columns[2][0] != "web.tar" || columns[2][1] != id[7:19] || !strings.HasSuffix(lines[2], " ann        lab") ||
		columns[3][0] != "again" {
		t.Errorf("the list is\n%s", r.out)
	}
	if r := run(t, f, "image", "list", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"id": "`+id) {
		t.Errorf("as JSON: %+v", r)
	}
	if r := run(t, f, "image", "remove", "web.tar", "lab/api:2"); r.code != 0 || len(f.images) != 0 ||
		r.out != "removed: web.tar\nremoved: lab/api:2\n" {
		t.Errorf("removed: %+v, %+v", r, f.images)
	}
	if r := run(t, f, "image", "remove", "web.tar"); r.code == 0 || !strings.Contains(r.err, "there is no image web.tar") {
		t.Errorf("what is not there: %+v", r)
	}
}

// Networks name images by files, which are relative to the network's file, or by names; apply brings what is missing.
func TestApplyBringsImages(t *testing.T) {
	path, id := anImage(t, "web.tar", "", "one")
	lab := func(of string) string {
		file := filepath.Join(filepath.Dir(path), "lab.yaml")
		text := "network: lab\nhosts: {h1: {image: " + of + "}, h2: {image: " + of + "}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	f := &fake{}
	if r := run(t, f, "plan", "-f", lab("./web.tar")); r.code != 0 || len(f.images) != 0 {
		t.Errorf("a plan: %+v, %+v", r, f.images)
	}
	if r := run(t, f, "apply", "-f", lab("./web.tar"), "--wait=false"); r.code != 0 || len(f.images) != 1 ||
		len(f.sent) != 1 || f.sent[0].Elements[1].Image != "web.tar@"+id {
		t.Errorf("an apply: %+v, %+v", r, f.sent)
	}
	if r := run(t, f, "apply", "-f", lab("./nothing.tar"), "--wait=false"); r.code != ExitUsage ||
		!strings.Contains(r.err, "nothing.tar: no such file") {
		t.Errorf("an image that is not there: %+v", r)
	}
	// A name that the manager has is not pulled, and neither is one with an ID.
	for _, of := range []string{"web.tar", "web.tar@" + id, id[:20]} {
		if r := run(t, f, "apply", "-f", lab(of), "--wait=false"); r.code != 0 || strings.Contains(r.err, "pulling") {
			t.Errorf("%s: %+v", of, r)
		}
	}
	// Others are had from their registry, which is told by their name.
	server := httptest.NewServer(serve.New(serve.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r := run(t, f, "apply", "-f", lab(host+"/lab/none:1"), "--wait=false")
	if r.code != ExitFailed || !strings.Contains(r.err, host+" has no image "+host+"/lab/none:1") {
		t.Errorf("an image that no registry has: %+v", r)
	}
}
