package fast

import (
	"errors"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
)

var _ forward.Accountant = (*Plane)(nil)

// Accounts is forward.Accountant's.
func (p *Plane) Accounts() map[model.ID]model.FastTables {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[model.ID]model.FastTables, len(p.routers))
	for id, r := range p.routers {
		all[id] = r.account(p.slices[id.Network])
	}
	return all
}

// account tells what a router's tables are. The plane's lock is held.
func (r *router) account(of *slice) model.FastTables {
	s := r.feed.Status()
	if s.Synced || s.Full != nil { // while everything is told anew, what was counts
		r.lack = s.Full
	}
	r.mu.Lock()
	a := model.FastTables{InSync: s.Synced && r.err == nil && r.published, Lack: lackOf(r.lack, of.quota),
		Quota: of.quota, Busy: time.Duration(r.busy.Load())}
	r.mu.Unlock()
	used := of.Usage()
	a.Used = model.TableUse{Tables: model.Bytes(used.Bytes), NextHops: used.NextHops, Routes: used.Routes}
	a.NextHops, a.Groups = r.feed.NextHops()
	for f, t := range r.tables {
		u := t.Usage()
		family := familyOf(fib.Family(f))
		a.Families = append(a.Families, model.FIBTable{Family: family, Shape: string(u.Shape), Routes: u.Routes,
			Bytes: u.Bytes, Copy: u.Copy})
		if why := s.Punted[f]; why != "" {
			if a.Punted == nil {
				a.Punted = map[model.Family]string{}
			}
			a.Punted[family] = why
		}
	}
	return a
}

func familyOf(f fib.Family) model.Family {
	if f == fib.IPv6 {
		return model.IPv6
	}
	return model.IPv4
}

// lackOf puts what an error tells of in terms of the slice.
func lackOf(err error, quota model.TableQuota) *model.TableLack {
	var l *fib.Lacking
	if !errors.As(err, &l) {
		return nil
	}
	lack := model.TableLack{Quota: "tables", Node: l.Pool, Limit: int(quota.Tables)}
	if l.Pool {
		lack.Limit = int(model.PoolTables)
	}
	switch {
	case l.What == fib.LackNextHops && l.Pool:
		lack.Quota, lack.Limit = "nexthops", model.PoolNextHops
	case l.What == fib.LackNextHops:
		lack.Quota, lack.Limit = "nexthops", quota.NextHops
	case l.What == fib.LackRoutes:
		lack.Quota, lack.Limit = "routes", quota.Routes
	}
	return &lack
}
