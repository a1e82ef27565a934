package model

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Quota bounds what one network asks for, or all networks of one owner together. A zero bounds nothing.
type Quota struct {
	Networks int   `json:"networks,omitempty"` // an owner's
	Elements int   `json:"elements,omitempty"`
	CPU      CPU   `json:"cpu,omitempty"`
	Memory   Bytes `json:"memory,omitempty"`
	Disk     Bytes `json:"disk,omitempty"`
	// Images is what an owner's images take, unpacked or as they are kept, whichever is more.
	Images Bytes `json:"images,omitempty"`
	// Stored is what the descriptions take, with configuration files (Network.Size). Requests and Streams are how many
	// of an owner's may be under way at a time.
	Stored   Bytes `json:"stored,omitempty"`
	Requests int   `json:"requests,omitempty"`
	Streams  int   `json:"streams,omitempty"`
}

// EveryOwner is the name of the quota that counts for owners without one of their own.
const EveryOwner = "*"

// OfOwner is what an owner may have. For a bound that the owner has not, that of EveryOwner counts, or else the usual
// one. If there were none, one owner could hold up all others.
func (q Quotas) OfOwner(name string) Quota {
	own, every := q.Owners[name], q.Owners[EveryOwner]
	for _, k := range quotaSettings {
		if k.Zero(&own) {
			k.Copy(&own, &every)
		}
	}
	return filled(quotaSettings, own)
}

// Quotas are all that there are, by name.
type Quotas struct {
	Owners   map[string]Quota `json:"owners,omitempty"`
	Networks map[string]Quota `json:"networks,omitempty"`
}

// QuotaKind tells whose a quota is.
type QuotaKind string

const (
	QuotaOfOwner   QuotaKind = "owner"
	QuotaOfNetwork QuotaKind = "network"
)

// QuotaStatus is a quota, and what of it is asked for.
type QuotaStatus struct {
	Kind  QuotaKind `json:"kind"`
	Name  string    `json:"name"`
	Limit Quota     `json:"limit"`
	Used  Quota     `json:"used"`
}

// QuotaRequest changes a quota; an empty value takes a bound away.
type QuotaRequest struct {
	Values []Assignment `json:"values"`
}

// The usual quotas count for owners only.
var quotaSettings = []Key[Quota]{
	bound("networks", "3", func(q *Quota) *int { return &q.Networks }, parseCount, 100),
	bound("elements", "50", func(q *Quota) *int { return &q.Elements }, parseCount, 2_000),
	bound("cpu", "4", func(q *Quota) *CPU { return &q.CPU }, ParseCPU, 0),
	bound("memory", "8GiB", func(q *Quota) *Bytes { return &q.Memory }, ParseBytes, 0),
	bound("disk", "20GiB", func(q *Quota) *Bytes { return &q.Disk }, ParseBytes, 0),
	bound("images", "20GiB", func(q *Quota) *Bytes { return &q.Images }, ParseBytes, 10<<30),
	bound("stored", "32MiB", func(q *Quota) *Bytes { return &q.Stored }, ParseBytes, 32<<20),
	bound("requests", "16", func(q *Quota) *int { return &q.Requests }, parseCount, 16),
	bound("streams", "64", func(q *Quota) *int { return &q.Streams }, parseCount, 64),
}

func bound[V cmp.Ordered](name, example string, of func(*Quota) *V, parse func(string) (V, error), usual V) Key[Quota] {
	return newKey(name, of, parse, about[V]{example: example, nothing: "bounds nothing", usual: usual})
}

// SettingsOfQuota is SettingsOfNetwork for quotas.
func SettingsOfQuota() []string { return keysOf(quotaSettings) }

// Assign returns the quota with other bounds, or everything that is wrong.
func (q Quota) Assign(values []Assignment) (Quota, []error) {
	var marks []string
	return q, assign(quotaSettings, &q, "a quota", &marks, values)
}

// HasProcesses tells whether the element runs routing software, or the program that runs what its owner has run. Only
// such elements count for memory and disk where they state none.
func (e *ElementOf[I]) HasProcesses() bool { return e.RunsRouting() || e.IsServed() }

// IsServed tells whether the program runs in the element that runs what its owner has run, or its image's own command.
// Files are put into elements that have processes, so an element with files has this one where it has no other.
func (e *ElementOf[I]) IsServed() bool {
	return e.Runs() || e.Image != "" || len(e.Contents) > 0 && !e.RunsRouting()
}

// IsSeeded tells whether the document gives the element configuration or files, which may be edited inside it.
func (e *ElementOf[I]) IsSeeded() bool { return e.RunsRouting() || len(e.Contents) > 0 }

// RunsRouting tells whether the element runs routing software.
func (e *ElementOf[I]) RunsRouting() bool {
	return e.Kind == Router && (e.Software == SoftwareFRR || e.Software == SoftwareBIRD)
}

// DemandOf is what a complete network asks for. It also returns the elements that have no bound for what a quota of CPU
// bounds.
func DemandOf(net Network) (d Quota, unbound []string) {
	d = Quota{Networks: 1, Elements: len(net.Elements), Stored: net.Size()}
	for i := range net.Elements {
		e := &net.Elements[i]
		d.CPU += e.CPU
		if !e.HasProcesses() {
			d.Memory, d.Disk = d.Memory+e.Memory, d.Disk+e.Disk
			continue
		}
		l := e.Limits()
		d.Memory, d.Disk = d.Memory+l.Memory, d.Disk+l.Disk
		if l.CPU == 0 {
			unbound = append(unbound, e.Name)
		}
	}
	return d, unbound
}

// Add returns the sum.
func (q Quota) Add(o Quota) Quota {
	return Quota{Networks: q.Networks + o.Networks, Elements: q.Elements + o.Elements, CPU: q.CPU + o.CPU,
		Memory: q.Memory + o.Memory,
		Disk:   q.Disk + o.Disk, Stored: q.Stored + o.Stored}
}

// Refuses tells what of a network's demand the quota refuses. That is what has grown and is now, together with all
// other use, more than the quota. It is also unbound, the elements without a bound for CPU where a quota bounds it,
// unless they were so before. If somebody had more before the quota was set, they may go on, and may have less.
func (q Quota) Refuses(whose string, demand, was, besides Quota, unbound []string) []error {
	var problems []error
	check := func(what string, limit, ask, had, used uint64, text func(uint64) string) {
		if limit == 0 || ask <= had || ask+used <= limit {
			return
		}
		others := ""
		if used > 0 {
			others = fmt.Sprintf(", other networks have %s", text(used))
		}
		problems = append(problems, fmt.Errorf("%s's quota of %s is %s: it asks for %s%s, which is %s too much", whose,
			what, text(limit), text(ask),
			others, text(ask+used-limit)))
	}
	plain := func(n uint64) string { return strconv.FormatUint(n, 10) }
	size := func(n uint64) string { return Bytes(n).String() }
	cores := func(n uint64) string { return CPU(n).String() }
	check("networks", uint64(q.Networks), uint64(demand.Networks), uint64(was.Networks),
		uint64(besides.Networks), plain)
	check("elements", uint64(q.Elements), uint64(demand.Elements), uint64(was.Elements),
		uint64(besides.Elements), plain)
	check("cores", uint64(q.CPU), uint64(demand.CPU), uint64(was.CPU), uint64(besides.CPU), cores)
	check("memory", uint64(q.Memory), uint64(demand.Memory), uint64(was.Memory), uint64(besides.Memory), size)
	check("disk", uint64(q.Disk), uint64(demand.Disk), uint64(was.Disk), uint64(besides.Disk), size)
	check("stored bytes", uint64(q.Stored), uint64(demand.Stored), uint64(was.Stored), uint64(besides.Stored), size)
	if q.CPU != 0 && len(unbound) > 0 {
		problems = append(problems,
			fmt.Errorf("%s's quota of cores is %s, and without cpu: %s would not be limited; give each its share, "+
				"like defaults: {routers: {cpu: 0.1}}",
				whose, q.CPU, FewNames(5, unbound)))
	}
	return problems
}

// FewNames lists names: the first ones only if there are more than most.
func FewNames(most int, names []string) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
