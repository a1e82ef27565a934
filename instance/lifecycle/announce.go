package lifecycle

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// announce tells the user that the instance runs, and what to do next.
func announce(w io.Writer, d instance.Dirs, s settings, nodes []model.NodeStatus) {
	fmt.Fprintf(w, "polyplane '%s' is up: %s\n\n", d.Name, s.describe())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tADDRESS\tCPU\tMEMORY\tELEMENTS")
	elements := 0
	var held []string
	for _, n := range nodes {
		state, address := "ready", "-"
		switch {
		case len(n.Held) > 0:
			state, held = "held", append(held, n.Held...)
		case n.Problem != "":
			state = n.Problem
		}
		if n.Address.IsValid() {
			address = n.Address.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", n.Name, state, address, cores(n.CPU), size(n.Memory), n.Elements)
		elements += n.Elements
	}
	t.Flush()
	fmt.Fprintln(w)
	if len(held) > 0 {
		slices.Sort(held)
		fmt.Fprintf(w, "This store does not know all that the nodes have: %s. What runs goes on as it is, and nothing "+
			"is removed.\n\n", strings.Join(slices.Compact(held), ", "))
	}
	next := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	defer next.Flush()
	switch {
	case s.Joined != nil:
		fmt.Fprintf(next, "  %s\tend what runs here; `up` comes back to it\n", instance.Command(d.Name, "down"))
		return
	case len(held) > 0:
		fmt.Fprintf(next, "  %s\twhat is held, and what can be done\n",
			instance.Command(d.Name, "get networks -o wide"))
		fmt.Fprintf(next, "  %s\ttake it into this store\n", instance.Command(d.Name, "recover --from-nodes"))
		fmt.Fprintf(next, "  %s\tput a backup in the place of this store\n", instance.Command(d.Name, "restore FILE"))
		fmt.Fprintf(next, "  %s\tlet one network go\n", instance.Command(d.Name, "delete NET"))
	case elements > 0:
		fmt.Fprintf(next, "  %s\twhat runs here\n", instance.Command(d.Name, "get networks"))
	default:
		fmt.Fprintf(next, "  polyplane example duo > duo.yaml\tan eight-line network to begin with\n")
		fmt.Fprintf(next, "  %s\tmake it so\n", instance.Command(d.Name, "apply -f duo.yaml"))
	}
	if len(s.Listen) > 0 && !s.simulated() {
		fmt.Fprintf(next, "  %s\tlet another host join\n", instance.Command(d.Name, "token create"))
	}
	fmt.Fprintf(next, "  %s\tend everything; `up` comes back to it\n", instance.Command(d.Name, "down"))
}

// tellDamaged tells of networks whose records the store cannot read, and what can be done about each.
func tellDamaged(w io.Writer, networks []model.NetworkStatus) {
	for _, n := range networks {
		if n.Damaged {
			fmt.Fprintf(w, "\nThe store is damaged where it has network %s: %s.\n", n.Name, n.Message)
		}
	}
}

// cores writes thousandths of a core in cores.
func cores(c model.CPU) string { return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) }

// size writes bytes in the largest fitting unit, to one decimal.
func size(b model.Bytes) string {
	v, unit := float64(b)/(1<<20), "MiB"
	if b >= 1<<30 {
		v, unit = float64(b)/(1<<30), "GiB"
	}
	return strconv.FormatFloat(float64(int(v*10))/10, 'f', -1, 64) + unit
}
