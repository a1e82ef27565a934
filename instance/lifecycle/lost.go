package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// remembered are the settings that `up` comes back to. Where the file is lost, or cannot be read, and nodes have left
// something, those of the newest good backup count; whole tells that it was not so.
func (u *Up) remembered() (s settings, remembered, whole bool, err error) {
	d := u.Dirs
	s, remembered, damaged := readSettings(d)
	if damaged == nil && (remembered || len(left(d)) == 0) {
		return s, remembered, true, nil
	}
	file := settingsFile(d)
	if _, backup := store.NewestGood(d.Backups()); backup != nil {
		s = settings{}
		if b := backup.Files[instance.SettingsFile]; b != nil && json.Unmarshal(b, &s) == nil {
			u.say("%s was lost. Those of the backup of %s count: %s.", file,
				backup.Time.Local().Format(time.DateTime), s.describe())
			return s, true, false, nil
		}
	}
	if damaged != nil {
		return settings{}, false, false, &RefusedError{fmt.Sprintf("%v. Nothing was changed, and what runs goes on "+
			"running. There is no good backup in %s; one from elsewhere puts it back (`%s`). Without one, put the "+
			"file aside (`mv %s %s.damaged`), and say what it said (such as `%s`)", damaged, d.Backups(),
			instance.Command(d.Name, "restore FILE"), file, file, instance.Command(d.Name, "up --nodes 2"))}
	}
	return settings{}, false, false, nil
}

// left are the nodes of which there is something, by name: data, or networks that run.
func left(d instance.Dirs) (nodes []string) {
	data, _ := filepath.Glob(filepath.Join(d.Data, "nodes", "*", "*")) // it fails for wrong patterns only
	nodes = append(nodes, each.Of(data, func(path string) string { return filepath.Base(filepath.Dir(path)) })...)
	running, _ := filepath.Glob(filepath.Join(d.Run, "nodes", "*", "networks", "*"))
	for _, path := range running {
		nodes = append(nodes, filepath.Base(filepath.Dir(filepath.Dir(path))))
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// checkLost refuses to begin anew over what there is of an instance whose settings are lost. Lost is not empty: next
// must have every node of which there is something, and what nodes run must have its data.
func checkLost(d instance.Dirs, next settings) error {
	var gone, bare []string
	for _, name := range left(d) {
		n := d.Node(name)
		if entries, err := os.ReadDir(n.Data); err != nil || len(entries) == 0 {
			bare = append(bare, name)
		}
		if !slices.ContainsFunc(next.Substrate.Nodes, func(x model.SubstrateNode) bool { return x.Name == name }) {
			gone = append(gone, name)
		}
	}
	switch {
	case len(bare) > 0:
		return &RefusedError{fmt.Sprintf("polyplane '%s' has networks that run on %s, and %s has neither its settings "+
			"nor data of these: is the disk that it was on mounted? Nothing was changed. Mount it, and start again; "+
			"or `%s` ends what runs", d.Name, nodesNamed(bare), d.Data, instance.Command(d.Name, "down"))}
	case len(gone) > 0:
		return &RefusedError{fmt.Sprintf("polyplane '%s' has lost its settings (%s), and with what you ask for (%s), "+
			"%s, of which there are data, would go. Nothing was changed, and what runs goes on running. Say what it "+
			"was, such as `%s` or `%s`; a backup from elsewhere puts the settings back as well (`%s`); `%s` deletes "+
			"everything", d.Name, settingsFile(d), next.describe(), nodesNamed(gone),
			instance.Command(d.Name, fmt.Sprintf("up --nodes %d", max(2, len(left(d))))),
			instance.Command(d.Name, "up --substrate FILE"), instance.Command(d.Name, "restore FILE"),
			instance.Command(d.Name, "down --purge"))}
	}
	return nil
}

func nodesNamed(names []string) string { return "node " + strings.Join(names, ", node ") }

// keepAuthority puts a certificate authority that is lost or damaged back from the newest good backup, before a start
// makes a new one: whoever joined or logged in trusts the old one. Without a backup it says what that means. It is for
// instances that have served others before: the first that does makes its authority.
func (u *Up) keepAuthority() error {
	file := filepath.Join(u.Dirs.Data, instance.AuthorityFile)
	authority, damaged := trust.ReadAuthority(filepath.Dir(file))
	if authority != nil {
		return nil
	}
	_, backup := store.NewestGood(u.Dirs.Backups())
	switch {
	case backup != nil && backup.Files[instance.AuthorityFile] != nil:
	case damaged != nil:
		return nil // the manager says what is wrong
	default:
		u.say("%s was lost, and no backup has it. A new authority is made: whoever joined or logged in has to do so "+
			"again.", file)
		return nil
	}
	u.say("%s was lost. It was put back from the backup of %s.", file, backup.Time.Local().Format(time.DateTime))
	return putBack(file, backup.Files[instance.AuthorityFile])
}
