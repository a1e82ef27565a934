// Package wire is the stream that `exec` and `console` speak: typed frames over an HTTP/1.1 connection that both sides
// upgraded ("Upgrade: polyplane-stream"). The command travels in the request's query, so that what stands between – the
// manager's reverse proxy – needs to understand nothing but the upgrade.
//
// A frame is one byte of type, four bytes of payload length (big-endian), and the payload.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/polyplane/polyplane/node/control"
)

// Protocol is the name in the Upgrade header.
const Protocol = "polyplane-stream"

// Type tells what a frame carries.
type Type byte

// The types. The numbers are on the wire between versions: a new type gets a new number.
const (
	Stdin       Type = 0 // to the command
	Stdout      Type = 1 // from the command
	Stderr      Type = 2 // from the command; never with a terminal
	Resize      Type = 3 // JSON control.Size, to the command's terminal
	ExitFrame   Type = 4 // JSON Exit; the last frame of a stream
	StdinClosed Type = 5 // nothing more will come for the command's standard input; empty
)

func (t Type) String() string {
	switch t {
	case Stdin:
		return "stdin"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Resize:
		return "resize"
	case ExitFrame:
		return "exit"
	case StdinClosed:
		return "stdin-closed"
	}
	return fmt.Sprintf("type %d", byte(t))
}

const (
	headerLen = 5 // bytes: the type and the payload's length
	// MaxData is the largest payload of a data frame, in bytes; MaxControl that of a frame of JSON.
	MaxData    = 1 << 20
	MaxControl = 64 << 10
	// chunk is what one Write of a stream becomes at most: small enough that a resize is not held up behind it.
	chunk = 32 << 10
)

func (t Type) max() (uint32, bool) {
	switch t {
	case Stdin, Stdout, Stderr:
		return MaxData, true
	case Resize, ExitFrame:
		return MaxControl, true
	case StdinClosed:
		return 0, true
	}
	return 0, false
}

// Exit is how a command ended. Error tells why it could not be run or watched to its end; Code counts only without it.
type Exit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// Frame is one frame. Payload is valid until the next read.
type Frame struct {
	Type    Type
	Payload []byte
}

// Size decodes a Resize frame.
func (f Frame) Size() (control.Size, error) {
	var s control.Size
	if f.Type != Resize {
		return s, fmt.Errorf("stream: a %s frame where a resize frame was expected", f.Type)
	}
	if err := json.Unmarshal(f.Payload, &s); err != nil {
		return s, fmt.Errorf("stream: resize frame: %w", err)
	}
	return s, nil
}

// Exit decodes an exit frame.
func (f Frame) Exit() (Exit, error) {
	var e Exit
	if f.Type != ExitFrame {
		return e, fmt.Errorf("stream: a %s frame where an exit frame was expected", f.Type)
	}
	if err := json.Unmarshal(f.Payload, &e); err != nil {
		return e, fmt.Errorf("stream: exit frame: %w", err)
	}
	return e, nil
}

// ErrTooLarge is wrapped by the error for a frame beyond its type's limit.
var ErrTooLarge = errors.New("frame too large")

// Reader reads frames.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader {
	br, ok := r.(*bufio.Reader)
	if !ok {
		br = bufio.NewReader(r)
	}
	return &Reader{r: br}
}

// Next returns the next frame; io.EOF at a clean end between frames, io.ErrUnexpectedEOF within one.
func (r *Reader) Next() (Frame, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Frame{}, err
	}
	t, n := Type(head[0]), binary.BigEndian.Uint32(head[1:])
	max, known := t.max()
	if !known {
		return Frame{}, fmt.Errorf("stream: frame of unknown %s", t)
	}
	if n > max {
		return Frame{}, fmt.Errorf("stream: %s frame of %d bytes, at most %d are allowed: %w", t, n, max, ErrTooLarge)
	}
	if int(n) > cap(r.buf) {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Type: t, Payload: b}, nil
}

// appendFrame appends one frame to b.
func appendFrame(b []byte, t Type, payload []byte) ([]byte, error) {
	max, known := t.max()
	if !known {
		return b, fmt.Errorf("stream: frame of unknown %s", t)
	}
	if uint64(len(payload)) > uint64(max) {
		return b, fmt.Errorf("stream: %s frame of %d bytes, at most %d are allowed: %w", t,
			len(payload), max, ErrTooLarge)
	}
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...), nil
}
