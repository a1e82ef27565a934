// Package bridge is the forwarding plane of `forwarding: bridge` for switches: a kernel bridge in the switch's network
// namespace joins its interfaces.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

var _ interface {
	forward.Plane
	forward.Treed
} = (*Plane)(nil)

// device is the bridge's name in the switch's namespace.
const device = "pp-bridge"

// checkEvery is how often the plane looks at a bridge that should be right.
const checkEvery = 5 * time.Second

// Attributes of linux/if_link.h that golang.org/x/sys/unix does not have.
const (
	iflaBrForwardDelay  = 1  // IFLA_BR_FORWARD_DELAY
	iflaBrHelloTime     = 2  // IFLA_BR_HELLO_TIME
	iflaBrMaxAge        = 3  // IFLA_BR_MAX_AGE
	iflaBrSTPState      = 5  // IFLA_BR_STP_STATE
	iflaBrPriority      = 6  // IFLA_BR_PRIORITY
	iflaBrRootID        = 10 // IFLA_BR_ROOT_ID
	iflaBrBridgeID      = 11 // IFLA_BR_BRIDGE_ID
	iflaBrRootPort      = 12 // IFLA_BR_ROOT_PORT
	iflaBrRootCost      = 13 // IFLA_BR_ROOT_PATH_COST
	iflaBrVLANFiltering = 7  // IFLA_BR_VLAN_FILTERING
	iflaBrFDBFlush      = 21 // IFLA_BR_FDB_FLUSH
	iflaBrMcastSnooping = 23 // IFLA_BR_MCAST_SNOOPING
	iflaBrVLANDefault   = 39 // IFLA_BR_VLAN_DEFAULT_PVID
	iflaBrFDBMaxLearned = 49 // IFLA_BR_FDB_MAX_LEARNED, since Linux 6.7; others leave it out
)

// maxLearned is how many addresses a switch learns. It needs a bound since the kernel charges them to nobody. Frames to
// other addresses go everywhere, as in any switch whose table is full. Where the kernel has no such bound, Trim makes
// one.
const maxLearned = 16384

// Plane keeps a bridge in each switch.
type Plane struct {
	marks string // a directory with a file for every switch that has a bridge: what List finds after a restart
	enter func(id model.ID, f func() error) error

	older bool // for tests: treat this kernel as one before Linux 6.7, whose bridges learn without bound

	mu     sync.Mutex // guards the two below
	done   map[model.ID]prepared
	looked int // the switch that Trim looked at last
}

// prepared is what was found when a switch was looked at last, so that it is looked at again only every checkEvery.
type prepared struct {
	job     forward.Job
	at      time.Time
	limited bool // the kernel bounds what the bridge learns
}

// New returns the plane of a node. enter runs f in a switch's namespace, as control.Enterer's Enter does.
func New(dirs instance.NodeDirs, enter func(id model.ID, f func() error) error) *Plane {
	return &Plane{marks: filepath.Join(dirs.Run, "bridge"), enter: enter, done: map[model.ID]prepared{}}
}

func (p *Plane) mark(id model.ID) string { return filepath.Join(p.marks, id.Network, id.Element) }

// Offers returns switches, where the kernel makes bridges, and VLANs, where these have some.
func (p *Plane) Offers(context.Context) model.Offers {
	o := model.OfferOf(model.ForwardBridge.Feature(), probe(), model.Switch)
	switch err := bridgeVLANs(); {
	case len(o.Lacks()) > 0:
	case err != nil:
		o[0].Lacks = map[model.Feature]string{model.FeatureVLANs: err.Error()}
	default:
		o[0].Makes = append(o[0].Makes, model.FeatureVLANs)
	}
	return o
}

// bridgeVLANs says why this machine's bridges have none, if they have none. That does not change while a kernel runs.
var bridgeVLANs = sync.OnceValue(linux.ProbeBridgeVLANs)

// probe tells why the kernel cannot make bridges; nil if it can. Where no module is loaded it tries, in a namespace of
// its own.
func probe() error {
	if _, err := os.Stat("/sys/module/bridge"); err == nil {
		return nil
	}
	return inScratch(func() error {
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		var b linux.Batch
		create(&b, [6]byte{2}, tree{}, false)
		if errs := c.Do(&b); errs != nil {
			return fmt.Errorf("this kernel makes no bridges (it needs CONFIG_BRIDGE): %w", errs[0])
		}
		return nil
	})
}

// Prepare makes sure that every switch has its bridge, with all its interfaces on it.
func (p *Plane) Prepare(ctx context.Context, jobs []forward.Job) []forward.Prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		results[i].ID = jobs[i].ID
		if err := ctx.Err(); err != nil {
			results[i].Err = err
			continue
		}
		if results[i].Err = p.prepare(&jobs[i]); results[i].Err == nil {
			results[i].Steering = &forward.Steering{}
		}
	}
	return results
}

// prepare makes a switch's bridge, or puts it right. It is noted before it is made, so that List knows of it whenever
// the agent is killed.
func (p *Plane) prepare(job *forward.Job) error {
	if job.Element.Kind != model.Switch {
		return fmt.Errorf("element %s is a %s: this plane of forwarding by bridge is for switches only", job.ID,
			job.Element.Kind)
	}
	if was, ok := p.done[job.ID]; ok && time.Since(was.at) < checkEvery && reflect.DeepEqual(&was.job, job) {
		return nil
	}
	delete(p.done, job.ID)
	if err := os.MkdirAll(filepath.Dir(p.mark(job.ID)), 0o755); err != nil {
		return fmt.Errorf("switch %s: note its bridge: %w", job.ID, err)
	}
	if err := os.WriteFile(p.mark(job.ID), nil, 0o644); err != nil {
		return fmt.Errorf("switch %s: note its bridge: %w", job.ID, err)
	}
	now := prepared{job: *job}
	if err := p.enter(job.ID, func() (err error) { now.limited, err = join(job, p.older); return }); err != nil {
		return fmt.Errorf("switch %s: %w", job.ID, err)
	}
	now.at = time.Now()
	p.done[job.ID] = now
	return nil
}

// List tells which switches have a bridge.
func (p *Plane) List(context.Context) ([]model.ID, error) {
	paths, err := filepath.Glob(filepath.Join(p.marks, "*", "*"))
	if err != nil {
		return nil, err
	}
	return each.Of(paths, func(path string) model.ID {
		return model.ID{Network: filepath.Base(filepath.Dir(path)), Element: filepath.Base(path)}
	}), nil
}

// Retire removes bridges; those of switches that are gone went with them.
func (p *Plane) Retire(_ context.Context, ids []model.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []error
	for _, id := range ids {
		delete(p.done, id)
		err := p.enter(id, remove)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("switch %s: %w", id, err))
			continue
		}
		if err := os.Remove(p.mark(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("switch %s: forget its bridge: %w", id, err))
		}
		os.Remove(filepath.Dir(p.mark(id))) // when it is empty
	}
	return errors.Join(failed...)
}

// nfCalls are the sysctls that send bridged packets through the firewall's hooks. Where br_netfilter is loaded they are
// on in every new namespace, so they must be switched off.
var nfCalls = []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"}

// join makes the bridge and puts the interfaces on it, and tells whether the kernel bounds what it learns. It runs in
// the switch's namespace.
func join(job *forward.Job, older bool) (limited bool, err error) {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return false, err
	}
	defer c.Close()
	links, err := readLinks(c)
	if err != nil {
		return false, err
	}
	mac, want := model.BridgeMAC(job.ID), treeOf(job.Element.STP)
	vlans := newVLANs(job)
	bridge, ok := links[device]
	if !ok {
		var b linux.Batch
		create(&b, mac, want, older)
		vlans.prepare(&b)
		if errs := c.Do(&b); errs != nil {
			return false, fmt.Errorf("make its bridge: %w", errors.Join(errs...))
		}
		if links, err = readLinks(c); err != nil {
			return false, err
		}
		bridge = links[device]
		for _, name := range nfCalls {
			err := os.WriteFile("/proc/sys/net/bridge/"+name, []byte("0"), 0o644)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("keep the firewall off its bridge: %w", err)
			}
		}
	}
	limited = bridge.limited && !older
	if vlans.aware && !bridge.knowsVLANs {
		return false, errors.New("its ports have VLANs, and this kernel's bridges have none (it needs " +
			"CONFIG_BRIDGE_VLAN_FILTERING)")
	}
	var b linux.Batch
	var doing []string
	if bridge.flags&unix.IFF_UP == 0 || bridge.mac != mac || bridge.snoops || bridge.tree != want ||
		limited && bridge.limit != maxLearned {
		doing = append(doing, "put right its bridge")
		settings(&b, bridge.index, mac, want, older)
	}
	present, err := vlans.read(c, bridge)
	if err != nil {
		return false, err
	}
	vlans.before(&b, &doing, bridge)
	for i := range job.Element.Interfaces {
		ifc := &job.Element.Interfaces[i]
		l, ok := links[ifc.LinuxName()]
		if !ok {
			return false, fmt.Errorf("its interface %s (device %s) is not there", ifc.Name, ifc.LinuxName())
		}
		if l.master == bridge.index {
			continue
		}
		doing = append(doing, "put interface "+ifc.Name+" on its bridge")
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.index, 0, 0)
		b.Uint32(unix.IFLA_MASTER, uint32(bridge.index))
	}
	for i := range job.Element.Interfaces {
		l := links[job.Element.Interfaces[i].LinuxName()]
		vlans.port(&b, &doing, &job.Element.Interfaces[i], l.index, present[l.index])
	}
	vlans.after(&b, &doing, bridge)
	if b.Len() == 0 {
		return limited, nil
	}
	var failed []error
	for i, err := range c.Do(&b) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", doing[i], err))
		}
	}
	return limited, errors.Join(failed...)
}

// create appends the request that makes the bridge.
func create(b *linux.Batch, mac [6]byte, t tree, older bool) {
	b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, unix.IFF_UP, unix.IFF_UP)
	b.String(unix.IFLA_IFNAME, device)
	attributes(b, mac, t, older)
}

// settings appends the request that puts an existing bridge right.
func settings(b *linux.Batch, index int, mac [6]byte, t tree, older bool) {
	b.Request(unix.RTM_NEWLINK, 0)
	b.Link(index, unix.IFF_UP, unix.IFF_UP)
	attributes(b, mac, t, older)
}

func attributes(b *linux.Batch, mac [6]byte, t tree, older bool) {
	b.Attr(unix.IFLA_ADDRESS, mac[:])
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.Begin(unix.IFLA_INFO_DATA)
	t.attributes(b)
	b.Uint8(iflaBrMcastSnooping, 0)
	if !older {
		b.Uint32(iflaBrFDBMaxLearned, maxLearned)
	}
	b.End()
	b.End()
}

func remove() error {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	var b linux.Batch
	b.Request(unix.RTM_DELLINK, 0)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, device)
	if errs := c.Do(&b); errs != nil && !errors.Is(errs[0], unix.ENODEV) {
		return fmt.Errorf("remove its bridge: %w", errs[0])
	}
	return nil
}
