package lifecycle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// keeping has this test's program call KeepMounts, and tell where it is then.
const keeping = "POLYPLANE_TEST_KEEP_MOUNTS"

func init() {
	if os.Getenv(keeping) == "" {
		return
	}
	if err := KeepMounts(); err != nil {
		fmt.Println("refused:", err)
		os.Exit(0)
	}
	dir, _ := os.Getwd()
	network, _ := os.Readlink("/proc/thread-self/ns/net")
	mounts, _ := os.Readlink("/proc/thread-self/ns/mnt")
	fmt.Println(hasControlGroups("self"), dir, network, mounts, strings.Join(os.Args[1:], " "))
	os.Exit(0)
}

// TestMountsAreKept begins inside what `ip netns exec` makes: another network, and mounts without control groups. The
// network stays, and the mounts are those of the process that began it.
func TestMountsAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes namespaces, so it needs root")
	}
	// Children are in the namespaces of the thread that forks them, and other tests have threads elsewhere.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := fmt.Sprintf("mounts%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() }) //nolint:errcheck // it is told by what follows
	dir := t.TempDir()
	run := func(words ...string) string {
		t.Helper()
		c := exec.Command(words[0], words[1:]...)
		c.Dir, c.Env = dir, append(os.Environ(), keeping+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	link := func(path string) string {
		t.Helper()
		to, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mounts := link("/proc/thread-self/ns/mnt")
	network, err := exec.Command("ip", "netns", "exec", name, "readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	there := strings.TrimSpace(string(network))

	want := fmt.Sprintf("true %s %s %s a b", dir, link("/proc/thread-self/ns/net"), mounts)
	if got := run(self, "a", "b"); got != want {
		t.Errorf("where nothing is hidden: %q, want %q", got, want)
	}
	want = fmt.Sprintf("true %s %s %s a b", dir, there, mounts)
	if got := run("ip", "netns", "exec", name, self, "a", "b"); got != want {
		t.Errorf("in ip netns exec: %q, want %q", got, want)
	}
	// A shell in between has the same mounts as what it starts.
	if got := run("ip", "netns", "exec", name, "sh", "-c", `"$0" "$@"; :`, self, "a", "b"); got != want {
		t.Errorf("in a shell in ip netns exec: %q, want %q", got, want)
	}
	// It is told where the mounts cannot be taken: here no process above has control groups, as in some containers.
	hidden := `mount --make-rprivate / && umount -l /sys/fs/cgroup && "$0" "$@"; :`
	got := run("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", hidden, self, "a", "b")
	if !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, "none of the processes that started this one") ||
		!strings.Contains(got, "nsenter --net=") {
		t.Errorf("without control groups anywhere: %q", got)
	}
	// And where the program or the directory is not the same there.
	lone := filepath.Join(dir, "lone")
	if err := os.Mkdir(lone, 0o755); err != nil {
		t.Fatal(err)
	}
	onTop := `mount -t tmpfs x "$1" && mkdir "$1/in" && cd "$1/in" && umount -l /sys && "$0"; :`
	got = run("unshare", "--mount", "sh", "-c", onTop, self, lone)
	if !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, "working directory is not there") {
		t.Errorf("in a directory that only these mounts have: %q", got)
	}
}
