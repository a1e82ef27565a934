package clab

import (
	"github.com/polyplane/polyplane/model"
)

// vrfs are the commands that make a router's VRFs, with a route that ends each of them, and put its interfaces into
// them. FRR takes them by their names.
func vrfs(e *model.ResolvedElement, interfaces []model.ResolvedInterface, run func(string, ...any)) {
	for n, name := range e.VRFNames() {
		if n == 0 {
			for _, family := range []string{"", "-6 "} {
				run("ip %srule add pref 32765 table local", family)
				run("ip %srule del pref 0", family)
			}
		}
		run("ip link add %s type vrf table %d", name, 1001+n)
		run("ip link set dev %s up", name)
		for _, family := range []string{"", "-6 "} {
			run("ip %sroute add vrf %s unreachable default metric 4278198272", family, name)
		}
		for _, i := range interfaces {
			if i.VRF == name {
				run("ip link set dev %s master %s", i.LinuxName(), name)
			}
		}
	}
}
