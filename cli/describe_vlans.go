package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// vlans shows which VLANs an element's interfaces carry, if any carries some.
func (s *sheet) vlans(e *model.ResolvedElement) {
	t := table{head: []string{"INTERFACE", "VLAN WITHOUT TAG", "WITH TAG"}}
	for i := range e.Interfaces {
		ifc := &e.Interfaces[i]
		if !ifc.HasVLANs() {
			continue
		}
		untagged := ""
		if ifc.Untagged != 0 {
			untagged = strconv.Itoa(ifc.Untagged)
		}
		t.add(texts(ifc.Name, untagged, spaced(ifc.Tagged))...)
	}
	s.table("VLANs", t)
}

// spaced is a list of VLANs for people.
func spaced(v model.VLANs) string { return strings.ReplaceAll(string(v), ",", ", ") }

// vlansText says which VLANs an interface carries, or of which it is.
func vlansText(i *model.ResolvedInterface) string {
	var words []string
	if i.VLAN != 0 {
		words = append(words, fmt.Sprintf("%d, on %s", i.VLAN, i.On))
	}
	if i.Untagged != 0 {
		words = append(words, fmt.Sprintf("%d without a tag", i.Untagged))
	}
	if i.Tagged != "" {
		words = append(words, spaced(i.Tagged)+" with a tag")
	}
	return strings.Join(words, "; ")
}
