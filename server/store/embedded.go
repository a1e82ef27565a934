package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3compactor"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// DefaultQuota bounds the embedded store's database, in bytes.
const DefaultQuota = 1 << 30

// segmentSize is that of etcd's write-ahead log, in bytes; walRoom is what two of them and the database's beginning
// take.
const (
	segmentSize = 8 << 20
	walRoom     = 2*segmentSize + 8<<20
)

// EmbeddedOptions say how etcd runs inside this process.
type EmbeddedOptions struct {
	Dir   string // etcd's data directory, made when missing
	Log   string // the file that takes etcd's warnings; Dir + ".log" when empty
	Quota int64  // of the database, in bytes; DefaultQuota when zero
	// Reserve is a file that keeps room on the disk for urgent writes; none when empty. It is on the disk of Dir.
	Reserve string
}

// OpenEmbedded starts etcd inside this process, without any listener: requests are function calls. It returns when the
// store can be used.
func OpenEmbedded(ctx context.Context, options EmbeddedOptions) (*Store, error) {
	if options.Log == "" {
		options.Log = filepath.Clean(options.Dir) + ".log"
	}
	options.Quota = cmp.Or(options.Quota, DefaultQuota)
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(options.Log), 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if err := checkWhole(options.Dir); err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w", options.Dir, err)
	}
	room := newReserve(options)
	if _, err := os.Stat(filepath.Join(options.Dir, usedMark)); err == nil {
		room.room(mostUrgent) //nolint:errcheck // on a disk without room etcd says what it lacks, if it lacks anything
	}
	etcd, err := startEtcd(options)
	if err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w; its log is %s", options.Dir, err, options.Log)
	}
	select {
	case <-etcd.ReadyNotify():
	case <-etcd.StopNotify():
		etcd.Stop()
		return nil, fmt.Errorf("start etcd on %s: it stopped; its log is %s", options.Dir, options.Log)
	case <-ctx.Done():
		etcd.Stop()
		return nil, fmt.Errorf("start etcd on %s: %w", options.Dir, context.Cause(ctx))
	}
	client := v3client.New(etcd)
	s := &Store{kv: client.KV, prefix: DefaultPrefix, place: "embedded", moved: map[string]int64{},
		unsure: map[string][]string{}, looked: map[string]time.Time{}, versions: map[string]version{}}
	s.reclaim = func(ctx context.Context) error {
		if err := fullDisk(options.Dir); err != nil { // a database is made smaller by a copy of it
			return err
		}
		return reclaim(ctx, etcd, client)
	}
	s.room = room.room
	s.size = func() (file, used int64) {
		b := etcd.Backend()
		return b.Size(), b.SizeInUse()
	}
	s.close = func() error {
		err := client.Close()
		if errors.Is(err, context.Canceled) { // what its own Close causes
			err = nil
		}
		etcd.Stop()
		return err
	}
	if err := s.checkLayout(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	os.WriteFile(filepath.Join(options.Dir, usedMark), nil, 0o600) //nolint:errcheck // a full disk; the next start marks it
	room.room(ordinary)                                            //nolint:errcheck // it takes what there is
	return s, nil
}

// usedMark is a file in the directory of a store that was opened once: from then on all parts of the store must be
// there. etcd would make missing parts anew, and then be empty, or wait for ever.
const usedMark = "polyplane"

// checkWhole tells which part of a store that was used is missing.
func checkWhole(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, usedMark)); err != nil {
		return nil //nolint:nilerr // it is new, or was last used by a polyplane that did not mark stores
	}
	for _, pattern := range []string{"member/snap/db", "member/wal/*.wal"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) == 0 {
			return fmt.Errorf("%s is missing", filepath.Join(dir, pattern))
		}
	}
	return nil
}

// startEtcd starts etcd. etcd panics if its disk does not let it begin, and its words then rarely say that the disk is
// full.
func startEtcd(o EmbeddedOptions) (etcd *etcdserver.EtcdServer, err error) {
	full := fullDisk(o.Dir)
	if _, begun := os.Stat(filepath.Join(o.Dir, "member")); full != nil && begun != nil {
		return nil, full // what it would begin it could not take back
	}
	defer func() {
		if p := recover(); p != nil {
			etcd, err = nil, fmt.Errorf("%v", p)
		}
		if full != nil && err != nil {
			err = fmt.Errorf("%w (%w)", full, err)
		}
	}()
	c, err := embeddedConfig(o)
	if err != nil {
		return nil, err
	}
	if etcd, err = etcdserver.NewServer(c); err != nil {
		return nil, err
	}
	etcd.Start()
	return etcd, nil
}

// fullDisk tells that a directory's disk has too little room for a store to begin, or nil.
func fullDisk(dir string) error {
	if free, ok := freeBytes(dir); ok && free < walRoom { // otherwise etcd will find out more
		return fmt.Errorf("the disk is full: %dMiB are free, and at least %dMiB are needed", free>>20, walRoom>>20)
	}
	return nil
}

// Room tells that a directory's disk has too little room for more to be kept there, or nil.
func Room(dir string) error { return fullDisk(dir) }

// embeddedConfig is the configuration of etcd as a single member that talks to nobody. It is for etcd's server itself.
// etcd's package for servers with listeners asks the kernel for all routes and addresses whenever a program that
// contains it starts, each of our commands too, and that waits while the kernel's lock for network configuration is
// held. Values without a comment are as that package has them.
func embeddedConfig(o EmbeddedOptions) (config.ServerConfig, error) {
	// A network's write is small. Segments of 64 MB of zeros would be the greatest part of what we keep on disk.
	wal.SegmentSizeBytes = segmentSize

	logging := logutil.DefaultZapLoggerConfig
	logging.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	logging.OutputPaths, logging.ErrorOutputPaths = []string{o.Log}, []string{o.Log}
	log, err := logging.Build()
	if err != nil {
		return config.ServerConfig{}, err
	}
	const name = "polyplane"
	nowhere := types.URLs{url.URL{Scheme: "http", Host: "localhost:0"}} // etcd demands a peer's name; nothing listens
	c := config.ServerConfig{
		Name:                name,
		DataDir:             o.Dir,
		ClientURLs:          nowhere,
		PeerURLs:            nowhere,
		InitialPeerURLsMap:  types.URLsMap{name: nowhere},
		InitialClusterToken: "etcd-cluster",
		NewCluster:          true,
		QuotaBackendBytes:   o.Quota,
		Logger:              log,

		// A single member elects itself after one election timeout, at most two; no heartbeat ever leaves it.
		TickMs:                     100,
		ElectionTicks:              5,
		InitialElectionTickAdvance: true,
		PreVote:                    true,
		// Chunks lie in the raft log until the next snapshot: keep few of them, in memory as on disk.
		SnapshotCount:          32,
		SnapshotCatchUpEntries: 4,
		MaxWALFiles:            2,
		MaxSnapFiles:           2,
		// Old revisions are never read.
		AutoCompactionMode:      v3compactor.ModeRevision,
		AutoCompactionRetention: 1,
		// The write-ahead log is what makes a write durable; the database may follow later.
		BackendBatchInterval: time.Second,
		BackendFreelistType:  bolt.FreelistMapType,
		DowngradeCheckTime:   time.Hour,
		CompactHashCheckTime: time.Hour,

		MaxTxnOps:                   128,
		MaxRequestBytes:             1536 << 10,
		MaxLearners:                 1,
		StrictReconfigCheck:         true,
		AuthToken:                   "simple",
		BcryptCost:                  10,
		TokenTTL:                    300, // seconds
		WarningApplyDuration:        100 * time.Millisecond,
		WarningUnaryRequestDuration: 300 * time.Millisecond,
		V2Deprecation:               config.V2DeprDefault,
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(name, log),
	}
	return c, nil
}

// reclaim forgets old revisions, gives their space back and lets etcd write again.
func reclaim(ctx context.Context, etcd *etcdserver.EtcdServer, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := client.Get(ctx, "\x00", clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	// Compacting at a revision that already is compacted is refused, and does no harm.
	if _, err := client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil &&
		ctx.Err() != nil {
		return err
	}
	if err := etcd.Backend().Defrag(); err != nil {
		return err
	}
	_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
