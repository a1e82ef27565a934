package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/metrics"
	"github.com/polyplane/polyplane/server/store"
)

// Config says how a manager runs.
type Config struct {
	Dirs instance.Dirs
	// Substrate is stored for later starts; one without nodes means the stored one.
	Substrate model.Substrate
	// External is an etcd cluster to keep the networks in; embedded in this process when nil.
	External *store.ExternalOptions
	// Quota bounds the embedded store's database, in bytes; store.DefaultQuota when zero.
	Quota int64
	// Listen are the addresses, HOST:PORT, at which other machines are served, over TLS; none when empty. Advertise are
	// those by which they reach them, where these are others (behind a router that translates addresses, or by name).
	Listen, Advertise []string
	// Ready is called once the API is served.
	Ready func()
}

// collectAt is the growth of the heap, in percent, at which garbage is collected in an otherwise idle manager: its
// heap is small and lives long, and memory is what there is least of.
const collectAt = 40

// Run serves the instance until the context ends. Every stream is ended and the store closed when it returns.
func Run(ctx context.Context, config Config) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	// First of all: whoever holds the socket is the manager.
	local, err := api.Listen(ctx, config.Dirs.ManagerSocket())
	if err != nil {
		return err
	}
	listeners := []net.Listener{local}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	out, secure, err := openOutside(ctx, config)
	if err != nil {
		return err
	}
	listeners = append(listeners, secure...)
	st, err := openStore(ctx, config)
	if err != nil {
		return err
	}
	m, err := New(ctx, config.Dirs, st, config.Substrate)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	m.outside = out
	loop, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { m.Loop(loop) })
	wg.Go(func() { m.listen(loop) })
	keeper := &backups{m: m, dir: config.Dirs.Backups()}
	wg.Go(func() { keeper.run(loop) })
	exporter := metrics.New(m)
	users := patient{m, m.restored(loop, patience), patience}
	server := api.New(api.Services{Networks: m, Views: users, Agents: users, Settings: m, Gate: m, Tokens: m,
		Members: m, Data: m,
		Metrics: exporter})
	if config.Ready != nil {
		config.Ready()
	}
	err = api.Serve(ctx, exporter.Wrap(server), listeners...)
	end()
	wg.Wait()
	m.closeAccess()
	server.Close()
	return errors.Join(err, st.Close())
}

func openStore(ctx context.Context, config Config) (*store.Store, error) {
	if config.External != nil {
		o := *config.External
		if o.Prefix == "" {
			o.Prefix = store.DefaultPrefix + config.Dirs.Name + "/"
		}
		return store.OpenExternal(ctx, o)
	}
	if err := os.MkdirAll(config.Dirs.Data, 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return store.OpenEmbedded(ctx, store.EmbeddedOptions{Dir: config.Dirs.Store(),
		Log: filepath.Join(config.Dirs.Data, "etcd.log"), Quota: config.Quota})
}
