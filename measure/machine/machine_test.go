package machine

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	w := Watch{Threads: []int{os.Getpid()}, Groups: []string{"/nosuchgroup"}}
	before, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Cores) == 0 || len(before.Cores) < runtime.NumCPU() {
		t.Errorf("%d cores", len(before.Cores))
	}
	for end := time.Now().Add(60 * time.Millisecond); time.Now().Before(end); { // use some time to be seen
	}
	after, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	u := after.Sub(before)
	if u.Wall < 60*time.Millisecond {
		t.Errorf("wall time %v", u.Wall)
	}
	total := time.Duration(0)
	for _, c := range u.Cores {
		total += c.Busy() + c.Idle + c.Steal
	}
	if total < 40*time.Millisecond || u.Steal() < 0 || u.Steal() > 1 {
		t.Errorf("%+v", u)
	}
}

func TestSteal(t *testing.T) {
	u := Usage{Cores: []Core{{Idle: 90, Steal: 10}, {User: 50, Steal: 50}}}
	if u.Steal() != 0.5 {
		t.Errorf("%v", u.Steal())
	}
	if (Usage{}).Steal() != 0 {
		t.Error("steal of nothing")
	}
}

func TestGroup(t *testing.T) {
	d := t.TempDir()
	if err := os.WriteFile(d+"/cpu.stat", []byte("usage_usec 1500\nuser_usec 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := group(d); err != nil || got != 1500*time.Microsecond {
		t.Errorf("%v %v", got, err)
	}
	if _, err := group(t.TempDir()); err == nil {
		t.Error("an empty directory is no cgroup")
	}
}

func TestDescribe(t *testing.T) {
	e, err := Describe()
	if err != nil {
		t.Fatal(err)
	}
	if e.Kernel == "" || e.CPU == "" || e.Cores == 0 || e.MemoryKiB == 0 || e.Clock == "" || len(e.Sysctls) == 0 {
		t.Errorf("%+v", e)
	}
}
