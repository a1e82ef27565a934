// Command bench measures what docs/performance.md promises of a whole instance, as interleaved comparisons on one
// machine, and writes the tables there. Run it by `make bench`.
//
//	bench bringup    1,000 static routers in a line: polyplane, the bare kernel, Mininet
//	bench tcp        TCP through one router: polyplane's guest forwarding, plain veth pairs
//	bench idle       CPU time and memory of all processes with the line up; a deleted port's way back; small applies
//	bench traffic    the traffic source and sink back to back against a bare loop of live frames, and the rates they keep
//	bench agreement  two independent runs of one measurement
//	bench forwarding routers on one core: by xdp, by the node, by themselves, by plain veths; chains; a full table
//	bench cores      a router on a core of its own: what it carries, and the delay that it adds
//	bench slices     1,000 slices with a router each against one slice, on one core
//	bench streams    TCP through a router by xdp: one connection, and new ones
//	bench mirror     a full table from netlink into the fast path, and the memory that it takes
//	bench all        all of them
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// options are what every benchmark is given.
type options struct {
	polyplane string // the binary
	routers   int
	rounds    int
	seed      int64
}

// table is one measured comparison, kept in bench/results and shown in docs/performance.md.
type table struct {
	Name        string      `json:"name"`
	Title       string      `json:"title"`
	Note        string      `json:"note,omitempty"`
	Columns     []string    `json:"columns"`
	Rows        [][]string  `json:"rows"`
	Environment environment `json:"environment"`
	Raw         any         `json:"raw,omitempty"` // every single measurement
}

var benchmarks = []struct {
	name string
	run  func(context.Context, options) ([]table, error)
}{
	{"bringup", bringup},
	{"tcp", tcp},
	{"idle", idle},
	{"traffic", traffic},
	{"agreement", agreement},
	{"forwarding", forwarding},
	{"cores", twoCores},
	{"slices", slicesApart},
	{"streams", streams},
	{"mirror", mirroring},
}

func main() {
	childMain()
	o := options{}
	flag.StringVar(&o.polyplane, "polyplane", "bin/polyplane", "the binary to measure")
	flag.IntVar(&o.routers, "routers", 1000, "routers in the line")
	flag.IntVar(&o.rounds, "rounds", 5, "interleaved rounds")
	flag.Int64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
	results := flag.String("results", "bench/results", "where the tables are kept as JSON")
	page := flag.String("page", "docs/performance.md", "the page whose tables are written again")
	flag.Parse()
	if err := run(o, flag.Args(), *results, *page); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run does the named benchmarks, keeps each table when it is done, and writes the page from all that are kept. So a run
// of one benchmark changes only its own tables.
func run(o options, names []string, results, page string) error {
	var known []string
	for _, b := range benchmarks {
		known = append(known, b.name)
	}
	if len(names) == 0 || slices.Contains(names, "all") {
		names = known
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, name := range names {
		i := slices.IndexFunc(benchmarks, func(b struct {
			name string
			run  func(context.Context, options) ([]table, error)
		}) bool {
			return b.name == name
		})
		if i < 0 {
			return fmt.Errorf("there is no benchmark %q: there are %s and all", name, strings.Join(known, ", "))
		}
		tables, err := benchmarks[i].run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, t := range tables {
			t.Environment = currentEnvironment()
			if err := keep(results, t); err != nil {
				return err
			}
		}
	}
	return writePage(page, results)
}

func keep(dir string, t table) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	fmt.Print(markdown(t))
	return os.WriteFile(dir+"/"+t.Name+".json", append(text, '\n'), 0o644)
}
