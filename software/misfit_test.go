package software

import (
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// misfits are what an element's root may put in the place of a configuration, and what is told of it.
var misfits = []struct{ make, told string }{
	{"mkfifo $C", " is a fifo: "},
	{"mkdir $C", " is a directory: "},
	{"ln -s /dev/zero $C", " is a character special file: "},
	{"truncate -s 1T $C", " is a file of 1099511627776 bytes, and at most 67108864 are read: "},
	{"ln -s /nowhere $C", " is not there, or a link that leads nowhere: "},
}

// begin has a script run in the element before what is planned.
func (r *running) begin(script string) {
	r.change = func(p *Plan) {
		p.Command = append([]string{"sh", "-c", script + `; exec "$@"`, "sh"}, p.Command...)
	}
}

func (r *running) awaitTrouble(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		out := Trouble([]byte(r.show("cat " + NotesDir + "/" + TroubleNote)))
		if strings.Contains(out, words) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("what is told is %q, and not %q", out, words)
		}
	}
}

// TestConfigurationThatIsNoFile: what has a pipe, a device, a directory or no end in the place of its configuration is
// told as such, nothing hangs, and the right configuration is taken afterwards.
func TestConfigurationThatIsNoFile(t *testing.T) {
	attack.Tell(t, "pipes, devices and endless files in the place of FRR's and BIRD's configuration",
		"nothing waits for them, and what is wrong is told")
	rs := joined(t, model.SoftwareFRR, model.SoftwareBIRD, func(int) model.Routing { return model.Routing{} }, nil)
	frr, bird := rs[0], rs[1]
	const frrPlace, birdPlace = "C=" + frrConf + "; ", "C=" + birdConf + "; "
	const away, back = "mv $C $C.right; ", "rm -rf $C; mv $C.right $C"
	frr.begin(frrPlace + away + misfits[0].make)
	bird.begin(birdPlace + away + misfits[0].make)
	frr.configure(t)
	bird.configure(t)
	for i, m := range misfits {
		if i > 0 {
			// All of FRR's daemons are started again, and shall have what is there now.
			frr.show(frrPlace + away + m.make + "; kill -KILL $(cat /run/frr/zebra.pid)")
			bird.show(birdPlace + away + m.make)
			if out, err := bird.exec(superviseProgram.Path, "bird", "reload"); err == nil || !strings.Contains(out, birdConf+m.told) {
				t.Errorf("BIRD takes what %q made: %v\n%s", m.make, err, out)
			}
			if out, err := frr.exec(superviseProgram.Path, "frr", "reload"); err == nil || !strings.Contains(out, frrConf+m.told) {
				t.Errorf("FRR takes what %q made: %v\n%s", m.make, err, out)
			}
		} else {
			bird.awaitTrouble(t, birdConf+m.told)
		}
		frr.awaitTrouble(t, frrConf+m.told)
		frr.show(frrPlace + back)
		bird.show(birdPlace + back)
		if out, err := frr.exec(superviseProgram.Path, "frr", "reload"); err != nil {
			t.Fatalf("after what %q made FRR does not take its configuration: %v\n%s", m.make, err, out)
		}
		frr.awaitReady(t)
		bird.awaitReady(t)
		for _, r := range rs {
			if out, err := r.exec("cat", NotesDir+"/"+TroubleNote); err == nil {
				t.Errorf("after what %q made, all is well, and this is told: %s", m.make, out)
			}
		}
	}
}
