package model

import "fmt"

// A node has so much room for the forwarding tables of the routers that it forwards for (forwarding: xdp, router or
// bridge). Slices share it:
//   - strict slices own their quotas, all together at most Reservable;
//   - shared slices compete for what is left, each up to its own quota;
//   - the rest, which is not Reservable, is kept for shared slices that hold little. So small networks are forwarded
//     fast, however much large ones take.
const (
	PoolTables   = Bytes(256 << 20)
	PoolNextHops = 1<<16 - 8 // the first eight numbers are not theirs

	ReservableTables   = PoolTables / 8 * 7
	ReservableNextHops = PoolNextHops / 8 * 7
	LittleTables       = Bytes(1 << 20)
	LittleNextHops     = 256
)

// What a slice has on each node where it states nothing. A full Internet table takes 30 MiB for IPv4, and 45 MiB for
// both families.
const (
	DefaultTables   = Bytes(128 << 20)
	DefaultNextHops = 1 << 14
	DefaultPunts    = 10000
)

// tableBytesRoute is the least that one route counts for in a slice's quota, in bytes. It bounds the copy of the routes
// that the agent keeps.
const tableBytesRoute = 32

// TableQuota is what nodes give, each of them, to a slice's routers that they forward for, in words and figures.
type TableQuota struct {
	Strict   bool  `json:"strict,omitempty"` // owned and not just allowed
	Tables   Bytes `json:"tables"`
	NextHops int   `json:"nexthops"`
	Routes   int   `json:"routes"`
	Punts    int   `json:"punts"` // a second
}

// TableQuota is the slice's own, or the defaults where it states none.
func (s *Slice) TableQuota() TableQuota {
	f := filled(sliceKeys, *s)
	return TableQuota{Strict: s.Mode == Strict, Tables: f.Tables, NextHops: f.NextHops, Punts: f.Punts,
		Routes: int(f.Tables) / tableBytesRoute}
}

// FastRouter tells whether a node forwards for the element by tables in its pool.
func (e *ElementOf[I]) FastRouter() bool {
	return e.Kind == Router && (e.Forwarding == ForwardXDP || e.Forwarding == ForwardRouter ||
		e.Forwarding == ForwardBridge)
}

// ReservedTables are the tables and next hops that strict slices own, by node and as the slices are placed.
func ReservedTables(records []Record) map[string]TableQuota {
	all := map[string]TableQuota{}
	for i := range records {
		CountReservedTables(all, &records[i], 1)
	}
	return all
}

// CountReservedTables adds what one network owns, or takes it away: -1 times.
func CountReservedTables(all map[string]TableQuota, r *Record, times int) {
	for node, q := range reserves(&r.Network, r.Assigned.Placement.Elements) {
		sum := all[node]
		sum.Tables, sum.NextHops = sum.Tables+q.Tables*Bytes(times), sum.NextHops+q.NextHops*times
		all[node] = sum
	}
}

// reserves is what one network owns, by node.
func reserves(net *Network, placed map[string]string) map[string]TableQuota {
	if net.Slice.Mode != Strict {
		return nil
	}
	own := map[string]TableQuota{}
	for i := range net.Elements {
		if node := placed[net.Elements[i].Name]; node != "" && net.Elements[i].FastRouter() {
			own[node] = net.Slice.TableQuota()
		}
	}
	return own
}

// CheckReservedTables tells on which nodes a strict slice cannot get what it states beside what others own there.
func CheckReservedTables(net *Network, placed map[string]string, others map[string]TableQuota,
	nodes []string) (problems []error) {
	own := reserves(net, placed)
	for _, node := range nodes {
		q, is := own[node], others[node]
		if q == (TableQuota{}) {
			continue
		}
		if q.Tables+is.Tables > ReservableTables {
			problems = append(problems,
				fmt.Errorf("slice: its tables of %s do not fit on node %s, where strict slices own %s of %s; state "+
					"less, or place its routers elsewhere", q.Tables, node, is.Tables, ReservableTables))
		}
		if q.NextHops+is.NextHops > ReservableNextHops {
			problems = append(problems,
				fmt.Errorf("slice: its %d nexthops do not fit on node %s, where strict slices own %d of %d; state "+
					"less, or place its routers elsewhere", q.NextHops, node, is.NextHops, ReservableNextHops))
		}
	}
	return problems
}
