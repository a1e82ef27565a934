// Command soak runs the chaos harness for long: `make soak`. It prints what happens as it does, and at the end the
// seed, the matrix of operations and faults, and how long the platform took to be back.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/polyplane/polyplane/system/chaos"
	"github.com/polyplane/polyplane/system/sandbox"
)

func main() {
	c := chaos.Config{Log: os.Stdout}
	flag.DurationVar(&c.Duration, "for", 10*time.Minute, "how long")
	flag.IntVar(&c.Operations, "operations", 0, "end after so many operations (0: never)")
	flag.IntVar(&c.Every, "every", 15, "compare everything after so many operations")
	flag.Uint64Var(&c.Seed, "seed", 0, "repeat the run of this seed (0: a new one)")
	flag.BoolVar(&c.Cluster, "cluster", false, "keep the networks in an external etcd of three members")
	rounds := flag.Int("measure", 0,
		"kill each of the platform's processes once, in so many instances, and measure how long they take to be back")
	faults := flag.String("faults", "", "only these faults, separated by commas")
	flag.Parse()
	if *faults != "" {
		c.Faults = strings.Split(*faults, ",")
	}
	os.Exit(sandbox.Main("./cmd/polyplane", func() int { return soak(c, *rounds) }))
}

func soak(c chaos.Config, rounds int) int {
	if c.Seed == 0 {
		var b [4]byte
		rand.Read(b[:]) // never fails
		c.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.Binary, c.Name = os.Getenv(sandbox.BinaryVariable), chaos.NewName()
	if rounds > 0 {
		return measure(ctx, c, rounds)
	}
	fmt.Printf("seed %d\n", c.Seed)
	report, err := chaos.Run(ctx, c)
	fmt.Println()
	report.Write(os.Stdout)
	fmt.Printf("seed %d\n", c.Seed)
	if err != nil {
		fmt.Printf("FAILED: %v\n", err)
		return 1
	}
	return 0
}

// measure kills the platform's processes in peace. For each kind it makes a new instance, since a daemon that ends
// again and again is started ever more slowly.
func measure(ctx context.Context, c chaos.Config, rounds int) int {
	c.Measure = true
	all := chaos.Times{}
	for range rounds {
		c.Name = chaos.NewName()
		report, err := chaos.Run(ctx, c)
		if err != nil {
			fmt.Printf("FAILED: %v\n", err)
			return 1
		}
		for what, times := range report.Times {
			all[what] = append(all[what], times...)
		}
	}
	all.Write(os.Stdout)
	return 0
}
