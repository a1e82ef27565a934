package manager

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// clusterAt has a cluster of somebody else's answer at a socket, out of a directory.
func clusterAt(t *testing.T, socket url.URL, dir string) (end func()) {
	t.Helper()
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, "etcd"), "error",
		[]string{filepath.Join(dir, "log")}
	config.ListenPeerUrls, config.TickMs, config.ElectionMs = nil, 100, 500
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	ended := false
	end = func() {
		if !ended {
			ended = true
			etcd.Close()
		}
	}
	t.Cleanup(end)
	return end
}

// A cluster that is replaced by an empty one while the manager runs, or by one of another instance: that is told, with
// the reason, nothing is written there and no backup made of it, and all goes on when the right one is back.
func TestStoreReplacedWhileItRuns(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s:0")}
	open := func() *store.Store {
		t.Helper()
		s, err := store.OpenExternal(t.Context(), store.ExternalOptions{URLs: []string{socket.String()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	end := clusterAt(t, socket, dir)
	m, err := New(t.Context(), instance.Dirs{Name: "test", Run: dir, Data: dir}, open(), substrateOf(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("n1", model.Registration{Socket: dir + "/none.sock"}); err != nil {
		t.Fatal(err)
	}
	apply := func(name string, routers int) error {
		_, err := (&fixture{Manager: m}).Apply(t.Context(), line(name, routers), model.ApplyOptions{})
		return err
	}
	// await looks until what the manager says of its store is so: connections take a while to find the other one.
	await := func(strange bool) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if m.lookAtStore(t.Context()); (m.strange != "") == strange {
				return
			}
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("of the store the manager says %q", m.strange)
			}
		}
	}
	if err := apply("lab", 2); err != nil {
		t.Fatal(err)
	}
	await(false)
	for i, what := range []string{"an empty cluster", "another instance's"} {
		end()
		end = clusterAt(t, socket, other)
		if what != "an empty cluster" {
			open() // which makes a store there
		}
		await(true)
		quota := model.QuotaRequest{Values: []model.Assignment{{Key: "networks", Value: "1"}}}
		for doing, err := range map[string]error{
			"apply a new one": apply("fresh", 2),
			"apply":           apply("lab", 3),
			"delete":          m.Delete(t.Context(), "lab", false),
			"set": func() error {
				_, err := m.Set(t.Context(), "lab", model.SetRequest{Object: "r1",
					Values: []model.Assignment{{Key: "disk", Value: "1GiB"}}})
				return err
			}(),
			"stop": func() error {
				_, err := m.Act(t.Context(), model.ID{Network: "lab", Element: "r1"}, model.ActionStop)
				return err
			}(),
			"quota": func() error { _, err := m.SetQuota(t.Context(), model.QuotaOfOwner, "alice", quota); return err }(),
			"token": func() error { _, err := m.RevokeToken(t.Context(), "none"); return err }(),
			"backup": func() error {
				return (&backups{m: m, dir: filepath.Join(dir, "backups")}).make(t.Context(), time.Now())
			}(),
		} {
			if err == nil || !strings.Contains(err.Error(), "another store is at its place") ||
				!strings.Contains(err.Error(), "Put the right one back") {
				t.Errorf("%s, %s: %v", what, doing, err)
			}
		}
		if left := store.StoredBackups(filepath.Join(dir, "backups")); len(left) > 0 {
			t.Errorf("%s: there are backups of it: %v", what, left)
		}
		if n := firstNode(t, m); !strings.Contains(n.Problem, "another store is at its place") {
			t.Errorf("%s: get nodes says %q", what, n.Problem)
		}
		if why := lastReason(m); why != "StoreReplaced" {
			t.Errorf("%s: the last event is %s", what, why)
		}
		end()
		end = clusterAt(t, socket, dir)
		await(false)
		if err := apply("lab", 4+i); err != nil {
			t.Errorf("%s is away again: %v", what, err)
		}
		if n := firstNode(t, m); strings.Contains(n.Problem, "store") {
			t.Errorf("%s is away again: get nodes says %q", what, n.Problem)
		}
	}
	if err := m.Delete(t.Context(), "lab", false); err != nil {
		t.Error(err)
	}
	again := open()
	defer again.Close()
	records, damaged, _, err := again.Load(context.WithoutCancel(t.Context()))
	if err != nil || len(damaged) > 0 || len(records) != 1 || !records[0].Deleting {
		t.Errorf("in the end the store has %v, %v (%v)", records, damaged, err)
	}
}

func lastReason(m *Manager) string {
	all, _ := m.Events(0)
	for i := len(all) - 1; i >= 0; i-- {
		if strings.HasPrefix(all[i].Reason, "Store") {
			return all[i].Reason
		}
	}
	return ""
}

func firstNode(t *testing.T, m *Manager) model.NodeStatus {
	t.Helper()
	d, err := m.Dump("", api.Parts{Nodes: true})
	if err != nil || len(d.Nodes) == 0 {
		t.Fatalf("get nodes: %v, %v", d.Nodes, err)
	}
	return d.Nodes[0]
}
