package edge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// rules are the nftables tables of one network namespace, with a note of what was written there: the tables' digests,
// and the generation of the rule set after the last writing. While the kernel's generation is that one, nobody else has
// written, and nothing needs to be looked at. When somebody has, the note is void, and everyone who has a table there
// writes it again. In the outlet these may be several agents.
type rules struct {
	file string
	own  map[string]string // digests of the tables that this process applied, by name
}

// rulesNote is the note's form on disk. The file lies beside the namespace, since the agents of several nodes write
// rules into the outlet.
type rulesNote struct {
	Generation uint32            `json:"generation"`
	Tables     map[string]string `json:"tables"` // digests by family and name, "inet polyplane"
}

func openRules(file string) rules { return rules{file, map[string]string{}} }

func (r rules) read() rulesNote {
	var n rulesNote
	if b, err := os.ReadFile(r.file); err != nil || json.Unmarshal(b, &n) != nil || n.Tables == nil {
		n = rulesNote{Tables: map[string]string{}}
	}
	return n
}

// current tells whether what this process applied is in force: nobody has written rules in the namespace since they
// were last applied, and whoever applied them found this process's tables there.
func (r rules) current(fd int) bool {
	g, err := generation(fd)
	note := r.read()
	if err != nil || g != note.Generation {
		return false
	}
	for name, is := range r.own {
		if note.Tables[name] != is {
			return false
		}
	}
	return true
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// apply makes these tables, by family and name, and removes those whose text is empty. It leaves others alone, and does
// not touch what is right. All changes happen in one step, and connections that are under way go on.
func (r rules) apply(fd int, tables map[string]string) error {
	note := r.read()
	g, err := generation(fd)
	if err != nil {
		return err
	}
	if g != note.Generation {
		note.Tables = map[string]string{}
	}
	var script strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		text := tables[name]
		if is, known := note.Tables[name]; text == "" && g == note.Generation && !known || text != "" &&
			is == digest(text) {
			continue
		}
		// Made first, so that there is something to delete.
		fmt.Fprintf(&script, "table %s\ndelete table %s\n", name, name)
		if text == "" {
			delete(note.Tables, name)
			continue
		}
		fmt.Fprintf(&script, "table %s {\n%s}\n", name, text)
		note.Tables[name] = digest(text)
	}
	if script.Len() == 0 {
		r.keep(tables)
		return nil
	}
	if err := nft(fd, script.String()); err != nil {
		return err
	}
	if note.Generation, err = generation(fd); err != nil {
		return err
	}
	b, err := json.Marshal(note)
	if err != nil {
		return err
	}
	r.keep(tables)
	return os.WriteFile(r.file, b, 0o600)
}

// keep notes what this process has applied.
func (r rules) keep(tables map[string]string) {
	for name, text := range tables {
		if text == "" {
			delete(r.own, name)
		} else {
			r.own[name] = digest(text)
		}
	}
}

// nft lets nft(8) carry out a script in a namespace: all of it or nothing.
func nft(fd int, script string) error {
	var said bytes.Buffer
	err := linux.Inside(fd, func() error { return runNFT(script, &said) })
	if err != nil && said.Len() > 0 {
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		err = errors.New(line)
	}
	if err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	return nil
}

func runNFT(script string, said *bytes.Buffer) error {
	c := exec.Command("nft", "-f", "-")
	c.Stdin, c.Stderr = strings.NewReader(script), said
	return c.Run()
}

// Numbers of linux/netfilter/nf_tables.h.
const (
	nftGetGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN
	nftNewGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	nftGenerationID  = 1
	sizeofNfgenmsg   = 4
)

// generation returns the number of a namespace's rule set, which grows with every change.
func generation(fd int) (g uint32, err error) {
	err = linux.Inside(fd, func() error {
		request := nl.NewNetlinkRequest(nftGetGeneration, 0)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: 0})
		messages, err := request.Execute(unix.NETLINK_NETFILTER, nftNewGeneration)
		if err != nil {
			return fmt.Errorf("ask for the generation of the rules: %w", err)
		}
		for _, m := range messages {
			if len(m) < sizeofNfgenmsg {
				continue
			}
			for kind, value := range linux.Attrs(m[sizeofNfgenmsg:]) {
				if kind == nftGenerationID && len(value) >= 4 {
					g = binary.BigEndian.Uint32(value)
					return nil
				}
			}
		}
		return errors.New("ask for the generation of the rules: the kernel did not say")
	})
	return g, err
}

// Offers returns internet edges, if the machine can have them.
func (d *Driver) Offers(context.Context) model.Offers {
	return model.OfferOf(model.FeatureInternet, Probe())
}

// Probe tells in words why this machine cannot have internet edges; nil if it can. It tries, in a network namespace
// that it removes at once.
func Probe() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("it has no nft: install nftables")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		var said bytes.Buffer
		in, s := probed()
		script := "table inet try {\n" + gatewayRules(in, s) + "}\ntable arp try {\n" + gatewayARP(in) +
			"}\ntable inet out {\n" + outletRules(&sight{low: 61000, high: 61001, uplinks: probedUplinks()}) + "}\n"
		if err := runNFT(script, &said); err != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
			done <- fmt.Errorf("its kernel has no NAT, or its nft is too old: %s", line)
			return
		}
		done <- nil
	}()
	return <-done
}
