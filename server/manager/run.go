package manager

import (
	"cmp"
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
	// Substrate is stored for later starts. One without nodes stands for the stored one.
	Substrate model.Substrate
	// External is an etcd cluster that keeps the networks. If it is nil, this process runs an etcd of its own.
	External *store.ExternalOptions
	// Quota bounds the embedded store's database, in bytes; zero stands for store.DefaultQuota.
	Quota int64
	// Listen are the addresses, HOST:PORT, at which other machines are served over TLS; none if it is empty. Advertise
	// are the addresses at which they reach the manager, if these are different: behind a router that translates
	// addresses, or by name.
	Listen, Advertise []string
	// Ready is called once the API is served.
	Ready func()
}

// collectAt is the growth of the heap, in percent, at which an otherwise idle manager collects garbage. Its heap is
// small and lives long, and memory is scarcer than time.
const collectAt = 40

// Run serves the instance until the context ends. When it returns, every stream has ended and the store is closed.
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
	wg.Go(func() { m.images.tend(loop) })
	wg.Go(func() { m.settling().run(loop) })
	if st.External() {
		wg.Go(func() { m.watchStore(loop) })
	}
	keeper := &backups{m: m, dir: config.Dirs.Backups()}
	wg.Go(func() { keeper.run(loop) })
	exporter := metrics.New(m)
	users := patient{m, m.restored(loop, patience), patience}
	server := api.New(api.Services{Networks: m, Moves: &m.moves, Views: users, Agents: users, Settings: m,
		Gate: m, Tokens: m, Members: m, Data: m, Images: m.images, Metrics: exporter})
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
		o.Prefix = cmp.Or(o.Prefix, store.DefaultPrefix+config.Dirs.Name+"/")
		o.Aside = config.Dirs.Aside()
		return store.OpenExternal(ctx, o)
	}
	if err := os.MkdirAll(config.Dirs.Data, 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return store.OpenEmbedded(ctx, store.EmbeddedOptions{Dir: config.Dirs.Store(),
		Log: filepath.Join(config.Dirs.Data, "etcd.log"), Quota: config.Quota, Reserve: config.Dirs.Reserve()})
}
