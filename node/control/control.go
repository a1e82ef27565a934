// Package control says what a control-plane driver is: the part of a node that makes elements – their namespaces,
// their devices, their processes. The drivers are packages below this one.
package control

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/port"
)

type progressKey struct{}

// WithProgress has what works with the context tell of its progress.
func WithProgress(ctx context.Context, note func()) context.Context {
	return context.WithValue(ctx, progressKey{}, note)
}

// Progress tells that work on many elements goes on: it may take long all in all, but not without any progress.
func Progress(ctx context.Context) {
	if note, ok := ctx.Value(progressKey{}).(func()); ok {
		note()
	}
}

// Job is one element that shall be on this node.
type Job struct {
	ID      model.ID
	Index   uint32 // the network's
	Title   string // what its owner calls the network; empty where that is the ID's
	Owner   string // whose the network is; empty where nobody is said to own it
	Element model.NodeElement
	// Names are the addresses by which the elements of the network know each other. Outside tells that there is a way
	// out, where name servers are. Of another one nobody is restarted.
	Names   []model.NamedAddresses
	Outside bool
}

// Called is what the element is called inside: by its network's title.
func (j *Job) Called() model.ID {
	return model.ID{Network: cmp.Or(j.Title, j.ID.Network), Element: j.ID.Element}
}

// Driver makes elements. Apply takes everything that this driver shall have and may be repeated at any time: what is
// right is not touched, what is missing or altered is put right, nothing is removed (that is Remove's). The results
// are in the order of the jobs; one failing element never stops the others. After the agent's restart List tells what
// is there.
type Driver interface {
	// Offers tell what the driver makes on this machine, and what the machine lacks for the rest.
	Offers(ctx context.Context) model.Offers
	Apply(ctx context.Context, jobs []Job) []Result
	List(ctx context.Context) ([]Found, error)
	// Remove removes the elements and returns when the kernel has let go of their devices. keepFiles keeps what they
	// own on disk; else a driver with a Trash puts it there.
	Remove(ctx context.Context, ids []model.ID, keepFiles bool) error
}

// Result is what became of one Job.
type Result struct {
	ID      model.ID
	Err     error
	Phase   model.Phase
	Devices []Device // one an interface, in the element's order
	// Busy tells that slow work on it is still under way, beside the caller: Phase is how it was before. See Glance.
	Busy bool
	// Changed is what was done, for events; empty when all was right.
	Changed []change.Change
	// Restarts counts how often the element's processes were started again since the machine started.
	Restarts int
	// Message tells how far an element is that is PhaseStarting.
	Message string
	// Warning is zero when there is nothing to be told. An element with a warning works: it is no Err.
	Warning Warning
}

// Warning is what a person should know of an element that works.
type Warning struct {
	Reason  string // one CamelCase word, the event's
	Message string // for people: what is so, and what would change it
}

// Device is a port: the host-side end of an interface's device pair.
type Device struct {
	Interface string // the user's name
	Name      string // the device in the node's namespace
	Index     int    // its interface index there
	Inner     int    // that of its other end, inside the element; 0 where that is not known
	// Behind reaches the interface at the other side; nil where the driver cannot.
	Behind port.Behind
}

// Found is an element that exists on this node.
type Found struct {
	ID    model.ID
	Phase model.Phase
}

// Trash is a driver that keeps what removed elements owned on disk for a while.
type Trash interface {
	// Trashed lists what is there, the oldest first.
	Trashed(ctx context.Context) ([]model.TrashItem, error)
	// Untrash gives an item back to the element of its name, or to another one if that is not zero. It must be there
	// and not run, and be the item's owner's unless it may be anybody's. What it has now goes to the trash.
	Untrash(ctx context.Context, item string, to model.ID, anyOwner bool) error
	// EmptyTrash deletes items for good.
	EmptyTrash(ctx context.Context, items []string) error
	// RenewDisk puts an element's disk into the trash: it gets a new one when it is started.
	RenewDisk(ctx context.Context, id model.ID) error
}

// Auditor is a driver that can look for changes inside elements that no notification tells of. A call looks at a part
// of them, so that frequent calls stay cheap, and returns those that differ; the next Apply puts them right.
type Auditor interface {
	Audit(ctx context.Context) ([]model.ID, error)
}

// Watcher is a driver whose elements become ready in their own time. Watch calls changed whenever one has, or no longer
// is; the next Apply tells which.
type Watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// Hurrier is a Watcher that does slow work in the background. After Hurry, Apply and Remove do not wait for such work:
// Apply answers Busy for the elements that are still worked on, Remove returns while List still has what it
// removes, and Watch tells when there is more. Call Hurry before all other methods.
type Hurrier interface {
	Watcher
	Hurry()
}

// Not every call of Apply is a reason to try again what has failed: with a context of Glance, it only takes note of
// what has ended, and does what is new.

type awaitedKey struct{}

// WithAwaited lets the Apply of a Hurrier end early. It calls awaited from time to time, and returns with what it has
// done so far when the caller has something more urgent.
func WithAwaited(ctx context.Context, awaited func() bool) context.Context {
	return context.WithValue(ctx, awaitedKey{}, awaited)
}

// Awaited tells whether the caller has something more urgent.
func Awaited(ctx context.Context) bool {
	awaited, ok := ctx.Value(awaitedKey{}).(func() bool)
	return ok && awaited()
}

type glanceKey struct{}

// Glance has Apply try nothing again that has failed.
func Glance(ctx context.Context) context.Context { return context.WithValue(ctx, glanceKey{}, true) }

// Glancing tells whether ctx is one of Glance.
func Glancing(ctx context.Context) bool { return ctx.Value(glanceKey{}) != nil }

// Trimmer is a driver, or a plane of forwarding, that can bound what elements put into tables of the kernel that it
// bounds for nobody. Trim looks at who has more than its limits allow, and takes it away; frequent calls are cheap
// where nobody has.
type Trimmer interface {
	Trim(ctx context.Context) ([]Trimmed, error)
}

// Trimmed is an element that had too much.
type Trimmed struct {
	ID         model.ID
	Table      Table
	Had, Limit int
	Why        error // of Unbounded
}

// Table is one of the kernel's.
type Table string

const (
	Neighbours  Table = "neighbours"
	Connections Table = "connections"
	// Addresses are those that a switch learnt; had is one more than the limit, or more.
	Addresses Table = "addresses"
	// Of these what was too much was refused, and Had counts how often. The limit of rings is in bytes.
	Rings   Table = "rings of packet sockets"
	Filters Table = "packet filters"
	// Unbounded is told once of an element whose sockets this kernel cannot bound.
	Unbounded Table = "sockets"
)

// Holder is a driver that can hold the processes of an element for a moment. It must not wait for the driver's other
// work.
type Holder interface {
	// Hold returns when they are held, or cannot be. release has them go on, unless they were held before.
	Hold(id model.ID) (release func())
}

// Meter is a driver that can tell what elements with processes take; those without have no entry.
type Meter interface {
	Usage(ctx context.Context) map[model.ID]Usage
}

// Examiner is a driver that can look closer at an element that keeps a processor busy; that costs too much to do it for
// all.
type Examiner interface {
	Examine(ctx context.Context, id model.ID) (x Examined, ok bool)
}

// Disks is a driver that can tell quickly which share of an element's disk is used: of its room or of its files,
// whichever is more, 0…1. It must not wait for anything.
type Disks interface {
	DiskShare(id model.ID) float64
}

// Taker is a driver that can tell what its elements take of the node's disk.
type Taker interface {
	Takes(ctx context.Context) map[model.ID]model.Bytes
}

// Examined is what such a look found, at that moment.
type Examined struct {
	Runnable    int // tasks that have a processor or want one
	Neighbours  int // beside those that the network's file makes known
	Connections int // that it tracks
}

// Usage is what an element takes. The counts are since its processes were started.
type Usage struct {
	CPU       time.Duration // used
	Throttled time.Duration // that its processes were held back by their quota, added up over processors
	Memory    model.Bytes
	Killed    int64 // processes that the memory limit has ended
	Processes int
	Refused   int64 // processes that the limit of their number has kept from being started
	Disk      model.Bytes
	DiskFull  bool    // no room, or no file, is left
	DiskShare float64 // of the room or of the files that are used, whichever is more; 0…1
	Limits    model.Limits
	// Fresh tells that the processes were started in this life of the agent.
	Fresh bool
}

// Executor is a driver that can run commands inside an element, as the element's root – never the host's.
type Executor interface {
	// Exec returns the command's exit status; that of a detached one is 0 once it has begun.
	Exec(ctx context.Context, id model.ID, command Command, stdio Stdio) (int, error)
	// Console is the command that `console` runs: vtysh, birdc or a shell.
	Console(id model.ID) ([]string, error)
	// Logs writes what the element's processes printed.
	Logs(ctx context.Context, id model.ID, follow bool, w io.Writer) error
}

// Command is what Exec runs.
type Command struct {
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	TTY  bool     `json:"tty,omitempty"`
	Size Size     `json:"size,omitzero"`
	// Detach has the command go on by itself, as long as the element runs. What it prints goes into the element's log.
	Detach bool `json:"detach,omitempty"`
}

// Size is a terminal's.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Stdio connects a command. Stderr is nil with a terminal.
type Stdio struct {
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Resize <-chan Size
}

// Teller is a driver that can tell what an element is by now: what was written inside it since it was made. It must not
// wait for an element's processes for longer than a few seconds.
type Teller interface {
	Running(ctx context.Context, id model.ID) (model.Running, error)
}

// Carrier is a driver that can take an element's own files along, and put them into another element.
type Carrier interface {
	// Pack writes them as an archive's tree. Links and the like are left out.
	Pack(ctx context.Context, id model.ID, w io.Writer) error
	// Unpack writes the files of a tree. It looks at all of the tree before it writes the first.
	Unpack(ctx context.Context, id model.ID, r io.Reader) error
}

// Mover is a driver whose elements can be moved with what they own on disk. A move has a name (model.Moving).
type Mover interface {
	// Depart writes the disk of an element that leaves by this move, as package wire/sparse has it; one of no size
	// where the element has none. It is an ErrNotYet while the element still runs.
	Depart(ctx context.Context, id model.ID, move string, w io.Writer) error
	// Arrive takes such a disk, and returns when all of it is kept. It may be called again.
	Arrive(ctx context.Context, network, owner string, a model.Arrival, r io.Reader) error
	// Settle has an element that has come take up the disk that was sent, and returns whether it has.
	Settle(ctx context.Context, id model.ID, move string) (bool, error)
	// KeepArrivals puts all disks that were sent into the trash, but for those of these moves, by element.
	KeepArrivals(ctx context.Context, moves map[model.ID]string) error
}

// ErrNotYet is of what will be possible in a moment.
var ErrNotYet = errors.New("not yet")

// Looker is a driver that can tell what the routing of its elements knows. Look returns an answer a look, in their
// order. It bounds what an element's processes may take of the node for that, and how long they may take.
type Looker interface {
	Look(ctx context.Context, looks []model.Look) []model.LookAnswer
}

// Enterer is a driver whose elements have a network namespace on this node. Enter runs f on a thread of its own inside
// it: sockets that f opens stay there. f must not start goroutines that expect the namespace. The error is
// fs.ErrNotExist where the driver has no such element.
type Enterer interface {
	Enter(id model.ID, f func() error) error
	// Namespace is the path at which the namespace is mounted.
	Namespace(id model.ID) string
}
