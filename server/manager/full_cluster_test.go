package manager

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/system/attack"
)

// TestAFullClusterStopsNobodyWhoStops: with the space of an external etcd used up, elements are stopped, suspended and
// cut off, policies and quotas are set, tokens revoked, networks deleted. All of that is told, and outlives the manager.
func TestAFullClusterStopsNobodyWhoStops(t *testing.T) {
	attack.Tell(t, "somebody uses up the space of the external etcd",
		"who attacks is stopped and cut off all the same")
	dir, err := os.MkdirTemp("", "full") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s:0")}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, "etcd"), "error",
		[]string{filepath.Join(dir, "log")}
	config.ListenPeerUrls, config.TickMs, config.ElectionMs, config.QuotaBackendBytes = nil, 100, 500, 16<<20
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	<-etcd.Server.ReadyNotify()
	dirs := instance.Dirs{Name: "test", Run: dir, Data: dir}
	begin := func() *Manager {
		t.Helper()
		st, err := openStore(t.Context(), Config{Dirs: dirs,
			External: &store.ExternalOptions{URLs: []string{socket.String()}}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(t.Context(), dirs, st, substrateOf(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Register("n1", model.Registration{Socket: dir + "/none.sock"}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := begin()
	for _, name := range []string{"lab", "gone"} {
		if _, err := (&fixture{Manager: m}).Apply(t.Context(), line(name, 4), model.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.changeAccess(t.Context(), func(a *model.Access) error {
		a.Tokens = append(a.Tokens, model.StoredToken{Token: model.Token{ID: "x", User: "bob", Role: model.RoleOwner}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{socket.String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := 0; err == nil; i++ {
		_, err = client.Put(t.Context(), "/others/"+string(rune('a'+i)), strings.Repeat("x", 1<<20))
	}

	act := func(element string, action model.Action) (model.ActionResult, error) {
		return m.Act(t.Context(), model.ID{Network: "lab", Element: element}, action)
	}
	if _, err := act("r4", model.ActionRestart); err == nil || problem(t, err).Kind != api.KindFull {
		t.Errorf("an ordinary change: %v", err)
	}
	for element, action := range map[string]model.Action{"r1": model.ActionStop, "r2": model.ActionSuspend,
		"r3": model.ActionQuarantine} {
		result, err := act(element, action)
		if err != nil || !result.Changed || !strings.Contains(result.Aside, "its space is used up") {
			t.Errorf("%s: %+v, %v", action, result, err)
		}
	}
	if _, err := m.SetPolicy(t.Context(), "lab", model.PolicyRequest{Attack: model.AttackQuarantine}); err != nil {
		t.Errorf("policy: %v", err)
	}
	quota := model.QuotaRequest{Values: []model.Assignment{{Key: "networks", Value: "1"}}}
	if _, err := m.SetQuota(t.Context(), model.QuotaOfOwner, "bob", quota); err != nil {
		t.Errorf("quota: %v", err)
	}
	if _, err := m.RevokeToken(t.Context(), "x"); err != nil {
		t.Errorf("token: %v", err)
	}
	if err := m.Delete(t.Context(), "gone", false); err != nil {
		t.Errorf("delete: %v", err)
	}
	whole := func(when string) {
		t.Helper()
		r, err := m.Network("lab")
		if o := r.Overrides; err != nil || !o["r1"].Stopped || !o["r2"].Suspended || !o["r3"].Quarantined ||
			!o["r3"].Held || r.Policies[""] != model.AttackQuarantine {
			t.Errorf("%s: lab is %+v, %v (%v)", when, o, r.Policies, err)
		}
		if m.quotas.limits.Owners["bob"].Networks != 1 {
			t.Errorf("%s: the quotas are %+v", when, m.quotas.limits)
		}
		if all := m.ListTokens(); len(all) != 1 || all[0].Revoked.IsZero() {
			t.Errorf("%s: the tokens are %+v", when, all)
		}
	}
	whole("at once")
	said := func() (told bool) {
		all, _ := m.Events(0)
		for _, e := range all {
			told = told || e.Reason == "LaidAside" && e.Object == "lab" && strings.Contains(e.Message, dirs.Aside())
		}
		return told && strings.Contains(firstNode(t, m).Problem, "kept in "+dirs.Aside())
	}
	if !said() {
		t.Errorf("nobody is told: %q", firstNode(t, m).Problem)
	}
	revision := m.revision
	again := func() {
		t.Helper()
		if err := m.store.Close(); err != nil {
			t.Fatal(err)
		}
		m = begin()
	}
	again()
	whole("after a restart")
	if m.revision < revision {
		t.Errorf("after a restart nodes are told revision %d, before it was %d", m.revision, revision)
	}

	resp, err := client.Delete(t.Context(), "/others/", clientv3.WithPrefix())
	if err == nil {
		_, err = client.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err == nil {
		_, err = client.Defragment(t.Context(), socket.String())
	}
	if err == nil {
		_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	}
	if err != nil {
		t.Fatal(err)
	}
	m.settling().settle(t.Context(), time.Now())
	if why := m.store.Aside(); why != "" || strings.Contains(firstNode(t, m).Problem, "kept") {
		t.Errorf("it has room, and: %s", why)
	}
	if err := os.RemoveAll(dirs.Aside()); err != nil {
		t.Fatal(err)
	}
	again()
	whole("from the store alone")
	if _, err := m.Act(context.WithoutCancel(t.Context()), model.ID{Network: "lab", Element: "r1"},
		model.ActionStart); err != nil {
		t.Error(err)
	}
	if err := m.store.Close(); err != nil {
		t.Error(err)
	}
}
