package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// stalls is how long a registry may send nothing; patience is what counts, which tests change.
const stalls = 30 * time.Second

var patience = stalls

// maxRedirects is how often a registry may say that something is elsewhere, for one request. The client that is used
// for registries looks where to, but not how often.
const maxRedirects = 10

// impatient gives up requests whose answers do not go on, or always lead elsewhere.
type impatient struct{ http.RoundTripper }

func (t *impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	for from, n := r.Response, 0; from != nil && from.Request != nil; from = from.Request.Response {
		if n++; n > maxRedirects {
			return nil, fmt.Errorf("it is always said to be elsewhere: more than %d redirects", maxRedirects)
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stalled := fmt.Errorf("%s has sent nothing for %v", r.URL.Host, patience)
	timer := time.AfterFunc(patience, func() { cancel(stalled) })
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		if cause := context.Cause(ctx); cause == stalled {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	timer.Stop()
	resp.Body = &moving{ReadCloser: resp.Body, ctx: ctx, timer: timer, over: sync.OnceFunc(func() {
		timer.Stop()
		cancel(nil)
	})}
	return resp, nil
}

// moving is a body that must go on coming while somebody reads it.
type moving struct {
	io.ReadCloser
	ctx   context.Context
	timer *time.Timer
	over  func()
}

func (m *moving) Read(p []byte) (int, error) {
	m.timer.Reset(patience)
	n, err := m.ReadCloser.Read(p)
	m.timer.Stop() // what is read is written before more is asked for
	if err != nil && err != io.EOF {
		if cause := context.Cause(m.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (m *moving) Close() error {
	defer m.over()
	return m.ReadCloser.Close()
}
