package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/node/control"
)

// commandKey is the query's key for the command, as JSON.
const commandKey = "command"

// SetCommand puts the command into a request's query.
func SetCommand(q url.Values, c control.Command) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the command: %w", err)
	}
	q.Set(commandKey, string(b))
	return nil
}

// CommandOf reads the command from a request's query; the zero Command when there is none.
func CommandOf(q url.Values) (control.Command, error) {
	var c control.Command
	s := q.Get(commandKey)
	if s == "" {
		return c, nil
	}
	if len(s) > MaxControl {
		return c, fmt.Errorf("the command is %d bytes long, at most %d are allowed", len(s), MaxControl)
	}
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return c, fmt.Errorf("the query's %q is not a command: %w", commandKey, err)
	}
	return c, nil
}

// Conn is an upgraded connection. Writes may come from several goroutines, reads from one.
type Conn struct {
	*Reader
	rwc io.ReadWriteCloser

	mu  sync.Mutex // held while a frame is written, so that frames of several goroutines do not mix
	buf []byte     // the frame being written
}

// NewConn makes a Conn of a connection that both sides already know to carry frames. br holds what was read from it
// before, and may be nil.
func NewConn(rwc io.ReadWriteCloser, br *bufio.Reader) *Conn {
	if br == nil {
		br = bufio.NewReader(rwc)
	}
	return &Conn{Reader: NewReader(br), rwc: rwc}
}

// Write sends one frame.
func (c *Conn) Write(t Type, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := appendFrame(c.buf[:0], t, payload)
	if err != nil {
		return err
	}
	c.buf = b
	_, err = c.rwc.Write(b)
	return err
}

// WriteJSON sends a control frame.
func (c *Conn) writeJSON(t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Write(t, b)
}

// SendSize tells the far side the terminal's size.
func (c *Conn) SendSize(s control.Size) error { return c.writeJSON(Resize, s) }

// SendExit ends the stream.
func (c *Conn) SendExit(e Exit) error {
	if len(e.Error) > MaxControl/8 { // escapes may make six bytes of one
		e.Error = strings.ToValidUTF8(e.Error[:MaxControl/8], "") + "…"
	}
	return c.writeJSON(ExitFrame, e)
}

// Close closes the connection.
func (c *Conn) Close() error { return c.rwc.Close() }

// stream is one direction of one type as an io.Writer.
type stream struct {
	c *Conn
	t Type
}

// Stream returns a writer whose data becomes frames of type t.
func (c *Conn) Stream(t Type) io.Writer { return stream{c, t} }

func (s stream) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		k := min(len(p), chunk)
		if err := s.c.Write(s.t, p[:k]); err != nil {
			return n, err
		}
		n += k
		p = p[k:]
	}
	return n, nil
}

// wanted tells whether the request asks for the upgrade.
func wanted(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), Protocol) {
		return false
	}
	for _, v := range h.Values("Connection") {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), "upgrade") {
				return true
			}
		}
	}
	return false
}

// Accept upgrades a request's connection. On an error it has answered the request.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	if r.ProtoMajor != 1 || !wanted(r.Header) {
		w.Header().Set("Upgrade", Protocol)
		http.Error(w, "this resource is a stream: ask with \"Connection: Upgrade\" and \"Upgrade: "+Protocol+"\"",
			http.StatusUpgradeRequired)
		return nil, errors.New("the request does not ask for the upgrade to " + Protocol)
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot carry a stream", http.StatusInternalServerError)
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	// The server's own deadlines may still be armed.
	if err := nc.SetDeadline(time.Time{}); err != nil {
		nc.Close()
		return nil, err
	}
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := io.WriteString(nc, answer); err != nil {
		nc.Close()
		return nil, err
	}
	return NewConn(nc, rw.Reader), nil
}
