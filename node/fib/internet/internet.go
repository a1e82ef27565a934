// Package internet gives tests and benchmarks the prefixes of a full Internet routing table: those of a file, or
// generated ones of a like shape.
package internet

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Full is how many prefixes of each family a full table had in 2025.
const (
	FullIPv4 = 900_000
	FullIPv6 = 160_000
)

// Read gives the prefixes of a file, one in a line, gzipped if its name ends so: IPv4 and IPv6 apart, in the file's
// order.
func Read(path string) (v4, v6 []netip.Prefix, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		p, err := netip.ParsePrefix(lines.Text())
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return v4, v6, lines.Err()
}

// share is how many of a million prefixes have a length.
type share struct{ length, count int }

// What full tables look like: how often each length occurs.
var (
	shares4 = []share{{8, 18}, {9, 14}, {10, 42}, {11, 114}, {12, 332}, {13, 644}, {14, 1334}, {15, 2328}, {16, 14957},
		{17, 9131}, {18, 15299}, {19, 27575}, {20, 47246}, {21, 56270}, {22, 120438}, {23, 107007},
		{24, 596184}, {29, 84}, {32, 983}}
	shares6 = []share{{20, 100}, {24, 187}, {28, 1205}, {29, 27294}, {30, 4059}, {31, 1773}, {32, 140795}, {33, 18271},
		{34, 16254}, {35, 6513}, {36, 37441}, {37, 5495}, {38, 10097}, {39, 8599}, {40, 83786}, {41, 5639}, {42, 14368},
		{43, 6251}, {44, 89699}, {45, 9697}, {46, 18976}, {47, 19688}, {48, 471367}, {56, 150}, {64, 1149}, {112, 50},
		{126, 200}, {127, 262}, {128, 786}}
)

// reserved are what no table of the Internet has (RFC 6890): hosts drop packets to some of these.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
}

// Generate returns n4 and n6 different prefixes; the same arguments give the same prefixes. Their lengths are as
// frequent as in a full table, and they lie as closely together, so that tables of them take about as much memory for
// each prefix. They come in no order.
func Generate(seed uint64, n4, n6 int) (v4, v6 []netip.Prefix) {
	random := rand.New(rand.NewPCG(seed, 4))
	blocks4 := make([]uint64, n4/18+1) // some are the same
	for i := range blocks4 {
		blocks4[i] = (1<<24 | random.Uint64N(223<<24-1<<24)) >> 16 << 48
	}
	v4 = generate(random, n4, shares4, func(length int) netip.Addr {
		bits := blocks4[skewed(random, len(blocks4), 1.5)] | random.Uint64()>>16
		if length < 16 {
			bits = random.Uint64N(223 << 56)
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(bits>>32))
		return netip.AddrFrom4(b)
	})

	random = rand.New(rand.NewPCG(seed, 6))
	blocks16, blocks24 := make([]uint64, 58), make([]uint64, n6/22+1)
	for i := range blocks16 {
		blocks16[i] = 0x2000<<48 | random.Uint64N(0x1000)<<48
	}
	for i := range blocks24 {
		blocks24[i] = blocks16[random.IntN(len(blocks16))] | random.Uint64N(1<<8)<<40
	}
	blocks32 := make([]uint64, n6/14+1)
	for i := range blocks32 {
		blocks32[i] = blocks24[random.IntN(len(blocks24))] | random.Uint64N(1<<8)<<32
	}
	v6 = generate(random, n6, shares6, func(length int) netip.Addr {
		bits := blocks24[random.IntN(len(blocks24))] | random.Uint64()>>24
		if length > 32 {
			bits = blocks32[skewed(random, len(blocks32), 4)] | uint64(random.Uint32())
			for part := uint64(15 << 28); part > 15<<12; part >>= 4 {
				if random.IntN(8) > 0 {
					bits &^= part // most networks use few of their parts
				}
			}
		}
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], bits)
		binary.BigEndian.PutUint64(b[8:], random.Uint64())
		return netip.AddrFrom16(b)
	})
	return v4, v6
}

// skewed draws a number below n, small ones the more often the higher power is.
func skewed(random *rand.Rand, n int, power float64) int {
	return int(math.Pow(random.Float64(), power) * float64(n))
}

func generate(random *rand.Rand, n int, shares []share, draw func(length int) netip.Addr) []netip.Prefix {
	sum := 0
	for _, s := range shares {
		sum += s.count
	}
	seen := make(map[netip.Prefix]bool, n)
	list := make([]netip.Prefix, 0, n)
	for len(list) < n {
		at, length := random.IntN(sum), 0
		for _, s := range shares {
			if at -= s.count; at < 0 {
				length = s.length
				break
			}
		}
		p := netip.PrefixFrom(draw(length), length).Masked()
		if !seen[p] && !slices.ContainsFunc(reserved, p.Overlaps) {
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}
