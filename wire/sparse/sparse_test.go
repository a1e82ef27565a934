package sparse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sent(t testing.TB, make func(*os.File)) (content, stream []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "from"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	make(f)
	if content, err = os.ReadFile(f.Name()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Send(&b, f, nil); err != nil {
		t.Fatal(err)
	}
	return content, b.Bytes()
}

func received(t testing.TB, stream []byte, most int64) ([]byte, Size, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := Receive(bytes.NewReader(stream), func(s Size) (Into, error) {
		if s.File > most {
			return nil, errors.New("too large")
		}
		return f, nil
	})
	if err != nil {
		return nil, size, err
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b, size, nil
}

// Whatever is written where, it comes as it was, and holes are not sent.
func TestFilesComeAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		size := rapid.Int64Range(0, 2<<20).Draw(rt, "size")
		if err := f.Truncate(size); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(0, 5).Draw(rt, "pieces") {
			if size == 0 {
				break
			}
			at := rapid.Int64Range(0, size-1).Draw(rt, "at")
			part := bytes.Repeat([]byte{byte(at)}, int(min(size-at, rapid.Int64Range(1, 3<<20).Draw(rt, "length"))))
			if _, err := f.WriteAt(part, at); err != nil {
				rt.Fatal(err)
			}
		}
		want, err := os.ReadFile(f.Name())
		if err != nil {
			rt.Fatal(err)
		}
		var b bytes.Buffer
		if err := Send(&b, f, nil); err != nil {
			rt.Fatal(err)
		}
		is, _, err := received(t, b.Bytes(), size)
		if err != nil || !bytes.Equal(is, want) {
			rt.Fatalf("a file of %d bytes comes otherwise (%v)", size, err)
		}
	})
}

func TestHolesAreNotSent(t *testing.T) {
	content, stream := sent(t, func(f *os.File) {
		f.Truncate(64 << 20)                       //nolint:errcheck // the comparison shows it
		f.WriteAt([]byte("in the middle"), 3e7)    //nolint:errcheck
		f.WriteAt([]byte("at the end"), 64<<20-10) //nolint:errcheck
	})
	if len(stream) > 1<<20 {
		t.Errorf("a file of 64 MiB with 23 bytes in it is sent as %d", len(stream))
	}
	is, size, err := received(t, stream, 64<<20)
	if err != nil || !bytes.Equal(is, content) {
		t.Fatalf("it comes otherwise: %v", err)
	}
	if size.File != 64<<20 || size.Content > 1<<20 {
		t.Errorf("its sizes are told as %+v", size)
	}
}

// What is cut short, has a bit turned, or makes no sense is refused.
func TestDamagedStreamsAreRefused(t *testing.T) {
	_, stream := sent(t, func(f *os.File) {
		f.Truncate(1 << 20)                   //nolint:errcheck
		f.WriteAt([]byte("something"), 4096)  //nolint:errcheck
		f.WriteAt([]byte("another"), 500_000) //nolint:errcheck
	})
	for n := 0; n < len(stream); n += 1 + n/2 {
		if _, _, err := received(t, stream[:n], 1<<20); !errors.Is(err, ErrDamaged) {
			t.Errorf("the first %d of %d bytes: %v", n, len(stream), err)
		}
	}
	for n := 0; n < len(stream); n += 1 + n/3 {
		turned := bytes.Clone(stream)
		turned[n] ^= 0x10
		if _, _, err := received(t, turned, 1<<20); err == nil {
			t.Errorf("byte %d turned: taken for right", n)
		}
	}
	if _, _, err := received(t, stream, 1<<19); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("one that is too large: %v", err)
	}
}

// nowhere takes pieces where they may be, and nowhere else.
type nowhere struct {
	t    testing.TB
	size int64
	took int64
}

func (n *nowhere) Truncate(size int64) error {
	n.size = size
	return nil
}

func (n *nowhere) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > n.size {
		n.t.Errorf("%d bytes are written at %d of %d", len(p), at, n.size)
	}
	if n.took += int64(len(p)); n.took > n.size {
		n.t.Errorf("%d bytes are written of %d", n.took, n.size)
	}
	return len(p), nil
}

func FuzzReceive(f *testing.F) {
	_, stream := sent(f, func(file *os.File) {
		file.Truncate(1 << 16)             //nolint:errcheck
		file.WriteAt([]byte("some"), 4096) //nolint:errcheck
	})
	f.Add(stream)
	strange := append([]byte(magic), make([]byte, 32)...)
	binary.LittleEndian.PutUint64(strange[8:], 1<<62)
	binary.LittleEndian.PutUint64(strange[16:], 1<<62)
	binary.LittleEndian.PutUint64(strange[24:], 1<<63)
	f.Add(strange)
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 24
		_, err := Receive(bytes.NewReader(b), func(s Size) (Into, error) {
			if s.File > most {
				return nil, io.ErrShortBuffer
			}
			return &nowhere{t: t}, nil
		})
		_ = err
	})
}
