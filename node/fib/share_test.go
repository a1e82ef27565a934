package fib_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
)

// TestShares has slices that own their quotas, large and little ones compete for a pool.
func TestShares(t *testing.T) {
	pool := newPool(t, 1000, 64)
	pool.SetShares(fib.Shares{Bytes: 4 << 20, NextHops: 100, SpareBytes: 512 << 10, SpareNextHops: 10,
		LittleBytes: 16 << 10, LittleNextHops: 2})
	slice := func(name string, q fib.Quota) (s *fib.Slice, fill func() (routes, hops int, full []error)) {
		s = pool.NewSlice(name, q)
		table, next := s.NewTable(fib.IPv4), 0
		return s, func() (routes, hops int, full []error) {
			t.Helper()
			for ; len(full) == 0; next++ { // a node for each
				_, err := table.Apply([]fib.Change{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(next >> 8),
					byte(next), 1, 0}), 24), NextHop: fib.LocalID}})
				if err != nil {
					full = append(full, err)
				} else {
					routes++
				}
			}
			for len(full) == 1 {
				if _, err := s.AddNextHop(fib.NextHop{Kind: fib.KindLocal}); err != nil {
					full = append(full, err)
				} else {
					hops++
				}
			}
			pool.Release(pool.Mark())
			return routes, hops, full
		}
	}
	lacks := func(full []error, pools bool) {
		t.Helper()
		for i, what := range []string{fib.LackBytes, fib.LackNextHops} {
			var l *fib.Lacking
			if !errors.As(full[i], &l) || !errors.Is(full[i], fib.ErrFull) || l.What != what || l.Pool != pools {
				t.Errorf("%v, which is %+v; what lacks is %s, of the pool %v", full[i], l, what, pools)
			}
		}
	}
	own, fillOwn := slice("own", fib.Quota{Bytes: 1600 << 10, NextHops: 40, Owned: true})
	large, fillLarge := slice("large", fib.Quota{})
	_, _, full := fillLarge()
	lacks(full, true)
	// 1,600 KiB are another's, 512 KiB for little ones.
	if u := large.Usage(); u.Bytes < 1900<<10 || u.Bytes > 1984<<10 || u.NextHops != 50 {
		t.Errorf("a large slice gets %+v", u)
	}
	little, fillLittle := slice("little", fib.Quota{})
	if _, _, full = fillLittle(); little.Usage().Bytes < 4<<10 || little.Usage().NextHops != 2 {
		t.Errorf("a little slice gets %+v", little.Usage())
	}
	lacks(full, true)
	_, _, full = fillOwn()
	lacks(full, false)
	if u := own.Usage(); u.Bytes < 1500<<10 || u.NextHops != 40 {
		t.Errorf("of its own quota a slice gets %+v", u)
	}
	if more, hops, _ := fillLarge(); more != 0 || hops != 0 {
		t.Errorf("a full slice gets %d routes and %d next hops more", more, hops)
	}
	// What nobody owns any more is there for all.
	own.SetQuota(fib.Quota{Bytes: 1600 << 10, NextHops: 40})
	if more, _, _ := fillLarge(); more != 0 {
		t.Errorf("what another uses is not there: %d routes more", more)
	}
	own.SetQuota(fib.Quota{Bytes: 1200 << 10, NextHops: 40, Owned: true}) // it has more, and keeps it
	if more, _, _ := fillLarge(); more != 0 || own.Usage().Bytes < 1500<<10 {
		t.Errorf("a quota below what is used gives others %d routes", more)
	}
	pool.SetShares(fib.Shares{})
	if _, err := large.AddNextHop(fib.NextHop{Kind: fib.KindLocal}); err != nil {
		t.Errorf("where the pool is not shared: %v", err)
	}
}
