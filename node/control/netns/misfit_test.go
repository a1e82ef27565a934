package netns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestConfigurationThatIsNoFileIsTold: an element is failed with the reason when there is no file where its
// configuration must be, also where that is checked before the start, and well after an apply --overwrite.
func TestConfigurationThatIsNoFileIsTold(t *testing.T) {
	n := newNode(t)
	jobs := append(frrLine("lab", 74, 2), birdLine("red", 75, 1)...)
	jobs[1].Element.Config = map[string]string{"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\n"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for i, c := range []struct{ path, make, told string }{
		{"/etc/frr/frr.conf", "mkdir", " is a directory: "},
		{"/etc/frr/frr.conf", "mkfifo", " is a fifo: "},
		{"/etc/bird/bird.conf", "ln -s /dev/zero", " is a character special file: "},
	} {
		n.run(t, jobs[i].ID, "sh", "-c", fmt.Sprintf("rm %[1]s && %[2]s %[1]s", c.path, c.make))
		jobs[i].Element.Restarts++
		n.awaitPhases(t, jobs[i:i+1], model.PhaseFailed)
		err := n.Apply(t.Context(), jobs)[i].Err
		if err == nil || !strings.Contains(err.Error(), c.path+c.told) || !strings.Contains(err.Error(), "--overwrite") {
			t.Errorf("with %s in the place of %s it is told as %v", c.make, c.path, err)
		}
		jobs[i].Element.Overwrites++
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if out := n.run(t, jobs[1].ID, "vtysh", "-c", "show running-config"); !strings.Contains(out, "network 10.0.0.0/8") {
		t.Errorf("it runs without its configuration:\n%s", out)
	}
}
