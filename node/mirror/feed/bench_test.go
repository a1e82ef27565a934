package feed_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/fib/internet"
	"github.com/polyplane/polyplane/node/mirror"
)

// fullTable are the prefixes of the file that POLYPLANE_PREFIXES names, else generated ones, a scale'th as many.
func fullTable(t testing.TB, scale int) (v4, v6 []netip.Prefix) {
	if path := os.Getenv("POLYPLANE_PREFIXES"); path != "" {
		v4, v6, err := internet.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return v4, v6
	}
	return internet.Generate(1, internet.FullIPv4/scale, internet.FullIPv6/scale)
}

// recorder writes messages as the kernel does.
type recorder struct{ data []byte }

func (r *recorder) message(kind, flags uint16, fixed []byte, attributes func(b []byte) []byte) {
	start := len(r.data)
	r.data = append(r.data, make([]byte, unix.SizeofNlMsghdr)...)
	r.data = append(r.data, fixed...)
	r.data = append(r.data, make([]byte, -len(r.data)&3)...)
	if attributes != nil {
		r.data = attributes(r.data)
	}
	binary.NativeEndian.PutUint32(r.data[start:], uint32(len(r.data)-start))
	binary.NativeEndian.PutUint16(r.data[start+4:], kind)
	binary.NativeEndian.PutUint16(r.data[start+6:], flags)
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// route is a BGP route as FRR writes it.
func (r *recorder) route(kind, flags uint16, p netip.Prefix, gateway netip.Addr, index uint32) {
	family := byte(unix.AF_INET)
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	var scratch [16]byte
	r.message(kind, flags, []byte{family, byte(p.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BGP, 0,
		unix.RTN_UNICAST, 0, 0, 0, 0}, func(b []byte) []byte {
		put := func(kind uint16, v []byte) {
			b = binary.NativeEndian.AppendUint16(b, uint16(4+len(v)))
			b = append(binary.NativeEndian.AppendUint16(b, kind), v...)
		}
		word := func(kind uint16, v uint32) {
			binary.NativeEndian.PutUint32(scratch[:], v)
			put(kind, scratch[:4])
		}
		address := func(kind uint16, a netip.Addr) {
			if a.Is4() {
				v := a.As4()
				put(kind, v[:])
			} else {
				v := a.As16()
				put(kind, v[:])
			}
		}
		word(unix.RTA_TABLE, unix.RT_TABLE_MAIN)
		address(unix.RTA_DST, p.Addr())
		word(unix.RTA_PRIORITY, 20)
		address(unix.RTA_GATEWAY, gateway)
		word(unix.RTA_OIF, index)
		return b
	})
}

// recordThroughObjects gives the messages of routes through 64 next-hop objects, and with the next hops of these where
// the kernel's nexthop_compat_mode is 1.
func recordThroughObjects(list []netip.Prefix, compat bool) (pieces [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	var r recorder
	for n, i := range random.Perm(len(list)) {
		p, hop := list[i], random.IntN(64)
		to := p.Addr().As4()
		r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, []byte{unix.AF_INET, byte(p.Bits()), 0, 0,
			unix.RT_TABLE_MAIN, unix.RTPROT_BGP, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, func(b []byte) []byte {
			b = attribute(b, unix.RTA_TABLE, u32(unix.RT_TABLE_MAIN))
			b = attribute(b, unix.RTA_DST, to[:])
			b = attribute(b, unix.RTA_PRIORITY, u32(20))
			b = attribute(b, 30, u32(uint32(hop+1))) // RTA_NH_ID
			if compat {
				b = attribute(b, unix.RTA_GATEWAY, peer(false, hop).AsSlice())
				b = attribute(b, unix.RTA_OIF, u32(uint32(hop%links+2)))
			}
			return b
		})
		if len(r.data) > 128<<10 || n == len(list)-1 {
			pieces = append(pieces, r.data)
			r.data = make([]byte, 0, 192<<10)
		}
	}
	return pieces
}

// BenchmarkReplayObjects plays routes through next-hop objects, told as with either nexthop_compat_mode, in turns.
func BenchmarkReplayObjects(b *testing.B) {
	v4, _ := fullTable(b, 4)
	pieces := [2][][]byte{recordThroughObjects(v4, false), recordThroughObjects(v4, true)}
	var took [2][]float64
	for range b.N {
		for mode, list := range pieces {
			r := newReplay(b)
			var objects recorder
			for i := range 64 {
				objects.message(unix.RTM_NEWNEXTHOP, 0, []byte{unix.AF_INET, 0, 0, 0, 0, 0, 0, 0}, func(b []byte) []byte {
					b = attribute(b, 1, u32(uint32(i+1)))            // NHA_ID
					b = attribute(b, 5, u32(uint32(i%links+2)))      // NHA_OIF
					return attribute(b, 6, peer(false, i).AsSlice()) // NHA_GATEWAY
				})
			}
			r.view.Notify(objects.data)
			runtime.GC()
			start := cpuTime(b)
			for _, p := range list {
				r.view.Notify(p)
				for r.view.Next(&r.batch) {
				}
			}
			took[mode] = append(took[mode], (cpuTime(b) - start).Seconds())
		}
	}
	b.ReportMetric(float64(len(v4))/median(took[0]), "routes/s-CPU-compat=0")
	b.ReportMetric(float64(len(v4))/median(took[1]), "routes/s-CPU-compat=1")
}

// ground is what routes rest upon: rules, links and neighbours.
func ground(v *mirror.View) {
	tell := func(d mirror.Dump, write func(r *recorder)) {
		var r recorder
		v.Begin(d, 0)
		if write != nil {
			write(&r)
			v.Dumped(r.data)
		}
		v.End(true)
	}
	for _, d := range mirror.Dumps {
		var write func(r *recorder)
		switch d.Kind {
		case unix.RTM_GETLINK:
			write = func(r *recorder) {
				for i := range uint32(links) {
					fixed := make([]byte, unix.SizeofIfInfomsg)
					binary.NativeEndian.PutUint16(fixed[2:], unix.ARPHRD_ETHER)
					binary.NativeEndian.PutUint32(fixed[4:], i+2)
					binary.NativeEndian.PutUint32(fixed[8:], unix.IFF_UP|unix.IFF_RUNNING|unix.IFF_LOWER_UP)
					r.message(unix.RTM_NEWLINK, 0, fixed, func(b []byte) []byte {
						b = attribute(b, unix.IFLA_IFNAME, []byte{'e', '0' + byte(i), 0})
						b = attribute(b, unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, byte(i)})
						return attribute(b, unix.IFLA_MTU, u32(1500))
					})
				}
			}
		case unix.RTM_GETRULE:
			write = func(r *recorder) {
				for priority, table := range map[uint32]byte{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN} {
					r.message(unix.RTM_NEWRULE, 0, []byte{d.Family, 0, 0, 0, table, 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0,
						0}, func(b []byte) []byte {
						return attribute(b, unix.FRA_PRIORITY, u32(priority))
					})
				}
			}
		case unix.RTM_GETNEIGH:
			write = func(r *recorder) {
				for i := range 64 {
					fixed := make([]byte, 12)
					fixed[0] = d.Family
					binary.NativeEndian.PutUint32(fixed[4:], uint32(i%links+2))
					binary.NativeEndian.PutUint16(fixed[8:], unix.NUD_PERMANENT)
					r.message(unix.RTM_NEWNEIGH, 0, fixed, func(b []byte) []byte {
						b = attribute(b, unix.NDA_DST, peer(d.Family == unix.AF_INET6, i).AsSlice())
						return attribute(b, unix.NDA_LLADDR, []byte{2, 0, 0, 1, 0, byte(i)})
					})
				}
			}
		}
		tell(d, write)
	}
	v.SetSynced(true)
}

// peer is one of 64 gateways.
func peer(six bool, i int) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i % links), 15: byte(i)})
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(i % links), byte(i)})
}

// record gives the messages for a table in random order, in pieces as they are read.
func record(list []netip.Prefix, kind, flags uint16) (pieces [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	order := random.Perm(len(list))
	var r recorder
	for n, i := range order {
		hop := random.IntN(64)
		r.route(kind, flags, list[i], peer(list[i].Addr().Is6(), hop), uint32(hop%links+2))
		if len(r.data) > 128<<10 || n == len(order)-1 {
			pieces = append(pieces, r.data)
			r.data = make([]byte, 0, 192<<10)
		}
	}
	return pieces
}

// cpuTime is what this process has used.
func cpuTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// replay is a view and a feed that take in recorded messages.
type replay struct {
	*lab
	view  *mirror.View
	batch mirror.Batch
}

func newReplay(t testing.TB) *replay {
	r := &replay{lab: &lab{t: t}, view: mirror.NewView(mirror.DefaultLimits)}
	r.fast(fib.Quota{}, 1000)
	ground(r.view)
	r.drain()
	return r
}

func (r *replay) drain() {
	for r.view.Next(&r.batch) {
		r.must(r.feed.Apply(&r.batch))
	}
}

// BenchmarkReplay plays the messages of a full table through the mirror into the fast path's tables.
func BenchmarkReplay(b *testing.B) {
	v4, v6 := fullTable(b, 1)
	for _, c := range []struct {
		name string
		list []netip.Prefix
	}{{"IPv4", v4}, {"IPv6", v6}} {
		pieces := record(c.list, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			for range b.N {
				r := newReplay(b)
				runtime.GC()
				start := cpuTime(b)
				for _, p := range pieces {
					r.view.Notify(p)
					r.drain()
				}
				took += cpuTime(b) - start
				b.ReportMetric(float64(r.view.Usage().Bytes)/float64(len(c.list)), "B/route")
			}
			b.ReportMetric(float64(b.N*len(c.list))/took.Seconds(), "routes/s-CPU")
		})
		b.Run(c.name+"/view", func(b *testing.B) { // without the fast path's part
			var took time.Duration
			for range b.N {
				r := newReplay(b)
				runtime.GC()
				start := cpuTime(b)
				for _, p := range pieces {
					r.view.Notify(p)
					for r.view.Next(&r.batch) {
					}
				}
				took += cpuTime(b) - start
			}
			b.ReportMetric(float64(b.N*len(c.list))/took.Seconds(), "routes/s-CPU")
		})
	}
}
