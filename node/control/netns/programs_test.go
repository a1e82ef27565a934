package netns

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	for _, program := range programs {
		if !slices.Contains(installed, program.pkg) {
			t.Errorf("%s installs %v: without %s, which brings %s", file, installed, program.pkg, program.name)
		}
	}
}
