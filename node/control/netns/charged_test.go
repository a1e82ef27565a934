package netns

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// charged is what docs/isolation.md says the kernel charges to the element: so much must its control group have more
// of, in bytes, while it is there. Each is done by the element's root, who then says that it is done and waits.
var charged = []struct {
	name, script string
	atLeast      int64
}{
	{"rules", `perl -e 'printf "rule add to 10.%d.%d.0/24 table 7 pref %d\n", $_ >> 8, $_ & 255, 100 + $_ for 1 .. 4000' | ip -batch -; echo done; read x`, 300 << 10},
	{"network devices", `perl -e 'print "link add y$_ type bridge\n" for 1 .. 100' | ip -batch -; echo done; read x`,
		1 << 20},
	{"sets of nftables", `nft add table t; nft add set t s '{ type ipv4_addr; }'; for k in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do perl -se 'print "add element t s { ",
		join(", ", map { sprintf "10.$k.%d.%d", $_ >> 8, $_ & 255 } 1 .. 2000), " }\n"' -- -k=$k | nft -f -; done; echo done; read x`, 1 << 20},
	{"pipes", `exec perl -e '$| = 1; for (1 .. 60) { pipe my $r, my $w; syswrite $w, "x" x 65536; push @p, $r, $w } print "done\n"; <STDIN>'`, 3 << 20},
	{"open files", `exec perl -e '$| = 1; for (1 .. 4000) { open my $f, "<", "/dev/null" or last; push @f, $f } print "done\n"; <STDIN>'`, 700 << 10},
	{"what epoll watches", `exec perl -e '$| = 1; $e = syscall 291, 0; my $v = pack "Lx8", 1; for (1 .. 3900) { pipe my $r, my $w or last; push @p, $r, $w;
		syscall 233, $e, 1, fileno $r, $v } print "done\n"; <STDIN>'`, 1 << 20},
	{"shared memory of System V",
		`exec perl -e '$| = 1; $id = shmget 7, 8 << 20, 01600; shmwrite $id, "x" x (8 << 20), 0, 8 << 20; print "done\n"; <STDIN>; shmctl $id, 0, 0'`, 8 << 20},
	{"message queues of System V", `exec perl -e '$| = 1; $q = msgget 7, 01600; msgsnd $q, pack("l! a*", 1, "x" x 8000), 04000 or last for 1 .. 2;
		for $k (100 .. 300) { $q = msgget $k, 01600; msgsnd $q, pack("l! a*", 1, "x" x 8000), 04000 for 1 .. 2 } print "done\n"; <STDIN>'`, 1 << 20},
	{"what Unix's sockets buffer", `exec perl -e '$| = 1; for (1 .. 40) { socketpair my $a, my $b, 1, 2, 0; push @s, $a, $b; 1 while send $a, "x" x 30000, 0x40 }
		print "done\n"; <STDIN>'`, 3 << 20},
	{"routes", `perl -e 'printf "route add blackhole 10.%d.%d.0/24\n", $_ >> 8, $_ & 255 for 1 .. 20000' | ip -batch -; echo done; read x`, 1 << 20},
}

// TestWhatIsCharged holds the kernel, whichever it is, to what is said of it.
func TestWhatIsCharged(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 47, 1)
	n.awaitPhases(t, jobs, model.PhaseRunning) // what starts it takes memory too, and ends
	id := jobs[0].ID
	container := containerID(id)
	usage := func() int64 {
		for _, file := range []string{"memory.usage_in_bytes", "memory.current"} {
			if v, ok := n.groupNumber("memory", container, file); ok {
				return v
			}
		}
		t.Fatal("its control group says nothing of memory")
		return 0
	}
	for _, c := range charged {
		t.Run(c.name, func(t *testing.T) {
			var grown int64
			// What an earlier script had is given back at some time: it may be now.
			for try := 0; try < 10 && grown < c.atLeast; try++ {
				grown = charge(t, n, id, c.script, usage)
			}
			if grown < c.atLeast {
				t.Errorf("its control group has %d KiB more, want at least %d", grown>>10, c.atLeast>>10)
			}
		})
	}
}

// charge runs a script that says when it has done what it does, and tells by how much the memory has grown by then.
func charge(t *testing.T, n *testNode, id model.ID, script string, usage func() int64) int64 {
	t.Helper()
	before := usage()
	in, stop := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := n.Exec(context.Background(), id, control.Command{Args: []string{"sh", "-c", script}},
			control.Stdio{In: in, Out: out, Err: out})
		out.Close()
		ended <- err
	}()
	word := make([]byte, 5)
	_, err := io.ReadFull(said, word)
	grown := usage() - before
	go io.Copy(os.Stderr, said)
	stop.Write([]byte("\n"))
	stop.Close()
	if failed := <-ended; failed != nil || err != nil || string(word) != "done\n" {
		t.Fatalf("it said %q (%v, %v)", word, err, failed)
	}
	t.Logf("%d KiB", grown>>10)
	return grown
}
