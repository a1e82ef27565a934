// Command soak runs the chaos harness for long: `make soak`. It prints what happens as it does, and at the end the seed,
// the matrix of operations and faults, and how long the platform took to be back.
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
	faults := flag.String("faults", "", "only these faults, separated by commas")
	flag.Parse()
	if *faults != "" {
		c.Faults = strings.Split(*faults, ",")
	}
	os.Exit(sandbox.Main("./cmd/polyplane", func() int { return soak(c) }))
}

func soak(c chaos.Config) int {
	if c.Seed == 0 {
		var b [4]byte
		rand.Read(b[:]) // never fails
		c.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.Binary, c.Name = os.Getenv(sandbox.BinaryVariable), chaos.NewName()
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
