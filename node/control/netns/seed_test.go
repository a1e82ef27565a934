package netns

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// giveBIRD has a router run BIRD, with a configuration of the document's that has this word in it.
func giveBIRD(e *model.NodeElement, text string) {
	e.Software = model.SoftwareBIRD
	e.Config = map[string]string{"bird.conf": "router id 1.2.3.4;\nprotocol device {}\n# " + text + "\n"}
}

// TestConfigurationBelongsToTheElement seeds, edits, changes and overwrites.
func TestConfigurationBelongsToTheElement(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	id := jobs[0].ID
	const path = "/etc/bird/bird.conf"
	document := func(text string) { giveBIRD(&jobs[0].Element, text) }
	holds := func(text string) {
		t.Helper()
		if got := n.run(t, id, "cat", path); !strings.Contains(got, text) {
			t.Errorf("the element has\n%s\nwant %q in it", got, text)
		}
	}
	document("one")
	n.apply(t, jobs)
	holds("# one")
	n.untilRuns(t, id, "BIRD", "birdc", "show", "status")
	linkLocal := func() { // the kernel makes it a moment after the carrier has come
		t.Helper()
		n.untilRuns(t, id, "fe80", "ip", "-6", "address", "show", "dev", "r1")
	}
	linkLocal()
	pid := n.pidOf(t, id)
	document("two")
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r0: configuration loaded"}) {
		t.Errorf("apply said %q", got)
	}
	holds("# two")
	if now := n.pidOf(t, id); now != pid {
		t.Error("a new configuration restarted BIRD")
	}
	n.run(t, id, "sh", "-c", "echo '# mine' >> "+path)
	n.restart(t)
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("an edit inside made apply do %q", got)
	}
	holds("# mine")
	document("three")
	jobs[0].Element.Interfaces[0].Addresses[0] = netip.MustParsePrefix("192.0.2.1/24") // the rest of it is applied
	kept := func(want ...string) {
		t.Helper()
		r := n.apply(t, jobs)
		if got := changes(r); !slices.Equal(got, want) {
			t.Errorf("apply said %q: want %q", got, want)
		}
		if w := r[0].Warning; r[0].Err != nil || w.Reason != "ConfigurationKept" ||
			!strings.Contains(w.Message, "--overwrite") {
			t.Errorf("a conflict gave %v, %+v: want a warning that names --overwrite", r[0].Err, w)
		}
		holds("# mine")
	}
	kept("r0: address 10.0.0.0/31 removed from r1", "r0: address 192.0.2.1/24 added to r1")
	kept()
	jobs[0].Element.Restarts++
	kept("r0: restarted: as requested")
	jobs[0].Element.Stopped = true
	n.apply(t, jobs)
	jobs[0].Element.Stopped = false
	kept("r0: device r1 taken up", "r0: started")
	linkLocal()
	n.restart(t)
	kept()
	jobs[0].Element.Overwrites++
	if r := n.apply(t, jobs)[0]; r.Warning != (control.Warning{}) {
		t.Errorf("after an overwrite there is the warning %+v", r.Warning)
	}
	holds("# three")
	// What an element owns outlives it where asked.
	n.run(t, id, "sh", "-c", "echo kept > /root/mine; echo '# mine again' >> "+path)
	if err := n.Remove(context.Background(), []model.ID{id}, true); err != nil {
		t.Fatal(err)
	}
	jobs[0].Index = 8 // other user IDs
	n.apply(t, jobs)
	holds("# mine again")
	if got := n.run(t, id, "cat", "/root/mine"); got != "kept\n" {
		t.Errorf("a file is now %q", got)
	}
	if got := n.run(t, id, "stat", "-c", "%u", "/root/mine"); got != "0\n" {
		t.Errorf("the file's owner inside is %q", got)
	}
}

// TestDamagedConfigurationIsNoEdit: zeros, which a full disk leaves in a file, are replaced at the next start. They
// used to count as the element's own words, which its software never understood.
func TestDamagedConfigurationIsNoEdit(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	id := jobs[0].ID
	const path = "/etc/bird/bird.conf"
	document := func(text string) { giveBIRD(&jobs[0].Element, text) }
	document("one")
	n.apply(t, jobs)
	n.untilRuns(t, id, "BIRD", "birdc", "show", "status")
	for _, text := range []string{"one", "two"} { // the network's is the same, or has changed meanwhile
		n.run(t, id, "sh", "-c", "head -c 70 /dev/zero > "+path)
		jobs[0].Element.Stopped = true
		n.apply(t, jobs)
		document(text)
		jobs[0].Element.Stopped = false
		r := n.apply(t, jobs)
		if got := changes(r); !slices.Contains(got, "r0: "+path+" was damaged, and is the network's again") ||
			r[0].Warning != (control.Warning{}) {
			t.Errorf("apply said %q, %+v", got, r[0].Warning)
		}
		n.untilRuns(t, id, "BIRD", "birdc", "show", "status")
		if got := n.run(t, id, "cat", path); !strings.Contains(got, "# "+text) {
			t.Errorf("the element has %q", got)
		}
	}
}

// TestLostFirstFilesAreWrittenAgain: the first files of an element that was started just before the machine's disk was
// full are empty. They are written again at the next look. A configuration that alone is empty is somebody's doing.
func TestLostFirstFilesAreWrittenAgain(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	id := jobs[0].ID
	const conf = "/etc/frr/frr.conf"
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c",
		"for f in /etc/passwd /etc/group /etc/profile /etc/frr/*; do : > $f; done; sed -i 's/$/\\x00/' /etc/shells")
	n.elements[id].verified = false
	if got := changes(n.apply(t, jobs)); !slices.Contains(got, "r0: "+conf+" was damaged, and is the network's again") {
		t.Errorf("apply said %q", got)
	}
	n.untilRuns(t, id, "zebra dplane limit", "vtysh", "-c", "show running-config")
	for _, file := range []string{"/etc/passwd", "/etc/group", "/etc/profile", "/etc/shells",
		"/etc/frr/daemons", conf} {
		if got := n.run(t, id, "cat", file); len(got) == 0 || strings.Contains(got, "\x00") {
			t.Errorf("%s is %q", file, got)
		}
	}
	n.run(t, id, "sh", "-c", ": > "+conf)
	jobs[0].Element.Restarts++
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r0: restarted: as requested"}) {
		t.Errorf("with a configuration that its owner emptied, apply said %q", got)
	}
	if got := n.run(t, id, "cat", conf); got != "" {
		t.Errorf("what its owner emptied is %q", got)
	}
}

// TestWrittenConfigurationIsKept has FRR itself write the configuration that the document stated: it is the element's
// own from then on, and FRR's form of it passes the check that a restart makes.
func TestWrittenConfigurationIsKept(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	id := jobs[0].ID
	document := func(address string) {
		jobs[0].Element.Config = map[string]string{"frr.conf": "interface lo\n ip address " + address + "\n"}
	}
	document("192.0.2.1/32")
	n.apply(t, jobs)
	n.untilRuns(t, id, "[OK]", "vtysh", "-c", "configure", "-c", "interface lo", "-c", "ip address 198.51.100.1/32",
		"-c", "end", "-c", "write")
	document("192.0.2.2/32")
	jobs[0].Element.Restarts++
	r := n.apply(t, jobs)
	if got := changes(r); !slices.Equal(got, []string{"r0: restarted: as requested"}) ||
		r[0].Warning.Reason != "ConfigurationKept" {
		t.Errorf("apply said %q, %+v: want a restart, and that its configuration is kept", got, r[0].Warning)
	}
	n.untilRuns(t, id, "198.51.100.1/32", "vtysh", "-c", "show running-config")
	// One that is broken does not take down what runs.
	pid := n.pidOf(t, id)
	n.run(t, id, "sh", "-c", "echo nonsense >>/etc/frr/frr.conf")
	jobs[0].Element.Restarts++
	if r := n.Apply(t.Context(), jobs)[0]; r.Err == nil || !strings.Contains(r.Err.Error(), "nonsense") ||
		!strings.Contains(r.Err.Error(), "goes on with what it has") {
		t.Errorf("a restart on a broken configuration gave %v", r.Err)
	}
	if now := n.pidOf(t, id); now != pid {
		t.Error("a restart on a broken configuration was made")
	}
}
