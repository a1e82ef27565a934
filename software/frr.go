package software

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Where FRR's files are, inside the element.
const (
	frrConf    = "/etc/frr/frr.conf"
	frrDaemons = "/etc/frr/daemons"
	frrVtysh   = "/etc/frr/vtysh.conf"
	frrLog     = "/var/log/frr/frr.log"
)

// frrSweepSeconds is how long a new zebra keeps the routes of the one before: time enough to read them, and for the
// protocols to announce theirs again.
const frrSweepSeconds = 3

// frrCapabilities are the capabilities that FRR needs. Each daemon takes NET_ADMIN, NET_RAW and some NET_BIND_SERVICE
// before it becomes the user frr, and ends if one is refused; SYS_ADMIN too, which inside/preload.c makes them do
// without. Root needs KILL to end daemons of that user. `write` replaces the configuration in frr's directory and gives
// it to frr (CHOWN, FOWNER, DAC_OVERRIDE).
var frrCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_NET_ADMIN",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID"}

// renderFRR plans an element with FRR. A frr.conf of the user's own is taken as it is, and says which daemons are
// needed.
func renderFRR(el model.ResolvedElement) (Plan, error) {
	if err := checkConfigNames(el.Config, model.SoftwareFRR); err != nil {
		return Plan{}, err
	}
	conf, own := el.Config["frr.conf"]
	if !own {
		var err error
		if conf, err = frrConfig(el); err != nil {
			return Plan{}, err
		}
	}
	daemonsFile, ok := el.Config["daemons"]
	if !ok {
		daemonsFile = frrDaemonsFile(FRRDaemons(conf))
	}
	settings, err := parseDaemonsFile(daemonsFile)
	if err != nil {
		return Plan{}, err
	}
	vtysh, ok := el.Config["vtysh.conf"]
	if !ok {
		vtysh = "service integrated-vtysh-config\n"
	}
	var check []string
	if own {
		check = []string{"/usr/bin/vtysh", "--dryrun", "--inputfile", "/etc/frr/frr.conf"}
	}
	return Plan{
		NeedsProcesses: true,
		Check:          check,
		Dirs: []Dir{
			{Path: "/etc/frr", Mode: 0o750, Owner: "frr", Group: "frr"},
			{Path: "/var/log/frr", Mode: 0o750, Owner: "frr", Group: "frr"},
			{Path: "/var/tmp/frr", Mode: 0o755, Owner: "frr", Group: "frr"}, // crash logs
		},
		Files: []File{
			{Path: frrConf, Content: conf, Mode: 0o640, Owner: "frr", Group: "frr"},
			{Path: frrDaemons, Content: daemonsFile, Mode: 0o640, Owner: "frr", Group: "frr"},
			{Path: frrVtysh, Content: vtysh, Mode: 0o640, Owner: "frr", Group: "frrvty"},
			// vtysh asks PAM; only the element's root and the group frrvty can reach the sockets anyway.
			{Path: "/etc/pam.d/frr", Content: "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n",
				Mode: 0o644, Owner: "root", Group: "root"},
		},
		Programs:     []Program{frrPreloadProgram, superviseProgram},
		ConfigFiles:  []string{frrConf},
		Daemons:      settings.names(),
		Command:      settings.command(),
		Reload:       []string{superviseProgram.Path, "frr", "reload"},
		Console:      []string{"/usr/bin/vtysh"},
		Capabilities: slices.Clone(frrCapabilities),
		LogFiles:     []string{frrLog},
	}, nil
}

// frrDaemonOf tells which daemon a line of a configuration needs, by how the line begins after its indentation.
var frrDaemonOf = []struct{ begin, daemon string }{
	{"router bgp", "bgpd"}, {"router rip", "ripd"}, {"router ripng", "ripngd"}, {"router ospf", "ospfd"},
	{"router ospf6", "ospf6d"}, {"router isis", "isisd"}, {"router babel", "babeld"}, {"router pim", "pimd"},
	{"ip pim", "pimd"}, {"ip igmp", "pimd"}, {"router pim6", "pim6d"}, {"ipv6 pim", "pim6d"}, {"ipv6 mld", "pim6d"},
	{"mpls ldp", "ldpd"}, {"ip nhrp", "nhrpd"}, {"ipv6 nhrp", "nhrpd"}, {"router eigrp", "eigrpd"},
	{"pbr-map", "pbrd"}, {"pbr-policy", "pbrd"}, {"bfd", "bfdd"}, {"ip ospf bfd", "bfdd"},
	{"ipv6 ospf6 bfd", "bfdd"}, {"isis bfd", "bfdd"}, {"router openfabric", "fabricd"}, {"vrrp", "vrrpd"},
	{"segment-routing", "pathd"},
}

// frrOrder is the order in which FRR starts its daemons.
var frrOrder = []string{"zebra", "bgpd", "ripd", "ripngd", "ospfd", "ospf6d", "isisd", "babeld",
	"pimd", "pim6d", "ldpd", "nhrpd", "eigrpd", "pbrd", "staticd", "bfdd", "fabricd", "vrrpd", "pathd"}

// frrKnown are the daemons that a daemons file may name: FRR 10 always runs mgmtd, earlier versions have none; sharpd
// is for FRR's own tests, and Debian's file names it.
var frrKnown = append([]string{"mgmtd", "sharpd"}, frrOrder...)

// FRRDaemons tells which daemons an frr.conf needs, in the order they start; zebra and staticd always.
func FRRDaemons(conf string) []string {
	need := map[string]bool{"zebra": true, "staticd": true}
	for line := range strings.Lines(conf) {
		words := strings.Fields(line)
		for _, d := range frrDaemonOf {
			begin := strings.Fields(d.begin)
			if len(words) >= len(begin) && slices.Equal(words[:len(begin)], begin) {
				need[d.daemon] = true
			}
		}
		if len(words) > 2 && words[0] == "neighbor" && words[2] == "bfd" {
			need["bfdd"] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(frrOrder), func(d string) bool { return !need[d] })
}

// frrDaemonsFile enables daemons in the form of Debian's /etc/frr/daemons.
func frrDaemonsFile(daemons []string) string {
	var w writer
	for _, d := range frrOrder {
		if d == "zebra" || d == "staticd" {
			continue // they always run
		}
		answer := "no"
		if slices.Contains(daemons, d) {
			answer = "yes"
		}
		w.line("%s=%s", d, answer)
	}
	w.line("vtysh_enable=yes")
	w.line("# No TCP ports for the daemons' consoles: vtysh uses their Unix sockets.")
	w.line(`frr_global_options="-P 0"`)
	w.line("# Routes of a zebra that was killed are removed so many seconds after the next one began, if nobody " +
		"announces them again.")
	w.line("# Without this FRR 10 looks for them too early, and keeps them for ever " +
		"(github.com/FRRouting/frr/issues/21824).")
	w.line(`zebra_options="-K%d"`, frrSweepSeconds)
	w.line("# Each daemon makes room for so many descriptors when it starts.")
	w.line("MAX_FDS=1024")
	return w.String()
}

// frrRedistribute maps the words of an intent to FRR's, per family.
func frrRedistribute(words []string, self string, v4 bool) ([]string, error) {
	known := map[string][2]string{ // IPv4, IPv6
		"connected": {"connected", "connected"}, "static": {"static", "static"}, "kernel": {"kernel", "kernel"},
		"bgp": {"bgp", "bgp"}, "isis": {"isis", "isis"}, "ospf": {"ospf", "ospf6"}, "ospf6": {"", "ospf6"},
		"rip": {"rip", "ripng"},
	}
	var out []string
	for _, w := range words {
		f, ok := known[w]
		if !ok {
			return nil, fmt.Errorf("frr cannot redistribute %q; it knows %s", w,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		name := f[1]
		if v4 {
			name = f[0]
		}
		if name == self {
			return nil, fmt.Errorf("%s cannot redistribute itself", w)
		}
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}
