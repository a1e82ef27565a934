package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	serve "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// TestPull pulls from a registry in this process, which asks for a password.
func TestPull(t *testing.T) {
	inner := serve.New(serve.Logger(log.New(io.Discard, "", 0)))
	asks := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); asks && (user != "ann" || password != "secret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	lower := Layer(t, File{Name: "a", Content: "one"})
	upper := Layer(t, File{Name: ".wh.a"}, File{Name: "b", Kind: tar.TypeSymlink, Link: "/a"})
	config := Config(t, model.ImageRun{Cmd: []string{"/a"}}, lower, upper)
	saved := Saved(t, "lab/web:1", config, lower, upper)
	tag, err := name.NewTag("lab/web:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(saved)), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/lab/web:1")
	if err != nil {
		t.Fatal(err)
	}
	asks = false
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	asks = true
	home := t.TempDir()
	t.Setenv("DOCKER_CONFIG", home)
	t.Setenv("XDG_RUNTIME_DIR", home)
	if _, err := Pull(t.Context(), host+"/lab/web:1", nil); err == nil ||
		!strings.Contains(err.Error(), "does not give") {
		t.Errorf("without a password: %v", err)
	}
	auths := `{"auths": {"` + host + `": {"username": "ann", "password": "secret"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(auths), 0o600); err != nil {
		t.Fatal(err)
	}
	told := int64(0)
	pulled, err := Pull(t.Context(), host+"/lab/web:1", func(done, of int64) {
		if told = done; done > of {
			t.Errorf("%d of %d bytes", done, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pulled.Close()
	if pulled.ID != Sum(config) || told == 0 || pulled.Names[0] != host+"/lab/web:1" {
		t.Errorf("it is %s, %q", pulled.ID, pulled.Names)
	}
	if _, err := pulled.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for reference, words := range map[string]string{host + "/lab/web:2": "has no image", "A B": "no name of an image"} {
		if _, err := Pull(t.Context(), reference, nil); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", reference, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Pull(ended, host+"/lab/web:1", nil); err == nil {
		t.Error("it is pulled for nobody")
	}
}
