package store

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/polyplane/polyplane/model"
)

// TestExternalCluster speaks to an etcd over a socket, as a cluster of somebody else's.
func TestExternalCluster(t *testing.T) {
	dir := t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock:0")}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, "etcd"), "warn",
		[]string{filepath.Join(dir, "log")}
	config.ListenPeerUrls, config.TickMs, config.ElectionMs = nil, 100, 500
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	<-etcd.Server.ReadyNotify()
	connect := func(prefix string) *Store {
		t.Helper()
		s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	a, b := connect("/polyplane/a/"), connect("/polyplane/b/")
	big := record("big", 1, 40_000)
	if _, err := a.Put(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), record("small", 1, 3)); err != nil {
		t.Fatal(err)
	}
	again := load(t, connect("/polyplane/a/"))
	if len(again) != 1 {
		t.Fatalf("instance a sees %d networks, it has 1", len(again))
	}
	equal(t, again["big"], big)
	if !strings.HasPrefix(a.Place(), "unix://") {
		t.Error(a.Place())
	}
}

func TestExternalOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]ExternalOptions{
		"no URL was given":                       {},
		"must end with a slash":                  {URLs: []string{"http://x:2379"}, Prefix: "/p"},
		`"localhost:2379" is no URL of etcd`:     {URLs: []string{"localhost:2379"}},
		"no URL begins with https://":            {URLs: []string{"http://x:2379"}, CA: "ca.pem"},
		"a client certificate needs its key":     {URLs: []string{"https://x:2379"}, Cert: "c.pem"},
		"open /nonexistent/ca.pem: no such file": {URLs: []string{"https://x:2379"}, CA: "/nonexistent/ca.pem"},
	} {
		if _, err := OpenExternal(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// An older copy of a cluster that is put in its place while the manager works with it is neither read nor written. It
// has the same identity. With the right one back all goes on.
func TestOlderCopyIsNoticed(t *testing.T) {
	dir := t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock:0")}
	run := func(data string) (stop func()) {
		t.Helper()
		config := embed.NewConfig()
		config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, data), "warn",
			[]string{filepath.Join(dir, "log")}
		config.ListenPeerUrls, config.TickMs, config.ElectionMs = nil, 100, 500
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
		etcd, err := embed.StartEtcd(config)
		if err != nil {
			t.Fatal(err)
		}
		<-etcd.Server.ReadyNotify()
		return etcd.Close
	}
	stop := run("etcd")
	s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{socket.String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(name string) error {
		_, err := s.Put(t.Context(), record(name, 1, 3))
		return err
	}
	if err := put("first"); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.CopyFS(filepath.Join(dir, "older"), os.DirFS(filepath.Join(dir, "etcd"))); err != nil {
		t.Fatal(err)
	}
	stop = run("etcd")
	if err := put("second"); err != nil {
		t.Fatal(err)
	}
	stop()
	stop = run("older")
	looks := map[string]func() error{
		"a look":   func() error { return s.Look(t.Context()) },
		"a write":  func() error { return put("third") },
		"a load":   func() error { _, _, _, err := s.Load(t.Context()); return err },
		"a delete": func() error { _, err := s.Delete(t.Context(), "first", model.Deleted{Index: 1}); return err },
	}
	for what, look := range looks {
		if err := look(); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "older copy") {
			t.Errorf("%s of an older copy: %v", what, err)
		}
	}
	stop()
	stop = run("etcd")
	defer func() { stop() }()
	if err := put("third"); err != nil {
		t.Error(err)
	}
	if again := load(t, s); len(again) != 3 {
		t.Errorf("the right one has %d networks, 3 were put", len(again))
	}
}
