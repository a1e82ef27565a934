package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Undone lists, a line each, what was decided since the backup was made and what the backup takes back when it comes in
// the place of the store: nodes that were removed, owners, quotas, elements that were cut off, networks that were
// deleted. now is a backup of that store. What is damaged in one of the two is left out.
func (b *Backup) Undone(now *Backup) []string {
	var out []string
	then, since := b.decided(), now.decided()
	called := model.Asker{}.Among(nil) // by owners and titles: keys with numbers say nothing to people
	for _, of := range []decided{since, then} {
		for name := range of.records {
			r := of.records[name]
			called.Add(r.NetworkName())
		}
	}
	tell := func(what string, names []string) {
		if len(names) > 0 {
			for i := range names {
				names[i] = called.Told(names[i])
			}
			slices.Sort(names)
			out = append(out, what+": "+strings.Join(names, ", "))
		}
	}

	tell("Nodes that were removed since are members again", missing(then.members, since.members))
	var back, given []string
	for name, was := range then.records {
		is, there := since.records[name]
		switch {
		case !there && !slices.Contains(now.Lacks, name):
			back = append(back, name)
		case there && was.WhoseItIs() != is.WhoseItIs():
			given = append(given, fmt.Sprintf("%s (now %s, before %s)", name, whose(&was), whose(&is)))
		}
	}
	tell("Networks that were deleted since are back", back)
	tell("Networks that have their earlier owner again", given)
	tell("Quotas that are as they were", slices.Concat(changed("owner", then.quotas.Owners, since.quotas.Owners),
		changed("network", then.quotas.Networks, since.quotas.Networks)))
	tell("Elements that were cut off since and no longer are", missing(since.cut, then.cut))
	tell("Policies for attacks that were set since and are gone", missing(since.policies, then.policies))
	return out
}

// decided is what a backup has of what people have decided. The keys of the sets are words for people.
type decided struct {
	members, cut, policies map[string]bool
	records                map[string]model.Record
	quotas                 model.Quotas
}

// decided reads it from the records and documents in the backup.
func (b *Backup) decided() decided {
	d := decided{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]model.Record{}, model.Quotas{}}
	var access model.Access
	b.document(accessDocument, &access)
	for _, m := range access.Members {
		d.members[m.Name] = true
	}
	b.document(quotasDocument, &d.quotas)
	for _, name := range b.Networks {
		r, err := recordIn(b.Keys, name)
		if err != nil || r.Deleting {
			continue
		}
		d.records[name] = r
		for element, o := range r.Overrides {
			if o.Quarantined {
				d.cut[name+"/"+element] = true
			}
		}
		for element, policy := range r.Policies {
			d.policies[strings.TrimSuffix(name+"/"+element, "/")+" "+string(policy)] = true
		}
	}
	for key := range b.Keys {
		var all []model.Restraint
		if !strings.HasPrefix(key, documentKeys+restraintsDocument) ||
			!b.document(strings.TrimPrefix(key, documentKeys), &all) {
			continue
		}
		for _, r := range all {
			if r.Quarantined {
				d.cut[r.ID.String()] = true
			}
			if r.Attack != "" {
				d.policies[strings.TrimSuffix(r.ID.String(), "/")+" "+string(r.Attack)] = true
			}
		}
	}
	return d
}

// document reads one of the backup's documents. It returns false where that is not there, or is damaged: the store
// that is made of the backup says what is wrong.
func (b *Backup) document(name string, out any) bool {
	value, there := b.Keys[documentKeys+name]
	return there && decodeDocument(name, value, out) == nil
}

// missing are the names in the first set that are not in the second.
func missing(of, in map[string]bool) []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(of)), func(name string) bool { return in[name] })
}

// changed describes the quotas that differ: what counts again, and what counted before.
func changed(kind string, then, since map[string]model.Quota) []string {
	names := maps.Clone(then)
	if names == nil {
		names = map[string]model.Quota{}
	}
	maps.Copy(names, since)
	var out []string
	for name := range names {
		if was, is := then[name], since[name]; was != is {
			out = append(out, fmt.Sprintf("%s %s (now %s, before %s)", kind, name, bounds(was), bounds(is)))
		}
	}
	return out
}

func bounds(q model.Quota) string {
	if q == (model.Quota{}) {
		return "none of its own"
	}
	text, err := json.Marshal(q)
	if err != nil {
		return "?" // it has numbers alone
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`{}"`, r) {
			return -1
		}
		return r
	}, strings.ReplaceAll(string(text), ",", " "))
}

func whose(r *model.Record) string {
	if owner := r.WhoseItIs(); owner != "" {
		return owner
	}
	return "nobody's"
}
