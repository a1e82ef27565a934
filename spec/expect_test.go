package spec

import (
	"strings"
	"testing"
)

func TestExpectations(t *testing.T) {
	for text, want := range map[string]string{ // the sentence that is written back; or a part of what is wrong
		"h1 reaches h2":                      "h1 reaches h2",
		"h1  does not reach h2 over IPv6":    "h1 does not reach h2 over ipv6",
		"no reaches route":                   "no reaches route",
		"r1 ospf neighbor r2":                "r1 ospf neighbor r2 full",
		"r1 ospf neighbour r2 2-Way":         "r1 ospf neighbor r2 2-way",
		"r1 no ospf6 neighbor r2":            "r1 no ospf6 neighbor r2 full",
		"r1 isis neighbor r2 up":             "r1 isis neighbor r2 up",
		"r1 bgp neighbor r2 over ipv4":       "r1 bgp neighbor r2 established over ipv4",
		"r1 bgp route 10.0.0.0/8 via r2":     "r1 bgp route 10.0.0.0/8 via r2",
		"r1 no route 2001:db8::/32":          "r1 no route 2001:db8::/32",
		"r1 route 0.0.0.0/0 via 192.0.2.1":   "r1 route 0.0.0.0/0 via 192.0.2.1",
		"s1 stp root":                        "s1 stp root",
		"s1 stp root s1":                     "s1 stp root",
		"s2 no stp root s3":                  "s2 no stp root s3",
		"s2 stp port s3 Blocking":            "s2 stp port s3 blocking",
		"s2 no stp port s3.2 root":           "s2 no stp port s3.2 root",
		"s2 stp port s3":                     "!what shall the port be: write s2 stp port s3 forwarding, blocking",
		"s2 stp port s3 learning":            "!cannot be expected to be learning; there is forwarding, blocking",
		"s2 stp neighbor s3":                 "!is no expectation",
		"s2 stp root s1 s3":                  "!is no expectation",
		"s2 stp root over ipv4":              "!has no address family",
		"ospf ospf route 10.0.0.0/8":         "ospf ospf route 10.0.0.0/8",
		"r1 vrrp Master":                     "r1 vrrp master",
		"r1 no vrrp backup of 10.0.0.254":    "r1 no vrrp backup of 10.0.0.254",
		"r1 vrrp":                            "!is no expectation",
		"r1 vrrp slave":                      "!VRRP has no state slave that could be expected; there is master or backup",
		"r1 vrrp master of":                  "!write r1 vrrp master, or r1 vrrp backup of 10.0.0.254",
		"r1 vrrp master of r2":               "!is no address",
		"r1 vrrp master over ipv4":           "!leave over out",
		"h1":                                 "!is no expectation",
		"r1 bgp neighbor":                    "!is no expectation",
		"r1 no":                              "!is no expectation",
		"r1 no ospf":                         "!is no expectation",
		"r1 ospf neighbor r2 full yes":       "!is no expectation",
		"r1 babel route 10.0.0.0/8":          "!is no expectation",
		"r1 route 10.0.0.0/8 by r2":          "!is no expectation",
		"r1 neighbor r2":                     "!whose neighbour: write r1 ospf neighbor r2",
		"r1 rip neighbor r2":                 "!rip has no neighbours",
		"r1 bgp neighbor r2 full":            "!BGP has no state full that could be expected; there is established",
		"r1 ospf neighbor r2 over ipv4":      "!OSPF has one family",
		"r1 route 10.0.0.0/8 over ipv4":      "!leave over out",
		"r1 route 10.0.0.0":                  "!write it like 10.0.0.0/24",
		"r1 route 10.0.0.1/8":                "!its prefix is 10.0.0.0/8",
		"r1 ospf route 2001:db8::/32":        "!ospf carries no IPv6; ospf6 does",
		"r1 ospf6 route 10.0.0.0/8":          "!ospf6 carries no IPv4; ospf does",
		"h1 reaches h2 over ipx":             "!over is followed by ipv4 or ipv6",
		"r1 bgp neighbor r2 over ipv6 never": "!is no expectation",
	} {
		e, err := parseExpect(text)
		wrong, refused := strings.CutPrefix(want, "!")
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%q: got %v, want %q", text, err, wrong)
		case !refused && (err != nil || e.String() != want):
			t.Errorf("%q is read as %q, %v", text, e.String(), err)
		case !refused:
			if again, err := parseExpect(e.String()); err != nil || again != e {
				t.Errorf("%q is read again as %+v, %v, want %+v", e.String(), again, err, e)
			}
		}
	}
}
