package registry

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// endless gives the same byte for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A registry is somebody else's program: it answers with more than it says, something else, from elsewhere, or not at
// all.
func TestAHostileRegistry(t *testing.T) {
	attack.Tell(t, "a registry gives endless and wrong answers, leads to files and to the cloud's metadata, or stalls",
		"`image pull` refuses, with the reason, and takes no more memory than an image's configuration has")
	layer := Layer(t, File{Name: "a", Content: "one"})
	config := Config(t, model.ImageRun{Cmd: []string{"/a"}}, layer)
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	type of struct {
		MediaType string   `json:"mediaType"`
		Digest    string   `json:"digest"`
		Size      int64    `json:"size"`
		URLs      []string `json:"urls,omitempty"`
	}
	const schema, ociConfig, ociLayer = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json",
		"application/vnd.oci.image.layer.v1.tar"
	manifest := func(c of, layers ...of) []byte {
		b, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": schema, "config": c, "layers": layers})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	right := of{ociConfig, digest(config), int64(len(config)), nil}
	rightLayer := of{ociLayer, digest(layer), int64(len(layer)), nil}
	patience = 300 * time.Millisecond
	defer func() { patience = stalls }()
	for _, c := range []struct {
		name     string
		manifest []byte
		serve    func(w http.ResponseWriter, r *http.Request, blob string) bool // true when it has answered
		words    string
	}{
		{"is right", manifest(right, rightLayer), nil, ""},
		{"has an endless manifest", nil, func(w http.ResponseWriter, r *http.Request, blob string) bool {
			if blob == "" {
				w.Header().Set("Content-Type", schema)
				io.Copy(w, endless{}) //nolint:errcheck // ends with the reader
			}
			return blob == ""
		}, "get 127.0.0.1"},
		{"says that its configuration has a terabyte", manifest(of{ociConfig, digest(config), 1 << 40, nil}, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(config) {
					t.Error("the configuration is asked for although it is too large")
					io.Copy(w, io.LimitReader(endless{}, 1<<30)) //nolint:errcheck // ends with the reader
				}
				return blob == digest(config)
			}, "its configuration has 1099511627776 bytes"},
		{"gives another configuration", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(config) {
					io.WriteString(w, strings.Repeat("x", len(config))) //nolint:errcheck // it is read
				}
				return blob == digest(config)
			}, "verif"},
		{"gives another layer", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					io.WriteString(w, strings.Repeat("x", len(layer))) //nolint:errcheck // it is read
				}
				return blob == digest(layer)
			}, "layer 1:"},
		{"gives an endless layer", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					io.Copy(w, endless{}) //nolint:errcheck // ends with the reader
				}
				return blob == digest(layer)
			}, "layer 1:"},
		{"has 1,000 layers", manifest(right, slices.Repeat([]of{rightLayer}, 1000)...), nil, "layers: at most"},
		{"has a layer of a negative size", manifest(right, of{ociLayer, digest(layer), -5, nil}), nil, ""},
		{"has its layer in a file", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					http.Redirect(w, r, "file:///etc/passwd", http.StatusTemporaryRedirect)
				}
				return blob == digest(layer)
			}, "unsupported protocol scheme"},
		{"has its layer in the metadata", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
				}
				return blob == digest(layer)
			}, "169.254.169.254"},
		{"leads in a circle", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
				}
				return blob == digest(layer)
			}, "redirects"},
		{"stalls in its manifest", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == "" {
					w.Header().Set("Content-Type", schema)
					io.WriteString(w, "{")                //nolint:errcheck // it is read
					http.NewResponseController(w).Flush() //nolint:errcheck // likewise
					<-r.Context().Done()
				}
				return blob == ""
			}, "has sent nothing for"},
		{"stalls in a layer", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool {
				if blob == digest(layer) {
					w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
					w.Write(layer[:10])                   //nolint:errcheck // it is read
					http.NewResponseController(w).Flush() //nolint:errcheck // likewise
					<-r.Context().Done()
				}
				return blob == digest(layer)
			}, "has sent nothing for"},
		{"never answers", manifest(right, rightLayer),
			func(w http.ResponseWriter, r *http.Request, blob string) bool { <-r.Context().Done(); return true },
			"has sent nothing for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, blob, _ := strings.Cut(r.URL.Path, "/blobs/")
				if r.URL.Path == "/v2/" && c.name != "never answers" {
					return
				}
				if c.serve != nil && c.serve(w, r, blob) {
					return
				}
				switch blob {
				case "":
					w.Header().Set("Content-Type", schema)
					w.Write(c.manifest) //nolint:errcheck // it is read
				case digest(config):
					w.Write(config) //nolint:errcheck // it is read
				case digest(layer):
					w.Write(layer) //nolint:errcheck // it is read
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer server.Close()
			defer server.CloseClientConnections()
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			before, err := os.ReadDir(os.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			img, err := Pull(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/lab/web:1", nil)
			if err == nil {
				_, err = img.Verify(t.Context())
				img.Close() //nolint:errcheck // it is only read
			}
			t.Logf("%v", err)
			if c.words == "" && err != nil && c.name == "is right" || c.words != "" && (err == nil ||
				!strings.Contains(err.Error(), c.words)) {
				t.Errorf("it says %v, want %q", err, c.words)
			}
			after, err := os.ReadDir(os.TempDir())
			if err != nil || left(after) > left(before) {
				t.Errorf("files are left in %s: %v", os.TempDir(), err)
			}
		})
	}
}

// left counts what pulls have left.
func left(entries []os.DirEntry) (n int) {
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "polyplane-image-") {
			n++
		}
	}
	return n
}
