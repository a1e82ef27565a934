package cli

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/machine"
)

// cgroups is where the kernel's control groups are mounted.
const cgroups = "/sys/fs/cgroup"

// elementGroups returns the cgroups of a network's elements that have processes, on all of the instance's nodes on this
// machine. Each is found in the hierarchy that accounts for CPU time, of version 1 or 2.
func elementGroups(root string, dirs instance.Dirs, network string) []string {
	for _, hierarchy := range []string{"cpuacct", ""} {
		// only a malformed pattern fails
		found, _ := filepath.Glob(filepath.Join(root, hierarchy, dirs.Node("*").Cgroup(), network+"+*"))
		// shells and checks
		found = slices.DeleteFunc(found, func(g string) bool { return strings.Count(filepath.Base(g), "+") != 1 })
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// watch is what CPU time is accounted for besides the cores and the kernel's threads.
func (t *trafficRun) watch() machine.Watch {
	return machine.Watch{Programs: t.programs, Groups: t.groups}
}

// groupLines says what the elements' own processes used: routing software, not forwarding.
func groupLines(b *bytes.Buffer, u machine.Usage) {
	wall := u.Wall.Seconds()
	for _, g := range slices.Sorted(maps.Keys(u.Groups)) {
		if used := u.Groups[g]; used > 0 && wall > 0 {
			fmt.Fprintf(b, "processes of %s: %.2g %% of a core\n", strings.Replace(filepath.Base(g), "+", "/", 1),
				100*used.Seconds()/wall)
		}
	}
}
