package fast_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward/fast"
)

// TestQuota has a router's routes not fit into its slice's tables, or its next hops: all is forwarded rightly, by its
// own stack where need be; with a larger quota the data path takes over by itself; and the memory of tables that nobody
// needs is given back.
func TestQuota(t *testing.T) {
	t.Cleanup(fast.FreeAfter(100 * time.Millisecond))
	l := newChain(t, 1)
	var batch strings.Builder
	const routes = 4000
	for i := range routes {
		fmt.Fprintf(&batch, "route add 20.%d.%d.0/24 via 10.0.1.2\nroute add 2001:db8:f%03x::/48 via 2001:db8:1::2\n",
			i/200, i%200, i)
	}
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l.in("r1", "ip -batch "+file)
	l.in("h2", "ip addr add 20.3.4.5/32 dev lo; ip addr add 2001:db8:f123::5/128 dev lo nodad")
	account := func() model.FastTables { return l.plane.Accounts()[id("r1")] }
	all := []string{"10.0.1.2", "2001:db8:1::2", "20.3.4.5", "2001:db8:f123::5"}
	ping := func() {
		t.Helper()
		for _, to := range all {
			l.in("h1", "ping -c10 -i0.002 -W10 "+to)
		}
	}
	ping() // neighbours are known
	l.slice.Tables = 64 << 10
	l.prepare("r1")
	l.await("the tables to be told", func() bool { return account().InSync })
	if a := account(); a.Lack == nil || *a.Lack != (model.TableLack{Quota: "routes", Limit: 2048}) ||
		len(a.Punted) != 2 {
		t.Errorf("lack %+v, punted %v", a.Lack, a.Punted)
	}
	before, guest := l.forwarded("r1"), l.byGuest("r1")
	ping()
	c := l.forwarded("r1")
	if n, g := c.Packets-before.Packets, l.byGuest("r1")-guest; n != 0 || g < 80 {
		t.Errorf("of 80 packets the tables forwarded %d, the guest %d", n, g)
	}
	if n := c.Punted["left to the guest by the tables"] - before.Punted["left to the guest by the tables"]; n < 80 {
		t.Errorf("%d packets were punted: %v", n, c.Punted)
	}

	// Enough, and so at once: nobody waits for a time that grew while it did not fit.
	time.Sleep(4 * time.Second)
	l.slice.Tables = 16 << 20
	began := time.Now()
	l.prepare("r1")
	l.await("the tables to fit", func() bool { a := account(); return a.InSync && a.Lack == nil })
	t.Logf("they fit after %s", time.Since(began).Round(time.Millisecond))
	before, guest = l.forwarded("r1"), l.byGuest("r1")
	ping()
	if n, g := l.forwarded("r1").Packets-before.Packets, l.byGuest("r1")-guest; n < 80 || g != 0 {
		t.Errorf("of 80 packets the tables forwarded %d, the guest %d", n, g)
	}
	a := account()
	if len(a.Families) != 2 || a.Families[0].Routes < routes || a.Families[1].Routes < routes ||
		a.Families[0].Bytes < 4*routes || a.Families[0].Copy < 8*routes || a.NextHops < 2 {
		t.Errorf("%+v", a)
	}

	l.retire(l.routerIDs()...)
	l.await("memory to be given back",
		func() bool { n, err := l.fabric.Tables().Chunks(); return err == nil && n == 0 })
	ping()
	l.prepare("r1")
	before = l.forwarded("r1")
	ping()
	if n := l.forwarded("r1").Packets - before.Packets; n < 80 {
		t.Errorf("of 80 packets the tables made anew forwarded %d", n)
	}
	// Of an earlier process, when there are no routers any more.
	l.end()
	l.open()
	l.retire(l.routerIDs()...)
	l.prepare()
	if n, err := l.fabric.Tables().Chunks(); err != nil || n != 0 {
		t.Errorf("%d chunks are left of an earlier process, %v", n, err)
	}
}
