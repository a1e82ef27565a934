package api_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// endless is what is sent, without an end.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	e.read.Add(int64(len(b)))
	return len(b), nil
}

// TestLargeUploadIsRefusedUnsent: what is refused for the length that it tells is not sent at all.
func TestLargeUploadIsRefusedUnsent(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	if _, err := o.root.SetQuota(t.Context(), model.QuotaOfOwner, "ann", model.QuotaRequest{
		Values: []model.Assignment{{Key: "images", Value: "12MiB"}}}); err != nil {
		t.Fatal(err)
	}
	ann := o.user("ann", model.RoleOwner)
	var content endless
	const size = 1 << 30
	_, err := ann.PutImage(t.Context(), "sha256:"+strings.Repeat("1", 64), "", size, io.LimitReader(&content, size))
	if err == nil || !strings.Contains(err.Error(), "user ann's quota of images is 12MiB: with this image of 1GiB it would be 1GiB") {
		t.Errorf("it is answered with %v", err)
	}
	if read := content.read.Load(); read > 0 {
		t.Errorf("%d bytes of it were sent", read)
	}
}
