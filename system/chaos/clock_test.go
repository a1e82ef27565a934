package chaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// clockVariable has this test's program print the time, once for each line that it reads.
const clockVariable = "POLYPLANE_CHAOS_CLOCK"

func printClock() int {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(time.Now().Unix())
	}
	return 0
}

// The clock of a process that runs is set and set back, and nobody else's.
func TestWallClockOfOneProcess(t *testing.T) {
	w, err := newWallClock()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), clockVariable+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait() //nolint:errcheck // it ends with its input
	defer in.Close()
	ahead := func() time.Duration {
		t.Helper()
		var unix int64
		fmt.Fprintln(in)
		if _, err := fmt.Fscan(out, &unix); err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(unix, 0))
	}
	if d := ahead(); d > time.Hour || d < -time.Hour { // and it runs: before it does it has no vDSO
		t.Fatalf("before its clock was set it is %s ahead", d)
	}
	const day = 24 * time.Hour
	for _, want := range []time.Duration{10 * day, -400 * day, 0} {
		if err := w.set(c.Process.Pid, want); err != nil {
			t.Fatal(err)
		}
		if got := ahead(); got < want-time.Hour || got > want+time.Hour {
			t.Errorf("the process is %s ahead, want %s", got, want)
		}
	}
	if d := time.Since(time.Now()); d < -time.Hour || d > time.Hour {
		t.Error("this process's clock went, too")
	}
}
