package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// watch says how a daemon is asked whether it lives. It counts questions, and reads no clock. So while this process was
// stopped, or the machine slept, nobody was asked, and nobody failed to answer.
type watch struct {
	ask func(ctx context.Context) error
	// every is the interval of the questions, and the time limit of an answer. most is how many answers in a row may be
	// missing before the daemon is started again; first is the same until it has answered once.
	every       time.Duration
	most, first int
}

// What `up` asks its daemons, and how patiently. A daemon that starts may have much to read, or wait for what an
// earlier one began.
const (
	askEvery = 5 * time.Second
	askMost  = 6
	askFirst = 60
	// stuckTime is how long an agent's loop may make no progress before the agent is started again. The node is shown
	// as not ready long before. What is slow, but comes to an end, shall come to its end.
	stuckTime = 90 * time.Second
)

// guard asks until the context ends, and calls end when there is no answer for too long.
func (w *watch) guard(ctx context.Context, end func(why string)) {
	// Until the first answer has come little is known, so it is asked for more often.
	const eager = 10
	tick := time.NewTicker(w.every / eager)
	defer tick.Stop()
	failed, most := 0, eager*w.first
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, cancel := context.WithTimeout(ctx, w.every)
		err := w.ask(once)
		late := once.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if most != w.most {
				tick.Reset(w.every)
			}
			failed, most = 0, w.most
			continue
		}
		if late && most != w.most {
			failed += eager - 1 // it has taken as long as so many
		}
		var stuck *stuckError
		if failed++; failed >= most || errors.As(err, &stuck) {
			end(err.Error())
			return
		}
	}
}

// stuckError is the answer of an agent whose loop stands still.
type stuckError struct{ beat model.Beat }

func (e *stuckError) Error() string {
	step := "waiting"
	if e.beat.Step != "" {
		step = strconv.Quote(e.beat.Step)
	}
	return fmt.Sprintf("its loop has been at %s for %s without any progress", step, e.beat.Still)
}

// watchManager asks the manager by its socket. A manager that answers has taken the connection, gets processor time,
// and can read its state. It is not ended because its store does not answer.
func watchManager(m Manager) *watch {
	return &watch{every: askEvery, most: askMost, first: askFirst, ask: func(ctx context.Context) error {
		_, err := m.Ping(ctx)
		if err != nil {
			err = fmt.Errorf("it does not answer: %w", err)
		}
		return err
	}}
}

// watchAgent asks an agent how its loop goes round.
func watchAgent(socket string) *watch {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	c := &http.Client{Transport: transport}
	return &watch{every: askEvery, most: askMost, first: askFirst, ask: func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/pulse", nil)
		if err != nil {
			return err
		}
		response, err := c.Do(request)
		if err != nil {
			return fmt.Errorf("it does not answer: %w", err)
		}
		defer response.Body.Close()
		var beat model.Beat
		if err := json.NewDecoder(response.Body).Decode(&beat); err != nil {
			return fmt.Errorf("its answer cannot be read: %w", err)
		}
		if time.Duration(beat.Still) >= stuckTime {
			return &stuckError{beat}
		}
		return nil
	}}
}

// heart tells systemd, if it wants to know (WatchdogSec=, sd_watchdog_enabled(3)), that this process can still start
// and end others. It returns at once if nobody asks.
func (s *spawner) heart(ctx context.Context) {
	microseconds, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err != nil || microseconds <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	tick := time.Tick(time.Duration(microseconds) * time.Microsecond / 3)
	for {
		done := make(chan struct{})
		s.requests <- func() { close(done) }
		<-done
		_ = tellSystemd("WATCHDOG=1") // it asks again by ending this process
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// withoutSystemd leaves out the variables by which systemd speaks to this process, so that no child has them. runc
// would hand NOTIFY_SOCKET on to the element, and wait until something in there says that it is ready. BIRD never does,
// so no router with BIRD started under systemd; and what an element said reached the machine's systemd.
func withoutSystemd(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
	})
}
