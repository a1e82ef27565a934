package lifecycle

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// slowManager answers after half of its time, and has its node ready after all of it.
type slowManager struct {
	began time.Time
	takes time.Duration
}

func (m *slowManager) Ping(context.Context) (model.Pong, error) { return model.Pong{}, nil }

func (m *slowManager) Networks(context.Context) ([]model.NetworkStatus, error) { return nil, nil }

func (m *slowManager) Nodes(context.Context) ([]model.NodeStatus, error) {
	past := time.Since(m.began)
	if past < m.takes/2 {
		return nil, errors.New("no such file or directory")
	}
	return []model.NodeStatus{{SubstrateNode: model.SubstrateNode{Name: "n1"}, Ready: past > m.takes, Revision: 1}}, nil
}

// A machine that boots slowly, with much to make, must not be told every minute to begin again.
func TestSystemdWaitsForASlowStart(t *testing.T) {
	begin := func(out io.Writer, takes time.Duration) ([]model.NodeStatus, error) {
		u := &Up{Dirs: instance.NewDirs("patience"), Manager: &slowManager{time.Now(), takes}, Out: out,
			within: time.Second}
		return u.await(t.Context(), &supervisor{deaths: map[string]int{}}, settings{})
	}
	t.Setenv("NOTIFY_SOCKET", "")
	var words strings.Builder
	if _, err := begin(&words, time.Hour); err == nil || !strings.Contains(err.Error(), "is not ready after 4s") {
		t.Errorf("who types `up` is told: %v", err)
	}
	if !strings.Contains(words.String(), "waiting for manager, which is not ready yet; its log ends with: ") {
		t.Errorf("while it waits, who types `up` is told: %q", words.String())
	}

	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	// It is read all the while: the kernel holds some ten words, and whoever writes another waits.
	heard := make(chan string)
	go func() {
		told := ""
		for b := make([]byte, 200); ; {
			n, err := c.Read(b)
			if err != nil {
				heard <- told
				return
			}
			told += string(b[:n]) + "\n"
		}
	}()
	var said strings.Builder
	nodes, err := begin(&said, 1500*time.Millisecond)
	if err != nil || len(nodes) != 1 {
		t.Errorf("systemd waits, and it is not waited for what takes long: %v, %v", nodes, err)
	}
	if !strings.Contains(said.String(), "is not ready yet") {
		t.Errorf("the journal has nothing of what was waited for: %q", said.String())
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second)) // what was written is there already
	told := <-heard
	for _, want := range []string{"EXTEND_TIMEOUT_USEC=2000000\n", "STATUS=waiting for manager\n",
		"STATUS=waiting for the agent of node n1\n"} {
		if !strings.Contains(told, want) {
			t.Errorf("systemd was not told %q:\n%s", want, told)
		}
	}
}
