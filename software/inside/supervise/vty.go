package main

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"time"
)

// vty is a connection to the socket by which a daemon of FRR is configured. A command is a line that ends in a NUL. The
// answer is words, three NULs, and a byte that says how it went.
type vty struct {
	fd      int
	pending []byte // commands that were not sent yet
	count   int    // of them
}

// mostSaid is how many bytes of an answer are read.
const mostSaid = 1 << 20

// patience is how long a daemon is waited for that does not take a command, or does not answer.
const patience = time.Minute

// openVTY connects to a daemon. The patience bounds the wait for that, and for each part of its answers.
func openVTY(path string, patience time.Duration) (*vty, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	v := &vty{fd: fd}
	if err := v.wait(patience); err != nil {
		v.close()
		return nil, err
	}
	if err := again(func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}) }); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// wait bounds all waits from now on.
func (v *vty) wait(patience time.Duration) error {
	limit := syscall.NsecToTimeval(int64(patience))
	for _, which := range []int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} {
		if err := syscall.SetsockoptTimeval(v.fd, syscall.SOL_SOCKET, which, &limit); err != nil {
			return err
		}
	}
	return nil
}

func (v *vty) close() {
	if v != nil {
		syscall.Close(v.fd)
	}
}

// again does something until no signal interrupts it.
func again(do func() error) error {
	for {
		switch err := do(); err {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return errSilent
		default:
			return err
		}
	}
}

var errSilent = errors.New("it does not answer")

// atOnce is how many bytes of commands are sent before their answers are read. So nobody waits for the other with both
// sockets full, and a daemon is woken once for many commands.
const atOnce = 2048

// ask sends a command, and returns what was said.
func (v *vty) ask(command string) (said string, err error) {
	if err := v.send(append([]byte(command), 0)); err != nil {
		return "", err
	}
	words, err := v.answers(1, mostSaid)
	return string(words), err
}

// put sends commands when there are enough of them, or flush is called. It fails where any that was sent did.
func (v *vty) put(command string) error {
	if v.count > 0 && len(v.pending)+len(command) >= atOnce {
		if err := v.flush(); err != nil {
			return err
		}
	}
	v.pending = append(append(v.pending, command...), 0)
	v.count++
	return nil
}

func (v *vty) flush() error {
	data, count := v.pending, v.count
	v.pending, v.count = v.pending[:0], 0
	if err := v.send(data); err != nil {
		return err
	}
	_, err := v.answers(count, mostSaid)
	return err
}

func (v *vty) send(data []byte) error {
	for len(data) > 0 {
		n := 0
		err := again(func() (err error) { n, err = syscall.Write(v.fd, data); return err })
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

var errRefused = errors.New("it was refused")

// answers reads as many answers, and at most so many bytes.
func (v *vty) answers(count, most int) (words []byte, err error) {
	var got []byte
	part := make([]byte, 4096)
	failed := false
	for all := 0; count > 0; {
		if i := bytes.IndexByte(got, 0); i >= 0 && i+4 <= len(got) {
			if got[i+1] != 0 || got[i+2] != 0 {
				return words, errors.New("it is no answer")
			}
			words, failed = append(words, got[:i]...), failed || got[i+3] != 0
			got = got[i+4:]
			count--
			continue
		}
		n := 0
		if err := again(func() (err error) { n, err = syscall.Read(v.fd, part); return err }); err != nil {
			return words, err
		}
		if n == 0 {
			return words, errors.New("it hung up")
		}
		if all += n; all > most {
			return words, errors.New("it says too much")
		}
		got = append(got, part[:n]...)
	}
	if failed {
		return words, errRefused
	}
	return words, nil
}

// These have the same commands.
const (
	common     = "zebra ripd ripngd ospfd ospf6d isisd babeld pimd pim6d nhrpd eigrpd pbrd fabricd vrrpd"
	interfaces = common + " bgpd"
	vrfs       = common + " staticd"
	lists      = interfaces + " ldpd bfdd"
	maps       = "zebra bgpd ripd ripngd ospfd ospf6d isisd pimd eigrpd fabricd"
	everybody  = lists + " staticd pathd"
)

// A rule says who takes lines of a form, in which * stands for any word, and ... for one or more of them. Such a line
// may begin a block, with rules of its own.
type rule struct {
	form  []string
	who   string
	block *block
}

type block struct {
	end   string
	rules []rule
}

func (b *block) put(form, who string, begins *block) {
	b.rules = append(b.rules, rule{strings.Fields(form), who, begins})
}

func blockOf(who string, forms ...string) *block {
	b := &block{end: "exit"}
	for _, form := range forms {
		b.put(form, who, nil)
	}
	return b
}

// generated is how configurations are that package software generates. Whatever is written otherwise is left to vtysh.
// All these lines go to the daemons to which it gives them in FRR 8.4: a test compares that.
func generated() *block {
	var top block
	routes := func(b *block) {
		for _, family := range []string{"ip", "ipv6"} {
			b.put(family+" route * ...", "staticd", nil)
		}
	}
	top.put("frr defaults traditional", everybody, nil)
	top.put("hostname *", "", nil) // vtysh's own
	top.put("log file * notifications", everybody, nil)
	top.put("service integrated-vtysh-config", "", nil)
	top.put("zebra dplane limit *", "zebra", nil)
	routes(&top)
	vrf := &block{end: "exit-vrf"}
	routes(vrf)
	top.put("vrf *", vrfs, vrf)
	profile := blockOf("bfdd", "detect-multiplier *", "transmit-interval *", "receive-interval *")
	profiles := &block{end: "exit"}
	profiles.put("profile *", "bfdd", profile)
	top.put("bfd", "bfdd", profiles)

	at := &block{end: "exit"}
	top.put("interface *", interfaces, at)
	for words, who := range map[string]string{"ip ospf": "ospfd", "ipv6 ospf6": "ospf6d"} {
		for _, what := range []string{"area *", "passive", "hello-interval *", "dead-interval *",
			"retransmit-interval *", "bfd", "bfd profile *", "network point-to-point", "cost *"} {
			at.put(words+" "+what, who, nil)
		}
	}
	for _, form := range []string{"ip router isis *", "ipv6 router isis *", "isis passive", "isis hello-interval *",
		"isis hello-multiplier *", "no isis hello padding", "isis bfd", "isis bfd profile *",
		"isis network point-to-point", "isis metric *"} {
		at.put(form, "isisd", nil)
	}
	for _, form := range []string{"vrrp * version 3", "vrrp * priority *", "vrrp * advertisement-interval *",
		"vrrp * ip *", "no vrrp * preempt"} {
		at.put(form, "vrrpd", nil)
	}

	for name, who := range map[string]string{"ospf": "ospfd", "ospf6": "ospf6d"} {
		b := blockOf(who, name+" router-id *", "timers lsa min-arrival *", "timers throttle spf * * *",
			"maximum-paths *", "redistribute *", "default-information originate")
		if name == "ospf" {
			b.put("timers throttle lsa all *", who, nil)
			b.put("no proactive-arp", who, nil)
		}
		top.put("router "+name, who, b)
		top.put("router "+name+" vrf *", who, b)
	}
	top.put("router isis *", "isisd", blockOf("isisd", "net *", "is-type *", "metric-style wide",
		"default-information originate * *", "lsp-gen-interval *", "spf-interval *",
		"spf-delay-ietf init-delay * short-delay * long-delay * holddown * time-to-learn *"))
	bgp := blockOf("bgpd", "bgp router-id *", "bgp log-neighbor-changes", "no bgp ebgp-requires-policy",
		"no bgp default ipv4-unicast", "no bgp network import-check", "bgp bestpath as-path multipath-relax",
		"timers bgp * *", "neighbor * interface v6only remote-as *", "neighbor * remote-as *",
		"neighbor * description *", "neighbor * timers connect *", "neighbor * advertisement-interval *",
		"neighbor * bfd", "neighbor * bfd profile *", "neighbor * update-source *", "neighbor * ebgp-multihop",
		"neighbor * capability extended-nexthop")
	family := blockOf("bgpd", "network *", "neighbor * activate", "neighbor * next-hop-self",
		"neighbor * route-reflector-client", "neighbor * route-map * in", "neighbor * route-map * out",
		"neighbor * default-originate", "maximum-paths *", "maximum-paths ibgp *")
	family.end = "exit-address-family"
	bgp.put("address-family * unicast", "bgpd", family)
	top.put("router bgp *", "bgpd", bgp)
	for _, name := range []string{"rip", "ripng"} {
		top.put("router "+name, name+"d", blockOf(name+"d", "timers basic * * *", "allow-ecmp", "network *",
			"passive-interface *", "redistribute *", "default-information originate"))
	}
	for _, form := range []string{"* seq * permit *", "* seq * permit * ge *", "* seq * permit * le *",
		"* seq * permit * ge * le *"} {
		top.put("ip prefix-list "+form, lists, nil)
		top.put("ipv6 prefix-list "+form, lists, nil)
	}
	top.put("bgp community-list standard * seq * permit ...", "bgpd", nil)
	entry := blockOf(maps, "match ip address prefix-list *", "match ipv6 address prefix-list *", "set metric *")
	entry.put("set src *", "zebra", nil)
	for _, form := range []string{"match community *", "set community ...", "set comm-list * delete",
		"set local-preference *", "set as-path prepend ..."} {
		entry.put(form, "bgpd", nil)
	}
	top.put("route-map * * *", maps, entry)
	top.put("ip protocol bgp route-map *", "zebra", nil)
	top.put("ipv6 protocol bgp route-map *", "zebra", nil)
	return &top
}

// mostLine is how long a line of a configuration is at most that goes to daemons without vtysh. FRR's daemons take
// commands into a buffer of 4096 bytes. A line that fills it is taken without its end, and is never answered; the rest
// of a longer one is run as a command of its own.
const mostLine = 3500

// sharer says who takes which line of a configuration.
type sharer struct {
	at    []inside
	ended bool
}

type inside struct {
	*block
	who string
}

func newSharer() *sharer { return &sharer{at: []inside{{block: generated()}}} }

// whole tells whether the configuration is at its end.
func (s *sharer) whole() bool { return s.ended && len(s.at) == 1 }

// take says who takes the next line, with spaces between the programs; false where that is not known.
func (s *sharer) take(text string) (who string, known bool) {
	if len(text) > mostLine {
		return "", false
	}
	words := strings.Fields(text)
	plain := strings.Join(words, " ")
	if plain == "" || plain == "!" {
		return "", true
	}
	in, depth := s.at[len(s.at)-1], len(s.at)-1
	ends := depth > 0 && plain == in.end
	if ends {
		depth--
	}
	switch {
	case s.ended || text != strings.Repeat(" ", depth)+plain:
		return "", false
	case ends:
		s.at = s.at[:len(s.at)-1]
		return in.who, true
	case depth == 0 && plain == "end":
		s.ended = true
		return "", true
	}
	r := in.find(words)
	if r == nil {
		return "", false
	}
	if r.block != nil {
		s.at = append(s.at, inside{r.block, r.who})
	}
	return r.who, true
}

func (b *block) find(words []string) *rule {
	for i := range b.rules {
		if b.rules[i].fits(words) {
			return &b.rules[i]
		}
	}
	return nil
}

func (r *rule) fits(words []string) bool {
	form, last := r.form, len(r.form)-1
	if form[last] == "..." && len(words) > last {
		form = append([]string(nil), form...)
		for form[last] = "*"; len(form) < len(words); {
			form = append(form, "*")
		}
	}
	if len(form) != len(words) {
		return false
	}
	for i, w := range words {
		if form[i] != w && (form[i] != "*" || strings.Trim(w, wordLetters) != "") {
			return false
		}
	}
	return true
}

const wordLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/_-"

// give sends daemons the lines of a configuration that are theirs, as vtysh does. It returns the hash of what it read,
// and fails where a daemon does not take all. It sends while it reads.
func give(path string, some []*daemon) (hash string, err error) {
	each := func(commands ...string) {
		for _, d := range some {
			for _, command := range commands {
				if err == nil {
					err = d.vty.put(command)
				}
			}
		}
	}
	each("enable", "configure terminal", "XFRR_start_configuration")
	s := newSharer()
	hash, misfit := eachLine(path, func(text []byte) {
		if err != nil {
			return
		}
		who, known := s.take(string(text))
		if !known {
			err = errors.New("it was written meanwhile")
		}
		for _, d := range some {
			if err == nil && takes(who, d.program) {
				err = d.vty.put(string(text) + "\n")
			}
		}
	})
	if misfit != "" {
		err = errors.New(misfit)
	}
	each("XFRR_end_configuration", "end", "disable")
	for _, d := range some {
		if err == nil {
			err = d.vty.flush()
		}
	}
	return hash, err
}

// takes tells whether a program is among those that are named.
func takes(who, program string) bool {
	for who != "" {
		var name string
		if name, who, _ = strings.Cut(who, " "); name == program {
			return true
		}
	}
	return false
}
