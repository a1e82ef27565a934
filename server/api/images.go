package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// Images is what is done with the images of elements.
type Images interface {
	// Images are those that whoever asks may use.
	Images(ctx context.Context) model.ImageList
	// AddImage takes an image, in the form in which images are kept, and names it. Without content it names one that is
	// here. Content may have a method Size, which tells how many bytes it is.
	AddImage(ctx context.Context, id, name string, content io.Reader) (model.Image, error)
	// RemoveImage removes an image, or one of its names, and returns which it was.
	RemoveImage(ctx context.Context, of string) (model.Image, error)
	// ReadTree opens files that are put into elements, for whoever may use them.
	ReadTree(ctx context.Context, id string) (*os.File, error)
	// ReadImage opens an image for a node.
	ReadImage(node, id string) (*os.File, error)
}

// maxImage is how many bytes of an image are taken, whoever sends them. What an owner may have the quota says.
const maxImage = 17 << 30

const putImage = "PUT /v1/images/{image}"

type imageInput struct {
	Image string `path:"image" doc:"its ID, one of its names, or the first 12 digits or more of its ID"`
}

// imageRoutes are about images and files. Their contents are streams, in both directions: they do not fit into memory.
func (s *Server) imageRoutes(api huma.API) {
	reply(api, operation("images", http.MethodGet, "/images", "Images that elements can be made from",
		"images"),
		func(ctx context.Context, _ *struct{}) (model.ImageList, error) { return s.images.Images(ctx), nil })
	reply(api, operation("remove-image", http.MethodDelete, "/images/{image}",
		"Remove an image that no network uses; where it has several names, only the one that is given", "images"),
		func(ctx context.Context, in *imageInput) (model.Image, error) {
			return s.images.RemoveImage(ctx, in.Image)
		})
	text := func(name, in, words string) *huma.Param {
		return &huma.Param{Name: name, In: in, Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			Description: words}
	}
	op := operation("put-image", http.MethodPut, "/images/{image}",
		"Give an image: a tar of its configuration and layers. Without a body, name one that is here", "images")
	op.Parameters = []*huma.Param{text("image", "path", "its ID"), text("name", "query",
		"what it is called; empty for files that are put into elements")}
	op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/x-tar": {}}}
	answers[model.Image](api, &op)
	s.stream(api, op, func(w http.ResponseWriter, r *http.Request) error {
		var content io.Reader
		if r.ContentLength != 0 {
			content = &sizedBody{r.Body, r.ContentLength}
		}
		is, err := s.images.AddImage(r.Context(), r.PathValue("image"), r.URL.Query().Get("name"), content)
		if err != nil {
			if content != nil {
				noBody(w, r)
			}
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(s.told(r.Context(), is))
	})
	op = operation("kept-tree", http.MethodGet, "/trees/{tree}",
		"Files that networks put into elements, as they are kept", "images")
	op.Parameters = []*huma.Param{text("tree", "path", "their ID")}
	op.Responses = map[string]*huma.Response{"200": {Description: "a stream",
		Content: map[string]*huma.MediaType{"application/x-tar": {}}}}
	s.stream(api, op, func(w http.ResponseWriter, r *http.Request) error {
		f, err := s.images.ReadTree(r.Context(), r.PathValue("tree"))
		if err != nil {
			return err
		}
		return sendFile(w, f)
	})
	op = operation("node-image", http.MethodGet, "/nodes/{node}/images/{image}", "An image, for a node's agent",
		"agents")
	op.Parameters = []*huma.Param{text("node", "path", "the node's name"), text("image", "path", "its ID")}
	op.Responses = map[string]*huma.Response{"200": {Description: "a stream",
		Content: map[string]*huma.MediaType{"application/x-tar": {}}}}
	s.stream(api, op, func(w http.ResponseWriter, r *http.Request) error {
		f, err := s.images.ReadImage(r.PathValue("node"), r.PathValue("image"))
		if err != nil {
			return err
		}
		return sendFile(w, f)
	})
}

// sizedBody is a request's body, with what the request says of its size; -1 where it says nothing. Whoever takes it may
// refuse it for that before it is sent.
type sizedBody struct {
	io.Reader
	size int64
}

func (s *sizedBody) Size() int64 { return s.size }

// sendFile answers with a file, and closes it.
func sendFile(w http.ResponseWriter, f *os.File) error {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	io.Copy(w, f) //nolint:errcheck // its length tells whether it is whole
	return nil
}

// stream adds an operation whose body or answer is no JSON.
func (s *Server) stream(api huma.API, op huma.Operation, do func(http.ResponseWriter, *http.Request) error) {
	op.Responses["default"] = &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: schemaOf[ProblemDetail](api)}}}
	api.OpenAPI().AddOperation(&op)
	s.guard.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			s.writeTold(w, r, err)
		}
	})
}
