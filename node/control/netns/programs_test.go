package netns

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// TestSetupInstallsEveryProgram: what is part of every Debian today may be a package of its own in the next.
func TestSetupInstallsEveryProgram(t *testing.T) {
	const file = "../../../scripts/setup"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^run_packages=\((.*)\)$`).FindSubmatch(text)
	if list == nil {
		t.Fatalf("%s has no run_packages=(…) on one line", file)
	}
	installed := strings.Fields(string(list[1]))
	programs := slices.Concat(forNamespaces, forContainers)
	for _, s := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
		for _, r := range software.Requires(s) {
			programs = append(programs, program{r.Path, r.Package})
		}
	}
	for _, program := range programs {
		if !slices.Contains(installed, program.pkg) {
			t.Errorf("%s installs %v: without %s, which brings %s", file, installed, program.pkg, program.name)
		}
	}
}

// TestOffersWithoutPrograms: a machine makes what it has the programs for, and says what it lacks for the rest.
func TestOffersWithoutPrograms(t *testing.T) {
	with := func(names ...string) model.Offers {
		t.Helper()
		dir := t.TempDir()
		for _, name := range names {
			path, err := exec.LookPath(name)
			if err == nil {
				err = os.Symlink(path, filepath.Join(dir, name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		path := os.Getenv("PATH")
		os.Setenv("PATH", dir)
		defer os.Setenv("PATH", path)
		offers := (*Driver)(nil).Offers(t.Context())
		for i := range offers { // VLANs take no program
			delete(offers[i].Lacks, model.FeatureVLANs)
			delete(offers[i].Lacks, model.FeatureVRF)
			offers[i].Makes = slices.DeleteFunc(offers[i].Makes, func(f model.Feature) bool { return f == model.FeatureVLANs || f == model.FeatureVRF })
		}
		return offers
	}
	all := []string{"nsenter", "runc", "tini", "mkfs.ext4", "resize2fs"}
	lacks := func(o model.Offers) int { // but for what kernels may lack
		delete(o[0].Lacks, model.FeatureMPLS)
		return len(o.Lacks())
	}
	makes := func(o model.Offers) int {
		return len(slices.DeleteFunc(o[0].Makes, func(f model.Feature) bool { return f == model.FeatureMPLS }))
	}
	if o := with(all...); len(o) != 1 || lacks(o) != 0 || !slices.Contains(o[0].Makes, "software: frr") ||
		!slices.Contains(o[0].Makes, "software: bird") {
		t.Errorf("with everything: %+v", o)
	}
	const noRunc = "the program runc is missing: install the package runc"
	if o := with("nsenter"); o.Barren() != "" || makes(o) != 0 || o[0].Lacks["software: frr"] != noRunc ||
		o[0].Lacks["software: bird"] != noRunc {
		t.Errorf("without runc: %+v", o)
	}
	if o := with(all[1:]...); o[0].Lacks["control: netns"] != "the program nsenter is missing: install the package "+
		"util-linux" || o.Barren() == "" {
		t.Errorf("without nsenter: %+v", o)
	}
}
