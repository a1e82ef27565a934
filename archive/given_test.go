package archive

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// Large files that a document names by their digests are in the archive, and are read as they were; what is called
// otherwise is refused.
func TestGivenInArchives(t *testing.T) {
	digits, content := strings.Repeat("0a", 32), []byte("files of elements")
	for name, ok := range map[string]bool{digits: true, digits[1:]: false, strings.ToUpper(digits): false,
		"../" + digits[3:]: false} {
		part, err := GivenOf(name, bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Write(&b, Manifest{Network: "lab", Made: time.Unix(1, 0), By: "1"},
			[]Content{Document([]byte("network: lab\n")), part}); err != nil {
			t.Fatal(err)
		}
		a, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if (err == nil) != ok {
			t.Errorf("with files %s: %v", name, err)
		}
		if !ok || err != nil {
			continue
		}
		r, size := a.Given(digits)
		if r == nil || size != int64(len(content)) {
			t.Fatalf("there are %d bytes", size)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("they are %q: %v", got, err)
		}
		if r, _ := a.Given(strings.Repeat("0", 64)); r != nil || len(a.Elements()) != 0 {
			t.Error("there are others")
		}
		damaged := bytes.Replace(b.Bytes(), []byte("files of"), []byte("files 0f"), 1)
		if _, err := Open(bytes.NewReader(damaged), int64(len(damaged))); err == nil ||
			!strings.Contains(err.Error(), "the archive is damaged") {
			t.Errorf("damaged: %v", err)
		}
	}
}
