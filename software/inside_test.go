package software

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// TestDaemonsFileIsNoShell: what users write into `daemons` is read as plain words, and refused where it is more.
func TestDaemonsFileIsNoShell(t *testing.T) {
	attack.Tell(t, "commands in the file that says which daemons FRR has", "none is run")
	for _, bad := range []string{
		"touch /tmp/x", "ospfd=$(touch /tmp/x)", "ospfd=`id`", "zebra_options=\"-K 3; id\"", "MAX_FDS=1024 id",
		"MAX_FDS=12x", "MAX_FDS=0", "PATH=/tmp", "LD_PRELOAD=/tmp/x.so", "all_wrap=/usr/bin/perf",
		"ospfd_wrap=x", "ospfd=maybe",
		"zebra_options='-P 0", "zebra_options='-d'", "zebra_options=\"--vty_socket /tmp\"", "bgpd_options=\"-n\"",
		"zebra_options=\"-- x\"",
		"ospfd_instances=0", "ospfd_instances=1,x", "frr_profile=fast",
		"watchfrr_options=\"-r true\"", "export ospfd=yes",
		"zebra_options=-uroot", "zebra_options=-rd", "bgpd_options=-Sdp179", "ospfd_options=-z/tmp/x",
		"zebra_options=--daemo", "bgpd_options=--us=root",
		"zebra_options=-b", "frr_global_options=-Nother", "ospfd_options=--vty_s=/tmp",
		"ospfd=yes && id", "[ -x /bin/sh ] && id", "zebra_options=\"a\\nb\"", "sharpd=yes",
	} {
		if s, err := parseDaemonsFile("zebra=yes\n" + bad); err == nil {
			t.Errorf("%q is taken for %v", bad, s.command())
		} else if !strings.Contains(err.Error(), "daemons, line 2: ") {
			t.Errorf("the error of %q does not say where: %v", bad, err)
		}
	}
}

// TestDaemonsFile: Debian's own file is understood, and what it asks for is done.
func TestDaemonsFile(t *testing.T) {
	if debian, err := os.ReadFile("/etc/frr/daemons"); err != nil {
		t.Fatalf("frr's package has one: %v", err)
	} else if s, err := parseDaemonsFile(string(debian)); err != nil {
		t.Errorf("Debian's file: %v", err)
	} else if got := s.names(); !slices.Equal(got, []string{"zebra", "staticd"}) {
		t.Errorf("Debian's file starts %v", got)
	}
	s, err := parseDaemonsFile("# none\nospfd=yes\nospfd_instances=\"1,2\"\nbgpd=\"yes\" # " +
		"two\nzebra=no\nzebra_options=\"  -A 127.0.0.1 -s 90000000\"\n" +
		"frr_global_options=\"-P 0\"\nfrr_profile=\"datacenter\"\nMAX_FDS=2048\nvtysh_enable=yes\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range []string{"-A127.0.0.1", "-p 1790", "-p1790 -S", "-e 64", "-lhost.dn",
		"--vty_port=2601 --log file:/tmp/d", "-Mbgpd_bmp", "--no_kernel"} {
		if _, err := frrOptions(good); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
	}
	want := "frr start 2048 -P 0 -F datacenter zebra -P 0 -F datacenter -A 127.0.0.1 -s 90000000 -- bgpd -P 0 -F " +
		"datacenter -- " +
		"ospfd-1 -P 0 -F datacenter -n 1 -- ospfd-2 -P 0 -F datacenter -n 2 -- staticd -P 0 -F datacenter"
	if got := strings.Join(s.command()[1:], " "); got != want {
		t.Errorf("the command is\n%s, want\n%s", got, want)
	}
	if strings.Contains(strings.Join(frrCapabilities, " "), "SYS_ADMIN") {
		t.Error("FRR runs with CAP_SYS_ADMIN")
	}
}

func TestNotes(t *testing.T) {
	hash := strings.Repeat("0f", 32)
	if n, err := ParseNote([]byte("12 " + hash + " 3\n")); err != nil || n != (Note{12, hash, 3}) {
		t.Errorf("got %+v, %v", n, err)
	}
	for _, bad := range []string{"", "12", "0 " + hash + " 1", "-1 " + hash + " 1", "99999999999 " + hash + " 1",
		"12 " + hash, "12 xyz 1",
		"12 " + strings.ToUpper(hash) + " 1", "12 " + hash + " x", "12 " + hash + " 1 more",
		strings.Repeat("9", 1<<20)} {
		if n, err := ParseNote([]byte(bad)); err == nil {
			t.Errorf("%.80q is taken for %+v", bad, n)
		}
	}
	if got := Trouble([]byte("a\x1b[31m b\n\n c\x00\xff" + strings.Repeat("x", 10*MaxNote))); len(got) > MaxNote ||
		!strings.HasPrefix(got, "a[31m b c") {
		t.Errorf("trouble is %q", got)
	}
}

// TestGenerated compiles what is loaded into FRR's daemons again and compares.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("inside/generate", dir).CombinedOutput(); err != nil {
		t.Fatalf("inside/generate: %v\n%s", err, out)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		name := "preload_" + arch + ".so"
		is, err := os.ReadFile(filepath.Join("inside", name))
		if err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, is) {
			t.Errorf("inside/%s is not what inside/generate makes (%v): go generate ./software", name, err)
		}
	}
	if len(frrPreloadProgram.Content) == 0 {
		t.Errorf("there is none for %s", runtime.GOARCH)
	}
}

// TestDaemonThatCannotStartIsTold has a daemon that this machine's FRR may not have, or that ends at once, beside those
// that do.
func TestDaemonThatCannotStartIsTold(t *testing.T) {
	rs := pair(t, model.SoftwareFRR, model.SoftwareBIRD,
		func(int) model.Routing { return model.Routing{OSPF: &model.OSPF{}} },
		func(net *model.Resolved) {
			net.Elements[0].Config = map[string]string{"daemons": "ospfd=yes\nbfdd=yes\nbfdd_options=\"--nonsense\"\n",
				"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\n"}
		})
	r := rs[0]
	r.awaitLine(t, "bfdd ended")
	r.awaitLine(t, "bfdd ended")
	r.awaitLine(t, "bfdd ended")
	if out := r.show("cat " + NotesDir + "/trouble"); !strings.Contains(Trouble([]byte(out)),
		"bfdd ended 3 times soon after its start") {
		t.Errorf("what is told is %q", out)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if out := r.show("vtysh -c 'show running-config ospfd'"); strings.Contains(out, "network 10.0.0.0/8 area 0") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("ospfd has no configuration, since bfdd does not start:\n%s", out)
		}
	}
	rs[1].awaitReady(t)
}

// TestGeneratedConfigurationNeedsNoVtysh: FRR 8.4 has what we generate from a program of ours, which costs a tenth of
// vtysh. Here vtysh lets nobody in. What somebody wrote in another way is left to it, and its refusal is told.
func TestGeneratedConfigurationNeedsNoVtysh(t *testing.T) {
	if out, err := exec.Command("/usr/lib/frr/zebra", "--version").CombinedOutput(); err != nil {
		t.Fatal(err)
	} else if !strings.Contains(string(out), "version 8.4") {
		t.Skipf("only FRR 8.4 is configured without vtysh; here is %.40q", out)
	}
	rs := joined(t, model.SoftwareFRR, model.SoftwareFRR, func(int) model.Routing {
		return model.Routing{OSPF: &model.OSPF{}}
	}, nil)
	rs[0].change = func(plan *Plan) {
		for k := range plan.Files {
			if f := &plan.Files[k]; f.Path == "/etc/pam.d/frr" {
				f.Content = "auth required pam_deny.so\naccount required pam_deny.so\n"
			}
		}
	}
	for _, r := range rs {
		r.configure(t)
	}
	rs[0].awaitReady(t)
	rs[1].awaitRoute(t, rs[0].el.Loopback[0], protoOSPF, 2)
	rs[0].show("sed -i '1i service password-encryption' " + frrConf + "; kill -KILL $(cat /run/frr/zebra.pid)")
	rs[0].awaitTrouble(t, "vtysh_pam")
}
