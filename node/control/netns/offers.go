package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// program is a program that the driver calls, and the Debian package that contains it. scripts/setup lists each
// package.
type program struct{ name, pkg string }

var (
	forNamespaces = []program{{"nsenter", "util-linux"}}
	forContainers = []program{{"runc", "runc"}, {"tini", "tini"}, {"mkfs.ext4", "e2fsprogs"},
		{"resize2fs", "e2fsprogs"}}
)

// Offers are elements of all kinds, with the routing software that this machine has: containers use the machine's
// files.
func (d *Driver) Offers(context.Context) model.Offers {
	o := model.OfferOf(model.ControlNetns.Feature(), probeNamespaces())
	if len(o.Lacks()) > 0 {
		return o
	}
	o[0].Lacks = map[model.Feature]string{}
	containers := probeContainers()
	if containers == nil {
		o[0].Makes = append(o[0].Makes, model.FeatureRun, model.FeatureFiles, model.FeatureTrees)
	} else {
		for _, f := range []model.Feature{model.FeatureRun, model.FeatureFiles, model.FeatureTrees} {
			o[0].Lacks[f] = containers.Error()
		}
	}
	if err := cmp.Or(containers, linux.ProbeIDMappedLayers()); err != nil {
		o[0].Lacks[model.FeatureImage] = err.Error()
	} else {
		o[0].Makes = append(o[0].Makes, model.FeatureImage)
	}
	if err := vlanDevices(); err != nil {
		o[0].Lacks[model.FeatureVLANs] = err.Error()
	} else {
		o[0].Makes = append(o[0].Makes, model.FeatureVLANs)
	}
	if err := vrfDevices(); err != nil {
		o[0].Lacks[model.FeatureVRF] = err.Error()
	} else {
		o[0].Makes = append(o[0].Makes, model.FeatureVRF)
	}
	for _, s := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
		err := containers
		for _, r := range software.Requires(s) {
			if _, missing := os.Stat(r.Path); missing != nil && err == nil {
				err = fmt.Errorf("%s is missing: install the package %s", r.Path, r.Package)
			}
		}
		if err != nil {
			o[0].Lacks[s.Feature()] = err.Error()
			continue
		}
		o[0].Makes = append(o[0].Makes, s.Feature())
	}
	if why := o[0].Lacks[model.SoftwareFRR.Feature()]; why != "" {
		o[0].Lacks[model.FeatureVRRP] = why
	} else if err := cmp.Or(hasVRRP(), macvlan()); err != nil {
		o[0].Lacks[model.FeatureVRRP] = err.Error()
	} else {
		o[0].Makes = append(o[0].Makes, model.FeatureVRRP)
	}
	if err := mpls(); err != nil {
		o[0].Lacks[model.FeatureMPLS] = err.Error()
	} else {
		o[0].Makes = append(o[0].Makes, model.FeatureMPLS)
	}
	return o
}

// mpls says why this machine's kernel switches no labels, if it does not.
var mpls = sync.OnceValue(linux.ProbeMPLS)

// macvlan says why this machine's kernel has no such devices, if it has none. That does not change while it runs.
var macvlan = sync.OnceValue(linux.ProbeMacvlan)

// hasVRRP finds out whether this machine's FRR speaks VRRP.
func hasVRRP() error {
	const vrrpd = "/usr/lib/frr/vrrpd"
	if _, err := os.Stat(vrrpd); err != nil {
		return fmt.Errorf("%s is missing: install the package frr", vrrpd)
	}
	return nil
}

// vlanDevices says why this machine's kernel makes none, if it makes none. That does not change while it runs.
var vlanDevices = sync.OnceValue(linux.ProbeVLANs)

// vrfDevices says why this machine's kernel has none, if it has none. That does not change while it runs.
var vrfDevices = sync.OnceValue(linux.ProbeVRF)

// probeNamespaces finds out what is missing for elements without processes.
func probeNamespaces() error {
	if unix.Geteuid() != 0 {
		return errors.New("namespaces need root")
	}
	if err := installed(forNamespaces); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("this kernel makes no network namespaces: %w", err)
		}
		return nil
	})
}

// probeContainers finds out what else is missing for elements with processes.
func probeContainers() error {
	if err := installed(forContainers); err != nil {
		return err
	}
	return linux.ProbeLoop()
}

func installed(programs []program) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			return fmt.Errorf("the program %s is missing: install the package %s", p.name, p.pkg)
		}
	}
	return nil
}
