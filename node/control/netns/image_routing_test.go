package netns

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
)

// machineLayer is a layer with programs of this machine and their libraries, at their places, and with users of its
// own.
func machineLayer(t testing.TB, programs ...string) []byte {
	t.Helper()
	files := map[string]string{}
	add := func(path string) {
		path = filepath.Clean(path)
		for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} { // links into /usr, here as well
			if strings.HasPrefix(path, dir+"/") {
				path = "/usr" + path
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path[1:]] = string(data)
	}
	for _, p := range programs {
		add(p)
		out, _ := exec.Command("ldd", p).Output() // a script has no libraries
		for word := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(word, "/") {
				add(strings.TrimSuffix(word, ":"))
			}
		}
	}
	layer := []File{
		{Name: "etc/passwd", Mode: 0o644, Content: "root:x:0:0::/root:/bin/sh\nfrr:x:4711:4712::/:/bin/sh\n" +
			"bird:x:4721:4722::/:/bin/sh\n"},
		{Name: "etc/group", Mode: 0o644, Content: "root:x:0:\nfrr:x:4712:\nfrrvty:x:4713:frr\nbird:x:4722:\n"},
		{Name: "etc/frr/frr.conf", Content: "! of the package\n"}, {Name: "etc/bird/bird.conf", Content: "# of the package\n"},
		{Name: "var/log/frr", Kind: tar.TypeDir}, // root's: FRR could not write there
		{Name: "etc/of-the-image", Mode: 0o644, Content: "here\n"},
		{Name: "bin", Kind: tar.TypeSymlink, Link: "usr/bin"}, {Name: "sbin", Kind: tar.TypeSymlink, Link: "/usr/sbin"},
		{Name: "lib", Kind: tar.TypeSymlink, Link: "usr/lib"}, {Name: "lib64", Kind: tar.TypeSymlink, Link: "usr/lib64"},
		{Name: "usr/bin/sh", Kind: tar.TypeSymlink, Link: "bash"},
		{Name: "run", Kind: tar.TypeDir}, {Name: "var/run", Kind: tar.TypeSymlink, Link: "/run"},
	}
	for path, content := range files {
		layer = append(layer, File{Name: path, Content: content})
	}
	return Layer(t, layer...)
}

// TestRoutingSoftwareOfAnImage: routers run what an image brings, with what that may do and no more, beside what their
// owner has run. What the image lacks is told.
func TestRoutingSoftwareOfAnImage(t *testing.T) {
	n := newNode(t)
	var r registry
	programs := []string{"/usr/bin/bash"}
	for _, name := range []string{"cat", "cut", "grep", "head", "install", "mkdir", "mv", "rm", "sha256sum", "sleep", "stat",
		"timeout"} {
		programs = append(programs, "/usr/bin/"+name)
	}
	for _, name := range []string{"zebra", "staticd", "ospfd", "watchfrr", "mgmtd"} {
		if path := "/usr/lib/frr/" + name; name != "mgmtd" || isThere(path) { // FRR 8 has none
			programs = append(programs, path)
		}
	}
	programs = append(programs, "/usr/bin/vtysh", "/usr/sbin/bird", "/usr/sbin/birdc")
	locked := r.add(t, model.ImageRun{}, machineLayer(t, programs...)) // vtysh asks PAM, which is not whole
	permit, err := filepath.Glob("/usr/lib/*/security/pam_permit.so")
	if err != nil || len(permit) == 0 {
		t.Fatalf("there is no pam_permit.so: %v", err)
	}
	software := machineLayer(t, append(programs, permit[0])...)
	whole := r.add(t, model.ImageRun{User: "nobody", Entrypoint: []string{"/usr/lib/frr/docker-start"}}, software)
	n.serveImages(t, &r)

	jobs := lineOf("lab", 63, 2)
	frr, bird := &jobs[0].Element, &jobs[1].Element
	frr.Image, bird.Image = "frr:9.1@"+whole, "bird@"+whole
	frr.Software, bird.Software = model.SoftwareFRR, model.SoftwareBIRD
	frr.Config = map[string]string{"frr.conf": "interface r1\n ip ospf network point-to-point\n" +
		" ip ospf hello-interval 1\n ip ospf dead-interval 4\n ip ospf area 0\ninterface lo\n ip ospf area 0\n" +
		"router ospf\nlog file /var/log/frr/frr.log notifications\n"}
	const birdOf = "router id 10.255.0.1;\nprotocol device {}\nprotocol kernel { ipv4 { export all; }; }\n" +
		"protocol ospf v2 { ipv4 { import all; export all; }; area 0 { interface \"r0\" { type ptp; hello 1; dead 4; };" +
		" interface \"lo\" { stub; }; }; }\n"
	bird.Config = map[string]string{"bird.conf": birdOf}
	frr.Run = "echo it runs; exec sleep infinity"
	n.awaitPhases(t, jobs, model.PhaseRunning)
	id, other := jobs[0].ID, jobs[1].ID

	ospf := func() { // each has its configuration
		t.Helper()
		n.untilRuns(t, id, "Hello 1s", "vtysh", "-c", "show ip ospf interface r1")
		n.untilRuns(t, other, "10.255.0.1/32", "birdc", "show", "route")
	}
	ospf()
	if out := n.run(t, id, "cat", "/etc/of-the-image"); out != "here\n" {
		t.Errorf("its files are another's: %q", out)
	}
	if out := n.run(t, id, "stat", "-c", "%u %g %a", "/etc/frr/frr.conf", "/etc/frr/vtysh.conf"); out !=
		"4711 4712 640\n4711 4713 640\n" {
		t.Errorf("the configuration belongs to\n%s", out)
	}
	n.untilRuns(t, id, "frr.log", "bash", "-c", "echo /var/log/frr/*")
	if out := n.run(t, id, "stat", "-c", "%u %g %a", "/var/log/frr"); out != "4711 4712 750\n" {
		t.Errorf("its log's directory belongs to %s", out)
	}
	// The software has its few capabilities, what its owner runs those of a person.
	bounds := func(process string) string {
		return n.run(t, id, "bash", "-c", "for p in /proc/[0-9]*; do read -r name <$p/comm; "+
			"[ \"$name\" != "+process+" ] || grep CapBnd $p/status; done")
	}
	if got := bounds("zebra"); strings.TrimSpace(got) != "CapBnd:\t00000000000034eb" {
		t.Errorf("zebra may get %s", got)
	}
	if got := bounds("sleep"); !strings.Contains(got, "CapBnd:\t00000000208c35fb") {
		t.Errorf("the service may get %s", got)
	}
	if log := n.logs(t, id); !strings.Contains(log, "it runs") {
		t.Errorf("its log is\n%s", log)
	}

	// A daemon that is killed comes back; what is refused changes nothing; the element outlives its agent.
	pid := n.pidOf(t, id)
	n.run(t, id, "bash", "-c", "for p in /proc/[0-9]*; do read -r name <$p/comm; "+
		"[ \"$name\" != ospfd ] || kill -KILL ${p#/proc/}; done")
	ospf()
	bird.Config = map[string]string{"bird.conf": "protocl device {}\n"}
	if err := n.Apply(t.Context(), jobs)[1].Err; err == nil ||
		!strings.Contains(err.Error(), "bird refuses its configuration") {
		t.Errorf("a configuration with a mistake: %v", err)
	}
	bird.Config = map[string]string{"bird.conf": birdOf + "# another\n"}
	n.images.Close()
	n.restart(t)
	n.serveImages(t, &r)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if n.pidOf(t, id) != pid {
		t.Error("another agent started it again")
	}

	// An image whose software cannot be configured, and one without any.
	frr.Image = "locked@" + locked
	jobs[0].Element.Restarts++
	told := func(words ...string) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); ; {
			is := n.Apply(t.Context(), jobs)[0]
			said := fmt.Sprint(is.Message, is.Err)
			if is.Phase == model.PhaseFailed && !slices.ContainsFunc(words,
				func(w string) bool { return !strings.Contains(said, w) }) {
				return
			}
			time.Sleep(50 * time.Millisecond)
			if time.Now().After(end) {
				t.Fatalf("it is %s: %s\n%s", is.Phase, said, n.logs(t, id))
			}
		}
	}
	told("FRR did not take its configuration", "vtysh_pam")
	bare := r.add(t, model.ImageRun{}, machineLayer(t, "/usr/bin/bash"))
	frr.Image = "bare@" + bare
	jobs[0].Element.Restarts++
	told("its image bare@", "has no /usr/lib/frr/zebra")
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
