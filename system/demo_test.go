package system

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDemo runs the README's first command, twice; nothing of it may stay.
func TestDemo(t *testing.T) {
	p := newPlatform(t)
	somebodyElses(t)
	before := machine(t)
	for range 2 {
		c := demo(p)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("the demo: %v\n%s", err, out)
		}
		for _, want := range []string{"All well.", "red", "blue"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the demo does not print %q:\n%s", want, out)
			}
		}
		sameMachine(t, before)
	}
}

// somebodyElses makes what may be on a machine already: a named namespace, and a bridge with a port and one of the
// tenants' addresses; the demo must leave them alone.
func somebodyElses(t *testing.T) {
	t.Helper()
	for _, command := range []string{
		"ip netns add theirs", "ip link add theirs0 type bridge", "ip addr add 10.1.0.1/24 dev theirs0",
		"ip link set theirs0 up",
		"ip link add ppp0 type veth peer name theirs1 netns theirs", "ip link set ppp0 master theirs0 up",
	} {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		for _, command := range []string{"ip link del ppp0", "ip link del theirs0", "ip netns del theirs"} {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Errorf("%s, which was there before: %v\n%s", command, err, out)
			}
		}
	})
}

// TestDemoInterrupted presses ^C at each step of the demo: it must end by itself and take everything away.
func TestDemoInterrupted(t *testing.T) {
	for _, step := range []string{"1. ", "2. ", "4. ", "Removing everything"} {
		t.Run(step, func(t *testing.T) {
			p := newPlatform(t)
			c := demo(p)
			// A group of its own, as a terminal makes one: ^C goes to all its processes.
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			c.Stderr = c.Stdout
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			interrupted, said := false, []string(nil)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said = append(said, lines.Text())
				if !interrupted && strings.Contains(lines.Text(), step) {
					interrupted = true
					if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
						t.Error(err)
					}
				}
			}
			err = c.Wait()
			if !interrupted {
				t.Fatalf("the demo never printed %q (%v)", step, err)
			}
			// ^C while it cleans up anyway changes nothing.
			if status := exitStatus(err); status != 130 && (status != 0 || step != "Removing everything") {
				t.Errorf("the demo ends with %d, having said\n%s", status, strings.Join(said, "\n"))
			}
		})
	}
}

func demo(p *platform) *exec.Cmd {
	c := exec.Command("scripts/demo")
	c.Dir = root
	c.Env = append(os.Environ(), "DEMO_INSTANCE="+p.dirs.Name, "POLYPLANE_BINARY="+binary)
	return c
}
